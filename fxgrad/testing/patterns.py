"""What the pattern of wrong entries suggests."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from fxgrad.testing.subject import Leaf

__all__ = ["suspicion"]

CLOSE = 1e-3  # a pattern is one if it explains the entries to this relative accuracy
MOST_USES = 4096  # the largest integer factor that is called one
PARTNERS = 12  # entries whose transposed ones are measured

Entry = Callable[[int], tuple[float, float, float]]  # position -> computed, measured, bar


def _alike(a: np.ndarray, b: np.ndarray) -> bool:
    return bool(np.all(np.abs(a - b) <= CLOSE * np.maximum(np.abs(a), np.abs(b)) + 1e-12 * np.max(np.abs(b), initial=0.0)))


def suspicion(
    leaf: Leaf,
    places: Sequence[int],
    computed: np.ndarray,
    measured: np.ndarray,
    wrong: np.ndarray,
    entry: Entry,
    size: int,
) -> str:
    """One sentence on what kind of fault makes these errors.

    Args:
        leaf: the array that the entries belong to.
        places: their positions in the vector of arguments.
        computed, measured: float64, one for each: the derivatives.
        wrong: which of them are off.
        entry: measures another one.
        size: of the vector.
    """
    known = np.isfinite(measured)
    a, n, w = computed[known], measured[known], wrong[known]
    if not np.any(w):
        return "Many entries are off by little: look for a loss of precision."
    if not np.all(np.isfinite(a[w])):
        name = "NaN" if np.any(np.isnan(a[w])) else "an infinity"
        return f"{name} where the function is smooth: 0 * inf in a branch that was not taken, or a rule at its pole."
    few = np.sum(w) <= max(1, a.size // 8)
    found = _whole(a, n) or _rearranged(leaf, places, computed, measured, entry)
    if found:
        return found
    if few and a.size > 2:
        return f"only {int(np.sum(w))} of {a.size} entries are off: a rule that treats some places differently (an edge, a tie)."
    subset = _whole(a[w], n[w])
    if subset:
        return f"of the entries that are off: {subset}"
    return "no known pattern: look at the rule of the operation that this argument meets first."


def _whole(a: np.ndarray, n: np.ndarray) -> str:
    """A pattern of all entries: zero, sign, factor."""
    scale = np.max(np.abs(n), initial=0.0)
    if not np.any(a) and scale:
        return "no gradient flows: it is zero where the function does change (stop_gradient, detach, a rule that answers zero)."
    if not scale and np.any(a):
        return "the function does not change with this argument here, but has a derivative."
    on = np.abs(n) > 1e-6 * scale
    if _alike(a, -n):
        return "the sign is wrong."
    if not np.all(np.abs(a[~on]) <= 1e-5 * scale) or not np.any(on):
        return ""
    ratios = a[on] / n[on]
    ratio = float(np.median(ratios))
    if ratio == 0 or abs(ratio - 1) <= CLOSE or not _alike(ratios, np.full(ratios.shape, ratio)):
        return ""
    for factor, text in (
        (
            1 / ratio,
            "it is 1/{k} of what it should be: a missing accumulation, or a missing sum over a broadcast axis of {k}.",
        ),
        (ratio, "it is {k} times what it should be: accumulated {k} times, or without a factor 1/{k}."),
    ):
        k = round(factor)
        if 2 <= abs(k) <= MOST_USES and abs(factor - k) <= CLOSE * abs(k):
            return text.format(k=k)
    return f"it is off by the constant factor {ratio:.6g}."


def _rearranged(leaf: Leaf, places: Sequence[int], computed: np.ndarray, measured: np.ndarray, entry: Entry) -> str:
    """Right numbers in wrong places."""
    if leaf.kind.complex:
        pairs = {p: i for i, p in enumerate(places)}
        both = [(pairs[p], pairs[p + 1]) for p in places if (p - leaf.start) % 2 == 0 and p + 1 in pairs]
        if both and all([_alike(computed[[r, i]], measured[[r, i]] * [1, -1]) for r, i in both]):
            return "it is the complex conjugate of what it should be."
        return ""
    shape = leaf.shape
    for name, moved in (
        ("transposed", lambda k: (*k[:-2], k[-1], k[-2])),
        ("reversed along the last axis", lambda k: (*k[:-1], shape[-1] - 1 - k[-1])),
        ("reversed along the first axis", lambda k: (shape[0] - 1 - k[0], *k[1:])),
    ):
        if not shape or (name == "transposed" and (len(shape) < 2 or shape[-1] != shape[-2])):
            continue
        partners = []
        for p, value in list(zip(places, computed, strict=True))[:PARTNERS]:
            k = tuple(int(i) for i in np.unravel_index(p - leaf.start, shape))
            if moved(k) != k:
                partners.append((value, entry(leaf.start + int(np.ravel_multi_index(moved(k), shape)))[1]))
        if len(partners) > 1 and _alike(*np.array(partners).T):
            return f"it is {name}: entries stand in each other's places."
    return ""
