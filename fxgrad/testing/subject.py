"""What is checked: a function of arrays in trees, seen as a function from float64 vectors to float64 vectors.

The entries of all floating-point leaves, one after the other, are the vector; a complex entry is two, real part first. The
derivatives of such a function are those of the library it belongs to, and subjects again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any, NamedTuple

import numpy as np

from fxgrad import errors
from fxgrad.testing.libraries import Flat, Kind, Library
from fxgrad.trace.function import argument_names, name_of

__all__ = ["DOUBLE", "Leaf", "ShapeError", "Subject", "labelled", "subject_of"]

Pull = Callable[[str, np.ndarray, np.ndarray], np.ndarray]  # (precision, x, cotangent) -> cotangent of x
Function = Callable[[bool, str], Flat]  # (whether a forward derivative will be taken through it, precision) -> the flat function
Push = Callable[[str, np.ndarray, np.ndarray], np.ndarray]  # (precision, x, tangent) -> tangent of the result


DOUBLE = 2.0**-52


class Leaf(NamedTuple):
    """One floating-point array among the arguments or results, and where it lies in the vector."""

    path: str
    shape: tuple[int, ...]
    kind: Kind
    start: int
    stop: int

    def place(self, position: int) -> str:
        """The entry at a position of the vector, as text: `argument 'w'['b'][2, 0]`."""
        i = position - self.start
        part = "" if not self.kind.complex else (".real", ".imag")[i % 2]
        i = i // 2 if self.kind.complex else i
        index = ", ".join([str(int(k)) for k in np.unravel_index(i, self.shape)]) if self.shape else ""
        return f"{self.path}{f'[{index}]' if index else ''}{part}"


class Subject:
    """A function and the point it is checked at."""

    def __init__(self, library: Library, name: str, ins: Sequence[Leaf], outs: Sequence[Leaf], x: np.ndarray):
        self.library, self.name, self.ins, self.outs, self.x = library, name, list(ins), list(outs), x
        self.origin = name  # of the user's function, for derivatives too
        self.function: Function
        self.user_pull: Pull | None = None  # derivatives that the user gave
        self.user_push: Push | None = None
        self.arguments: Callable[..., list[Any]]  # the user's arguments with other leaves
        self.floats: Callable[[Any], list[Any]]  # the leaves of a result that are differentiated
        self.like: Callable[[Any, Sequence[Any]], Any]  # a tree like a result with other leaves at their places
        self.evaluations = 0
        self._repeated: dict[tuple[bool, str], Flat] = {}
        self.skipped: list[str] = []

    @property
    def size(self) -> int:
        return self.ins[-1].stop if self.ins else 0

    @property
    def out_size(self) -> int:
        return self.outs[-1].stop if self.outs else 0

    # ---- vectors and arrays --------------------------------------------------------------------------------------------

    def natives(self, leaves: Sequence[Leaf], x: np.ndarray, precision: str) -> list[Any]:
        """The arrays of a vector, of the leaves' own types ("native"), or as `Library.dtype` says."""
        arrays = []
        for leaf in leaves:
            part = x[leaf.start : leaf.stop]
            part = part.view(np.complex128) if leaf.kind.complex and part.dtype.kind == "f" else part
            arrays.append(self.library.array(part.reshape(leaf.shape), self.library.dtype(leaf.kind, precision)))
        return arrays

    def vector(self, leaves: Sequence[Leaf], arrays: Sequence[Any], what: str = "a result of") -> np.ndarray:
        """The vector of arrays."""
        if len(arrays) != len(leaves):
            raise ShapeError(f"{what} '{self.name}' has {len(arrays)} arrays where {len(leaves)} are due")
        parts = []
        for leaf, array in zip(leaves, arrays, strict=True):
            found = self.library.numpy(array)
            if found.shape != leaf.shape:
                text = f"{what} '{self.name}' for {leaf.path} has shape {list(found.shape)}, not {list(leaf.shape)}"
                raise ShapeError(text, found.shape, leaf.shape)
            found = np.ascontiguousarray(found.astype(np.complex128) if leaf.kind.complex else found).reshape(-1)
            parts.append(found.view(np.float64) if leaf.kind.complex else found)
        return np.concatenate(parts) if parts else np.zeros(0)

    def conjugate(self, leaves: Sequence[Leaf], w: np.ndarray) -> np.ndarray:
        """A cotangent as the library wants it, from one that pairs with tangents as real vectors do; and back."""
        if self.library.conjugates or not any(leaf.kind.complex for leaf in leaves):
            return w
        w = w.copy()
        for leaf in leaves:
            if leaf.kind.complex:
                w[leaf.start + 1 : leaf.stop : 2] *= -1
        return w

    # ---- values and derivatives ------------------------------------------------------------------------------------------

    def __call__(self, x: np.ndarray, precision: str = "native") -> np.ndarray:
        """f(x); in precision "complex", x and the result are complex."""
        self.evaluations += 1
        with self.library.wide() if precision != "native" else nullcontext():
            outs = self.function(False, precision)(*self.natives(self.ins, x, precision))
            if precision == "complex":
                found = [self.library.numpy(y) for y in outs]
                return np.concatenate([y.reshape(-1) for y in found]) if found else np.zeros(0)
            return self.vector(self.outs, outs)

    def in_precision(self, eps: float) -> str | None:
        """The name of the precision with this unit, if f can be evaluated in it: "native", "wide" or "narrow"."""
        if all([leaf.kind.eps == eps for leaf in self.ins]):
            return "native"
        chosen = "wide" if eps == DOUBLE else "narrow"
        return chosen if self.allows(chosen) else None

    def allows(self, precision: str) -> bool:
        """Whether f can be evaluated in another precision: the result has it then, and agrees."""
        here, eps = self(self.x), DOUBLE if precision == "wide" else 2.0**-23
        try:
            with self.library.wide():
                outs = self.function(False, precision)(*self.natives(self.ins, self.x, precision))
                kinds = [self.library.kind(y) for y in outs]
                if any([k is None or k.eps != eps for k in kinds]):
                    return False
                there = self.vector(self.outs, outs)
        except Exception:  # noqa: BLE001 -- a function that is written for one dtype may fail in any way for another
            return False
        off = np.abs(here - there)
        scale = np.max(np.abs(there), initial=0.0, where=np.isfinite(there))
        eps = max([eps, *[leaf.kind.eps for leaf in self.ins]])
        return bool(np.all((off <= eps**0.5 * (scale or 1.0)) | ~np.isfinite(off)))

    def push(self, v: np.ndarray, precision: str, x: np.ndarray | None = None) -> np.ndarray:
        """The derivative of f along v, by the library's forward mode."""
        x = self.x if x is None else x
        with self.library.wide() if precision != "native" else nullcontext():
            if self.user_push is not None:
                return self.user_push(precision, x, v)
            xs, vs = self.natives(self.ins, x, precision), self.natives(self.ins, v, precision)
            return self.vector(self.outs, self.library.jvp(self.function(True, precision), xs, vs), "a tangent of")

    def pull(self, w: np.ndarray, precision: str, x: np.ndarray | None = None) -> np.ndarray:
        """The gradient of <w, f>, by the library's reverse mode."""
        x = self.x if x is None else x
        with self.library.wide() if precision != "native" else nullcontext():
            if self.user_pull is not None:
                return self.user_pull(precision, x, w)
            xs = self.natives(self.ins, x, precision)
            ws = self.natives(self.outs, self.conjugate(self.outs, w), precision)
            pulled = self.library.vjp(self.function(False, precision), xs, ws)
            return self.conjugate(self.ins, self.vector(self.ins, pulled, "the gradient of"))

    def repeated(self, nested: bool, precision: str) -> Flat:
        """The flat function, for derivatives at many points."""
        key = nested, precision
        if key not in self._repeated:
            self._repeated[key] = self.library.repeated(self.function(nested, precision))
        return self._repeated[key]

    def derived(self, mode: str, vector: np.ndarray) -> Subject:
        """The derivative along a fixed tangent ("fwd"), or with a fixed cotangent ("rev"), as a function of x."""
        library, forward = self.library, mode == "fwd"
        outs = self.outs if forward else [leaf._replace(path=f"gradient by {leaf.path}") for leaf in self.ins]
        out = Subject(library, f"{'tangent' if forward else 'gradient'} of {self.name}", self.ins, outs, self.x)
        out.origin = self.origin
        fixed = vector if forward else self.conjugate(self.outs, vector)
        leaves = self.ins if forward else self.outs

        def function(nested: bool, precision: str) -> Flat:
            inner = self.repeated(nested or forward, precision)

            def flat(*xs: Any) -> list[Any]:
                given = self.natives(leaves, fixed, precision)
                return list(library.jvp(inner, xs, given) if forward else library.vjp(inner, xs, given, nested))

            return flat

        out.function = function
        return out


class ShapeError(Exception):
    """A derivative of the wrong shape; the check that meets it makes a report of it."""

    def __init__(self, text: str, found: Sequence[int] = (), due: Sequence[int] = (), hint: str = ""):
        super().__init__(text)
        self.found, self.due, self.hint = tuple(found), tuple(due), hint


def labelled(library: Library, f: Callable[..., Any], args: Sequence[Any], values: Sequence[Any]) -> list[tuple[str, Any]]:
    """The leaves of a value for each argument, with the paths that messages have for them."""
    out = []
    for label, value in zip(argument_names(f, args), values, strict=True):
        out += [(f"argument '{label}'{path}", leaf) for path, leaf in library.flatten(value)[0]]
    return out


def _leaves(found: Sequence[tuple[str, Any, Kind]], shapes: Sequence[tuple[int, ...]]) -> list[Leaf]:
    out, at = [], 0
    for (path, _, kind), shape in zip(found, shapes, strict=True):
        n = math.prod(shape) * (2 if kind.complex else 1)
        out.append(Leaf(path, shape, kind, at, at + n))
        at += n
    return out


def subject_of(library: Library, f: Callable[..., Any], args: Sequence[Any]) -> Subject:
    """A user's function at its arguments. Leaves that are no floating-point arrays stay what they are; `skipped` names them.

    Raises:
        FxTypeError: no argument, or no result, is a floating-point array.
    """
    name, args = name_of(f), tuple(args)
    flat = labelled(library, f, args, args)
    trees = [library.flatten(arg) for arg in args]
    kinds = [library.kind(leaf) for _, leaf in flat]
    chosen = [i for i, kind in enumerate(kinds) if kind is not None]
    if not chosen:
        raise errors.FxTypeError(
            f"'{name}' has no floating-point argument to differentiate by",
            why=f"It was given {', '.join([type(leaf).__name__ for _, leaf in flat]) or 'no arguments'}.",
            fix="Pass floats or arrays of floats: 3.0 for 3, x.astype(float).",
        )

    def whole(xs: Sequence[Any], other: Callable[[Any], Any] = lambda leaf: leaf) -> list[Any]:
        values = [leaf if kind is not None else other(leaf) for (_, leaf), kind in zip(flat, kinds, strict=True)]
        for i, x in zip(chosen, xs, strict=True):
            values[i] = x
        out, at = [], 0
        for leaves, rebuild in trees:
            out.append(rebuild(values[at : at + len(leaves)]))
            at += len(leaves)
        return out

    in_kinds = [(flat[i][0], flat[i][1], k) for i, k in enumerate(kinds) if k is not None]
    arrays = [library.numpy(leaf) for _, leaf, _ in in_kinds]
    ins = _leaves(in_kinds, [a.shape for a in arrays])
    subject = Subject(library, name, ins, [], np.zeros(0))
    exact = subject.vector(ins, [leaf for _, leaf, _ in in_kinds])
    subject.x = subject.vector(ins, subject.natives(ins, exact, "native"))  # JAX may have rounded it

    results, _ = library.flatten(f(*whole(subject.natives(ins, subject.x, "native"))))
    out_kinds = [library.kind(leaf) for _, leaf in results]
    kept = [i for i, kind in enumerate(out_kinds) if kind is not None]
    if not kept:
        raise errors.FxTypeError(
            f"'{name}' has no floating-point result to differentiate",
            why=f"It answered {', '.join([type(leaf).__name__ for _, leaf in results]) or 'nothing'}.",
            fix="Return a float, an array of floats, or a tree of them.",
        )
    named = [(f"result{results[i][0]}", results[i][1], k) for i, k in enumerate(out_kinds) if k is not None]
    subject.outs = _leaves(named, [library.numpy(leaf).shape for _, leaf, _ in named])
    subject.skipped = [
        f"{path} ({getattr(leaf, 'dtype', type(leaf).__name__)})"
        for (path, leaf), kind in zip(flat, kinds, strict=True)
        if kind is None and (hasattr(leaf, "dtype") or isinstance(leaf, (bool, int)))
    ]

    def floats(result: Any) -> list[Any]:
        found = library.flatten(result)[0]
        return [found[i][1] for i in kept]

    def like(result: Any, ws: Sequence[Any]) -> Any:
        found, rebuild = library.flatten(result)
        values = [library.no_tangent(leaf) for _, leaf in found]
        for i, w in zip(kept, ws, strict=True):
            values[i] = w
        return rebuild(values)

    subject.arguments, subject.floats, subject.like = whole, floats, like
    subject.function = lambda nested, precision: lambda *xs: floats(f(*whole(xs)))
    return subject
