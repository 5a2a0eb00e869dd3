"""map and associative_scan, which are made of scan, vmap and slices."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from fxgrad import errors, tree
from fxgrad.control.loops import scan, scan_length
from fxgrad.control.values import flatten, require_callable

F = Callable[..., Any]


def map(f: F, xs: Any, *, batch_size: int | None = None) -> Any:
    """f applied to each entry along the leading axis of xs, one after the other; results stacked.

    Like vmap(f)(xs), to the bit, with the memory of one entry (or of `batch_size` of them, which run vectorised).

    Arguments:
        f: x -> y, any pytrees.
        xs: a tree of arrays with one leading length.
        batch_size: how many entries to run at once by vmap.

    Raises:
        FxValueError: the leading lengths of xs differ, or batch_size is not positive.

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> fx.lax.map(np.sum, np.ones((2, 3)))
        array([3., 3.])
    """
    require_callable(f, "map", "its function")
    if batch_size is None:

        @wraps(f)
        def turn(_: Any, x: Any) -> tuple[None, Any]:
            return None, f(x)

        return scan(turn, None, xs)[1]
    from fxgrad import numpy as fnp
    from fxgrad.api.batching import vmap

    n, b = scan_length(flatten(xs, "xs"), None), int(batch_size)
    if b < 1:
        raise errors.FxValueError(f"map got batch_size={batch_size}", why="It counts entries.", fix="Pass at least 1, or None.")
    whole, rest = n // b * b, n % b
    batches = tree.map(lambda x: fnp.reshape(x[:whole], (n // b, b, *x.shape[1:])), xs)
    ys = scan(lambda _, x: (None, vmap(f)(x)), None, batches)[1]
    ys = tree.map(lambda y: fnp.reshape(y, (whole, *y.shape[2:])), ys)
    if not rest:
        return ys
    last = vmap(f)(tree.map(lambda x: x[whole:], xs))
    return tree.map(lambda a, c: fnp.concatenate([a, c]), ys, last) if whole else last


def associative_scan(fn: F, elems: Any, reverse: bool = False, axis: int = 0) -> Any:
    """All partial results of an associative operation along an axis, in about 2 log2(n) vectorised steps.

    Arguments:
        fn: (a, b) -> c on trees of arrays, associative and vectorised along `axis`.
        elems: a tree of arrays of one length along `axis`.
        reverse: combine from the end.
        axis: the axis; negative counts from the end.

    Returns:
        A tree like elems: entry i is the combination of entries 0 to i (i to the last, with `reverse`). Floating-point operations
        are associative only up to rounding, so results may differ from those of a loop.

    Raises:
        FxValueError: lengths differ, or an array has no such axis.
        TreeMismatchError: fn returns another structure.

    Reference: Blelloch (1990), Prefix sums and their applications.

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> fx.lax.associative_scan(np.add, np.arange(5))
        array([ 0,  1,  3,  6, 10])
    """
    from fxgrad import numpy as fnp

    require_callable(fn, "associative_scan", "its function")
    given = flatten(elems, "elems")
    for i, a in enumerate(given.avals):
        if not -len(a.shape) <= axis < len(a.shape):
            raise errors.FxValueError(
                f"associative_scan along axis {axis}: {given.label(i)} has shape {a.shape}",
                why="Every array needs that axis.",
                fix="Pass arrays of at least one axis, or another axis.",
            )
    lengths = {a.shape[axis] for a in given.avals}
    if len(lengths) > 1:
        raise errors.FxValueError(
            f"associative_scan got arrays of lengths {sorted(lengths)} along axis {axis}",
            why="They are combined entry by entry.",
            fix="Pass arrays of one length.",
        )
    leaves = [fnp.moveaxis(x, axis, 0) for x in given.values]
    leaves = [x[::-1] for x in leaves] if reverse else leaves

    def combine(a: list[Any], b: list[Any]) -> list[Any]:
        trees = [tree.unflatten(given.structure, [fnp.moveaxis(x, 0, axis) for x in side]) for side in (a, b)]
        flat, structure = tree.flatten(fn(*trees))
        tree.check_same(given.structure, structure, "the elements of associative_scan and what its function returns")
        return [fnp.moveaxis(x, axis, 0) for x in flat]

    found = _prefixes(combine, leaves)
    found = [x[::-1] for x in found] if reverse else found
    return tree.unflatten(given.structure, [fnp.moveaxis(x, 0, axis) for x in found])


def _prefixes(combine: Callable[[list[Any], list[Any]], list[Any]], xs: list[Any]) -> list[Any]:
    """Pairs are combined, their prefixes found, and the entries between them combined from those."""
    from fxgrad import numpy as fnp

    n = xs[0].shape[0] if xs else 0
    if n < 2:
        return xs
    odd = _prefixes(combine, combine([x[0 : n - 1 : 2] for x in xs], [x[1::2] for x in xs]))
    if n > 2:
        before = [x[: (n - 1) // 2] for x in odd]
        even = [fnp.concatenate([x[:1], y]) for x, y in zip(xs, combine(before, [x[2::2] for x in xs]), strict=True)]
    else:
        even = [x[:1] for x in xs]
    return [_interleaved(a, b) for a, b in zip(even, odd, strict=True)]


def _interleaved(a: Any, b: Any) -> Any:
    """a[0], b[0], a[1], b[1], ..., where a may have one more."""
    from fxgrad import numpy as fnp

    m = b.shape[0]
    pairs = fnp.reshape(fnp.stack([a[:m], b], axis=1), (2 * m, *b.shape[1:]))
    return pairs if a.shape[0] == m else fnp.concatenate([pairs, a[m:]])
