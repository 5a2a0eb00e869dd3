"""Derivatives that a library computes against derivatives that are measured."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from fxgrad import errors
from fxgrad.testing.diagnosis import Finding, GradientError, diagnose, inconclusive, locate, misshapen, unsteady
from fxgrad.testing.differences import Estimate, norm
from fxgrad.testing.given import pull_of_grad, pull_of_vjp, push_of_jvp
from fxgrad.testing.libraries import library_of
from fxgrad.testing.reference import INFORMATIVE, Direction, Reference
from fxgrad.testing.subject import DOUBLE, ShapeError, Subject, subject_of

__all__ = ["Check", "check_grads", "check_jvp", "check_vjp"]

BARS = 10.0  # the estimated error of a measured derivative counts so often
NOISE = 8.0  # and so often what a derivative changes when the point moves by an ulp
COMPLEX_COST, REAL_COST = 2, 14  # evaluations of f for one direction, about
MOST_ENTRIES = 256  # checked one by one; from there on random directions
MOST_LEAVES = 16  # that get a direction of their own


class Settings(NamedTuple):
    eps: float | None
    atol: float | None
    rtol: float | None
    evaluations: int
    seed: int


class Check:
    """What a check that passed has looked at: `str()` is a summary of it.

    order: of the highest derivatives checked; modes: what was checked, in words.
    comparisons, evaluations: numbers computed against measured ones; calls of f (and of derivatives, as functions of the point).
    closest: the largest difference, as a part of what was allowed.
    method: how derivatives of first order were measured; notes: what was left out.

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> check = fx.testing.check_grads(np.sin, (1.0,), order=1)
        >>> check.order, check.library
        (1, 'fxgrad')
    """

    def __init__(self, name: str, library: str):
        self.name, self.library = name, library
        self.order = self.comparisons = self.evaluations = 0
        self.closest, self.method = 0.0, ""
        self.modes: list[str] = []
        self.notes: list[str] = []

    def __str__(self) -> str:
        checked = ", ".join(self.modes)
        lines = [
            f"gradients of '{self.name}' ({self.library}) are right: {checked}",
            f"  {self.comparisons} comparisons, {self.evaluations} evaluations; measured by {self.method}",
            f"  the largest difference is {self.closest:.2g} of what error bars and rounding allow",
            *[f"  {note}" for note in self.notes],
        ]
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"<{str(self).splitlines()[0]}>"


# ---- one function ------------------------------------------------------------------------------------------------------------


class Comparison(NamedTuple):
    """Computed against measured along one direction, weighted with one cotangent."""

    direction: Direction
    weights: np.ndarray
    excess: float  # the difference as a part of what is allowed; inf for NaN
    off: float  # the difference


def _directions(reference: Reference, settings: Settings, entries: bool) -> list[tuple[Direction, Estimate]]:
    """Which directions are looked along, and the derivatives measured there."""
    subject = reference.subject
    first = reference.random(0, subject.size)
    reference.try_complex_step(*first)
    cost = COMPLEX_COST if reference.analytic else REAL_COST
    if entries and subject.size <= min(MOST_ENTRIES, settings.evaluations // cost):
        return [first] + [reference.entry(i) for i in range(subject.size)]
    leaves = [leaf for leaf in subject.ins if leaf.stop > leaf.start]
    parts = [(leaf.start, leaf.stop) for leaf in leaves] if 1 < len(leaves) <= MOST_LEAVES else []
    return [first] + [reference.random(start, stop) for start, stop in [(0, subject.size), *parts]]


def _cotangents(subject: Subject, rng: np.random.Generator) -> list[np.ndarray]:
    m = subject.out_size
    if m <= 4:
        return list(np.eye(m))
    weights = [rng.uniform(0.5, 1.0, m) * rng.choice([-1.0, 1.0], m) for _ in range(2)]
    if 1 < len(subject.outs) <= MOST_LEAVES // 2:
        for leaf in subject.outs:
            w = np.zeros(m)
            w[leaf.start : leaf.stop] = weights[0][leaf.start : leaf.stop]
            weights.append(w)
    return [w for w in weights if np.any(w)]


class Rounding(NamedTuple):
    """What is allowed beside error bars."""

    atol: float
    rtol: float
    eps: float
    most: float  # of the noise of a derivative, as a part of its size: beyond that it is no rounding, but a jump

    @classmethod
    def of(cls, eps: float, settings: Settings) -> Rounding:
        rtol = settings.rtol if settings.rtol is not None else 4 * eps ** (2 / 3) if settings.atol is None else 0.0
        return cls(settings.atol or 0.0, rtol, eps, eps**0.25)

    def allowed(self, bar: Any, noise: Any, scale: Any, size: Any) -> Any:
        """`scale` is that of the derivative, `size` that of f for a step of one, whose rounding a derivative of 0 may show."""
        return 8 * self.eps * size + BARS * bar + NOISE * np.minimum(noise, self.most * scale) + self.atol + self.rtol * scale


def _excess(computed: Any, measured: Any, allowed: Any) -> np.ndarray:
    """How often a difference exceeds what is allowed; NaN and infinity against a number are infinitely wrong."""
    with np.errstate(all="ignore"):
        off = np.abs(computed - measured)
        excess = off / np.where(allowed > 0, allowed, 1.0)
    excess = np.where((allowed == 0) & (off > 0), np.inf, np.where(off == 0, 0.0, excess))
    return np.where(np.isfinite(computed), excess, np.inf)


def _usable(estimate: Estimate, unit: float, computed: np.ndarray) -> np.ndarray:
    """Which measured derivatives say something: their error is small beside them, or beside what f varies."""
    value, bar = estimate.value / unit, estimate.bar / unit
    with np.errstate(all="ignore"):
        small = bar <= 0.1 * np.fmax(np.abs(value), np.abs(computed))
        return np.isfinite(bar) & (small | (bar <= INFORMATIVE * estimate.size / unit) | (bar == 0))


class _Sided:
    """One mode, in one precision: comparisons of all directions with all cotangents."""

    def __init__(self, reference: Reference, mode: str, precision: str, settings: Settings, check: Check):
        self.reference, self.subject, self.mode, self.precision = reference, reference.subject, mode, precision
        self.settings = settings
        narrow = max([leaf.kind.eps for leaf in self.subject.ins])
        self.eps = DOUBLE if precision == "wide" else narrow
        self.rounding = Rounding.of(self.eps, settings)
        self.check = check
        self.wrong: list[Comparison] = []
        self.open: list[Direction] = []  # directions along which nothing could be measured
        self.bar = np.inf  # of the last comparison

    def reverse(self, measured: Sequence[tuple[Direction, Estimate]], weights: Sequence[np.ndarray]) -> None:
        subject, leaves = self.subject, self.subject.ins
        for w in weights:
            g = subject.pull(w, self.precision)
            with np.errstate(all="ignore"):
                moved = np.nan_to_num(np.abs(subject.pull(w, self.precision, self.reference.nearby(self.eps)) - g))
            finite = np.where(np.isfinite(g), np.abs(g), 0.0)
            sizes = [a.stop - a.start for a in leaves]
            largest = np.repeat([np.max(finite[a.start : a.stop], initial=0.0) for a in leaves], sizes)
            for v, found in measured:
                unit = v.length
                part = found.weighted(w)
                at = v.positions
                computed = np.atleast_1d(np.sum(g[at] * v.values) / unit)
                value = part.value / unit
                scale = largest[at[0]] if at.size == 1 else self._scale(finite[at] * v.values) / unit
                allowed = self.rounding.allowed(
                    part.bar / unit, np.sum(moved[at] * np.abs(v.values)) / unit, np.fmax(scale, np.abs(value)), part.size / unit
                )
                self._note(v, w, computed, value, allowed, _usable(part, unit, computed), part.bar / unit)

    def forward(self, measured: Sequence[tuple[Direction, Estimate]]) -> None:
        subject, outs = self.subject, self.subject.outs
        sizes = [a.stop - a.start for a in outs]
        for v, found in measured:
            unit = v.length
            dense = v.dense(subject.size) / unit  # of length 1: a longer one may take tangents out of the range of float32
            computed = subject.push(dense, self.precision)
            with np.errstate(all="ignore"):
                moved = np.nan_to_num(np.abs(subject.push(dense, self.precision, self.reference.nearby(self.eps)) - computed))
                value = found.value / unit
                size = np.nan_to_num(np.fmax(np.abs(computed), np.abs(value)), posinf=0.0)
            scale = np.repeat([np.max(size[a.start : a.stop], initial=0.0) for a in outs], sizes)
            allowed = self.rounding.allowed(found.bar / unit, moved, scale, found.size / unit)
            usable = _usable(found, unit, computed)
            worst = int(np.argmax(np.where(usable, _excess(computed, value, allowed), -1.0)))
            self._note(v, np.eye(1, subject.out_size, worst)[0], computed, value, allowed, usable, found.bar / unit)

    def _scale(self, terms: np.ndarray) -> float:
        """How large a sum is for the rounding of its terms: these are independent, but for what each rounds the same way."""
        alike = 64 * self.eps / max(self.rounding.rtol, 64 * self.eps)
        return norm(terms) + alike * float(np.sum(np.abs(terms)))

    def _note(
        self,
        v: Direction,
        w: np.ndarray,
        computed: np.ndarray,
        measured: np.ndarray,
        allowed: np.ndarray,
        usable: np.ndarray,
        bar: np.ndarray,
    ) -> None:
        usable = usable & np.isfinite(allowed)
        self.check.comparisons += int(np.sum(usable))
        if not np.any(usable):
            self.open.append(v)
            return
        parts = np.where(usable, _excess(computed, measured, allowed), -1.0)
        worst = int(np.argmax(parts))
        self.bar, excess = float(bar[worst]), float(parts[worst])
        if excess > 1:
            self.wrong.append(Comparison(v, w, excess, float(abs(computed[worst] - measured[worst]))))
        else:
            self.check.closest = max(self.check.closest, excess)

    def confirmed(self) -> Comparison | None:
        """The worst comparison that smaller steps confirm: large ones may step over what is narrow."""
        for c in sorted(self.wrong, key=lambda c: -c.excess)[:8]:
            if not np.isfinite(c.excess) or self.settings.eps is not None:
                return c
            one = self._at_one_entry(c)
            if one is None or not any([self._agrees(one, *closer) for closer in self.reference.closer(one.direction)]):
                return one or c
        return None

    def _at_one_entry(self, c: Comparison) -> Comparison | None:
        """The comparison of the entry that is to blame; None if that alone is not off."""
        if c.direction.positions.size == 1:
            return c
        i = locate(self.reference, self.mode, self.precision, c.direction, c.weights)
        wrong = self._again(c.weights, *self.reference.entry(i)).wrong
        return wrong[0] if wrong else None

    def _again(self, w: np.ndarray, v: Direction, found: Estimate) -> _Sided:
        again = _Sided(self.reference, self.mode, self.precision, self.settings, Check("", ""))
        if self.mode == "fwd":
            again.forward([(v, found)])
        else:
            again.reverse([(v, found)], [w])
        return again

    def _agrees(self, c: Comparison, v: Direction, found: Estimate) -> bool:
        """Whether a measurement that could have shown the difference does not."""
        again = self._again(c.weights, v, found)
        return not again.wrong and not again.open and 2 * BARS * again.bar <= c.off


def _check_order(subject: Subject, word: tuple[str, ...], modes: Sequence[str], settings: Settings, check: Check) -> None:
    """The derivatives of one subject in these modes; raises where one is wrong or cannot be measured."""
    __tracebackhide__ = True
    if not subject.size or not subject.out_size:
        check.notes.append(f"nothing to check of {subject.name}: {'no entries' if not subject.size else 'no results'}")
        return
    reference = Reference(subject, settings.eps, settings.seed)
    if not reference.repeats:
        raise GradientError(subject, [unsteady(subject, _label((*word, modes[0])))], [], reference.describe())
    measured = _directions(reference, settings, entries=not word or subject.size <= 8)
    weights = _cotangents(subject, reference.rng)
    precisions = [reference.precision] + (["native"] if reference.precision == "wide" else [])
    sample = settings.evaluations // (2 * (COMPLEX_COST if reference.analytic else REAL_COST))
    findings: list[Finding] = []
    agree: list[str] = []
    for precision, mode in product(precisions, modes):
        side = _Sided(reference, mode, precision, settings, check)
        name = _label((*word, mode))
        label = name if len(precisions) == 1 else f"{name} in {'double' if precision == 'wide' else 'its own'} precision"
        try:
            if mode == "fwd":
                side.forward(measured)
            else:
                side.reverse(measured, weights)
        except ShapeError as error:
            findings.append(misshapen(subject, label, error, weights))
            continue
        except Exception as problem:  # a rule that is written for one dtype may fail in any way for another
            if precision == "native":
                raise
            check.notes.append(f"no {label}: {type(problem).__name__}: {str(problem).splitlines()[0]}")
            continue
        wrong = side.confirmed()
        if wrong is not None:
            findings.append(diagnose(reference, mode, precision, wrong.direction, wrong.weights, side.eps, label, sample))
        elif side.open:
            findings.append(inconclusive(reference, label, side.open[0]))
        else:
            agree.append(label)
            if name not in check.modes:
                check.modes.append(name)
    check.evaluations += subject.evaluations
    check.method = check.method or reference.describe()
    check.order = max(check.order, len(word) + 1)
    if findings:
        raise GradientError(subject, findings, agree, reference.describe())


_WORDS = {"fwd": "forward", "rev": "reverse"}


def _label(word: tuple[str, ...]) -> str:
    """`reverse mode`, `forward over reverse`."""
    return " over ".join([_WORDS[mode] for mode in reversed(word)]) + (" mode" if len(word) == 1 else "")


def _check_orders(subject: Subject, order: int, modes: Sequence[str], settings: Settings, check: Check) -> None:
    __tracebackhide__ = True
    level: list[tuple[tuple[str, ...], Subject]] = [((), subject)]
    rng = np.random.default_rng(settings.seed + 1)
    for n in range(1, order + 1):
        for word, each in level:
            _check_order(each, word, modes, settings, check)
        if n < order:
            level = [((*word, mode), each.derived(mode, _fixed(each, mode, rng))) for word, each in level for mode in modes]


def _fixed(subject: Subject, mode: str, rng: np.random.Generator) -> np.ndarray:
    """The tangent or cotangent with which a derivative becomes a function of the point again."""
    if mode == "rev" and subject.out_size == 1:
        return np.ones(1)
    n = subject.size if mode == "fwd" else subject.out_size
    return rng.uniform(0.5, 1.0, n) * rng.choice([-1.0, 1.0], n)


# ---- what users call ---------------------------------------------------------------------------------------------------------


def prepared(f: Callable[..., Any], args: Sequence[Any], library: str | None, settings: Settings) -> tuple[Subject, Check]:
    """The subject of a function and arguments that a user passed."""
    if not isinstance(args, (tuple, list)):
        raise errors.FxTypeError(
            f"the arguments to check gradients at are a {type(args).__name__}, not a tuple",
            why="They are all that the function is called with: f(*args).",
            fix="Pass (x,) for a function of one argument.",
        )
    if settings.evaluations < 1:
        raise errors.FxValueError(
            f"evaluations={settings.evaluations} leaves nothing to measure with",
            why="A derivative along one direction takes about 14 evaluations.",
            fix="Pass a positive number, or leave it out.",
        )
    found = library_of(f, args, library)
    subject = subject_of(found, f, args)
    check = Check(subject.name, found.name)
    if subject.skipped:
        check.notes.append(f"not differentiated: {', '.join(subject.skipped)}")
    return subject, check


def check_grads(
    f: Callable[..., Any],
    args: Sequence[Any],
    order: int = 2,
    modes: Sequence[str] | str = ("fwd", "rev"),
    eps: float | None = None,
    atol: float | None = None,
    rtol: float | None = None,
    *,
    grad: Callable[..., Any] | None = None,
    library: str | None = None,
    evaluations: int = 1000,
    seed: int = 0,
) -> Check:
    """Check the derivatives of a function at a point against measured ones.

    Derivatives are measured by central differences, extrapolated until rounding takes over, or by the complex step where the
    function is seen to be analytic; each has an error bar, from which the tolerance follows. Up to 256 entries are looked at
    one by one, more along random directions, in which every entry counts. Functions of float32 are measured in float64
    where they can be evaluated in it, and what they compute in either precision is compared.

    Args:
        f: a function of arrays (any shape; float16, float32, float64, complex; of NumPy, fxgrad, PyTorch, JAX or autograd)
            in pytrees, that answers arrays in a pytree. Integer and other leaves are passed on and not differentiated.
        args: the tuple of its arguments.
        order: of the highest derivatives to check: 2 checks the derivatives of derivatives too.
        modes: "fwd", "rev" or both; orders above the first take every combination.
        eps: a step for plain central differences, in place of steps that are chosen.
        atol, rtol: absolute and relative (to the largest entry of the leaf) difference that is allowed beside the error bar; by
            default none and 4 eps**(2/3), 1.5e-10 in float64 and 1e-4 in float32, and what rounding of the point does.
        grad: the gradient of a scalar f, where no library computes it: takes what f takes, answers an array or tree for the
            one argument, or a tuple with one for each. Only the first order and reverse mode are checked then.
        library: "fxgrad", "torch", "jax" or "autograd"; None finds out.
        evaluations: about how often f may be called for one order.
        seed: of the random directions.
    Returns:
        A `Check`: `str()` says what was compared, and how close it was.
    Raises:
        GradientError: (an AssertionError) a derivative is wrong, or cannot be measured: it names the worst entry, both values,
            the error bar, and what the pattern of errors suggests.
        FxTypeError, FxValueError: there is nothing to differentiate, or the settings are wrong.

    >>> import fxgrad as fx
    >>> print(check_grads(lambda x: np.sum(np.sin(x) * x), (np.array([0.5, 1.5]),), order=1))  # doctest: +ELLIPSIS
    gradients of '<lambda>' (fxgrad) are right: forward mode, reverse mode
      6 comparisons...
    """
    __tracebackhide__ = True  # pytest shows the caller's line
    modes = (modes,) if isinstance(modes, str) else tuple(modes)
    if order < 1 or not modes or not set(modes) <= {"fwd", "rev"}:
        raise errors.FxValueError(
            f"cannot check order={order!r}, modes={modes!r}",
            why="Orders count from 1; the modes are forward and reverse.",
            fix='Pass order=1 or more, and modes=("fwd", "rev") or one of them.',
        )
    settings = Settings(eps, atol, rtol, evaluations, seed)
    subject, check = prepared(f, args, library, settings)
    if grad is not None:
        if subject.out_size != 1:
            raise errors.FxValueError(
                f"grad= is a gradient, but '{subject.name}' has {subject.out_size} results",
                why="Only a scalar function has a gradient.",
                fix="Pass a pullback to fx.testing.check_vjp(f, f_vjp, args).",
            )
        subject.user_pull = pull_of_grad(subject, f, args, grad)
        order, modes = 1, ("rev",)
        check.notes.append("grad= has first derivatives only; higher orders were not checked")
    _check_orders(subject, order, modes, settings, check)
    return check


def check_vjp(
    f: Callable[..., Any],
    f_vjp: Callable[..., tuple[Any, Callable[..., Any]]],
    args: Sequence[Any],
    atol: float | None = None,
    rtol: float | None = None,
    eps: float | None = None,
    *,
    library: str | None = None,
    evaluations: int = 1000,
    seed: int = 0,
) -> Check:
    """Check a pullback against measured derivatives of the function.

    Args:
        f: as for `check_grads`.
        f_vjp: takes what f takes, answers (f's result, pullback); the pullback takes a cotangent of the result and answers a
            tuple with a cotangent for each argument, as `functools.partial(fx.vjp, f)` does.
        args, atol, rtol, eps, library, evaluations, seed: as for `check_grads`.
    Returns:
        A `Check`.
    Raises:
        GradientError, FxTypeError, FxValueError: as `check_grads`.

    >>> check_vjp(np.sin, lambda x: (np.sin(x), lambda w: (w * np.cos(x),)), (np.ones(3),))
    <gradients of 'sin' (fxgrad) are right: reverse mode>
    """
    __tracebackhide__ = True
    settings = Settings(eps, atol, rtol, evaluations, seed)
    subject, check = prepared(f, args, library, settings)
    subject.user_pull = pull_of_vjp(subject, f, args, f_vjp)
    _check_order(subject, (), ("rev",), settings, check)
    return check


def check_jvp(
    f: Callable[..., Any],
    f_jvp: Callable[..., tuple[Any, Any]],
    args: Sequence[Any],
    atol: float | None = None,
    rtol: float | None = None,
    eps: float | None = None,
    *,
    library: str | None = None,
    evaluations: int = 1000,
    seed: int = 0,
) -> Check:
    """Check a pushforward against measured derivatives of the function.

    Args:
        f: as for `check_grads`.
        f_jvp: takes (args, tangents), two tuples of the same structure, and answers (f's result, its tangent), as
            `functools.partial(fx.jvp, f)` does.
        args, atol, rtol, eps, library, evaluations, seed: as for `check_grads`.
    Returns:
        A `Check`.
    Raises:
        GradientError, FxTypeError, FxValueError: as `check_grads`.

    >>> check_jvp(np.sin, lambda x, t: (np.sin(*x), np.cos(*x) * t[0]), (np.ones(3),))
    <gradients of 'sin' (fxgrad) are right: forward mode>
    """
    __tracebackhide__ = True
    settings = Settings(eps, atol, rtol, evaluations, seed)
    subject, check = prepared(f, args, library, settings)
    subject.user_push = push_of_jvp(subject, f_jvp)
    _check_order(subject, (), ("fwd",), settings, check)
    return check
