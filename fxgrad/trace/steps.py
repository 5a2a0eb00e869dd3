"""From an array to a view of it: the steps, how to read along them and how to write back.

A `Window` is a strided box of an array with its axes in some order, some of them dropped or new: slices, reversals, transposes,
axes of length 1, and any sequence of these. A `Reshape` takes the whole array in another shape, a `Part` the real or imaginary
parts of complex numbers. A `Replay` is anything else (broadcasts, diagonals): it can be read again, by recording its equations
again, but not written.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from fxgrad.ir.program import Eqn
from fxgrad.ir.types import Var
from fxgrad.primitives import complex as cx
from fxgrad.primitives import shape as s
from fxgrad.primitives.update import update_slice

__all__ = [
    "Part",
    "Replay",
    "Reshape",
    "Step",
    "Window",
    "append_step",
    "is_contiguous",
    "steps_of",
    "strides_along",
    "strides_without_copy",
]

Ints = tuple[int, ...]


class Window(NamedTuple):
    """A strided box of an array of `shape`: (start, length, step) for each axis, then the axes of the result in order.

    `order` names an axis of the array, or None for a new axis of length 1; axes it leaves out have length 1 and are dropped.
    """

    shape: Ints
    spans: tuple[tuple[int, int, int], ...]
    order: tuple[int | None, ...]

    @property
    def result(self) -> Ints:
        return tuple(1 if a is None else self.spans[a][1] for a in self.order)

    def _box(self) -> tuple[Ints, Ints, Ints, Ints]:
        """(start, stop, step) with positive steps, and the axes that run backwards."""
        start, stop, step, backward = [], [], [], []
        for axis, (first, length, stride) in enumerate(self.spans):
            if length == 0:
                first, stride = 0, 1
            elif length == 1:
                stride = 1
            elif stride < 0:
                backward.append(axis)
                first, stride = first + (length - 1) * stride, -stride
            start.append(first)
            stop.append(first + (length - 1) * stride + 1 if length else first)
            step.append(stride)
        return tuple(start), tuple(stop), tuple(step), tuple(backward)

    def _moves(self) -> tuple[Ints, Ints]:
        """(the permutation that brings the axes kept into order behind those dropped, the shape after it)."""
        kept = [a for a in self.order if a is not None]
        perm = (*(a for a in range(len(self.shape)) if a not in kept), *kept)
        return perm, tuple(self.spans[a][1] for a in perm)

    def read(self, x: Any) -> Any:
        """This part of x."""
        start, stop, step, backward = self._box()
        perm, moved = self._moves()
        if stop != self.shape or any(start) or any(n != 1 for n in step):
            x = s.slice_(x, start=start, stop=stop, step=step)
        if backward:
            x = s.reverse(x, axes=backward)
        if perm != tuple(range(len(perm))):
            x = s.transpose(x, perm=perm)
        return x if self.result == moved else s.reshape(x, shape=self.result)

    def write(self, x: Any, u: Any) -> Any:
        """x with this part replaced by u; `x()` is asked for only if something of it remains."""
        start, stop, step, backward = self._box()
        perm, moved = self._moves()
        if self.result != moved:
            u = s.reshape(u, shape=moved)
        if perm != tuple(range(len(perm))):
            u = s.transpose(u, perm=s.inverse(perm))
        if backward:
            u = s.reverse(u, axes=backward)
        if tuple(n for _, n, _ in self.spans) == self.shape:
            return u
        return update_slice(x(), u, start=start, stop=stop, step=step)

    def strides(self, strides: Ints) -> Ints:
        return tuple(0 if a is None else strides[a] * self.spans[a][2] for a in self.order)

    def then(self, other: Window) -> Window | None:
        """This window and then another as one; None if that takes nothing of an axis that is new here."""
        spans = list(self.spans)
        for a, (start, length, step) in zip(self.order, other.spans, strict=True):
            if a is None:
                if length != 1:
                    return None
                continue
            first, _, stride = self.spans[a]
            spans[a] = (first + start * stride, length, stride * step if length > 1 else 1)
        return Window(self.shape, tuple(spans), tuple(None if j is None else self.order[j] for j in other.order))


class Reshape(NamedTuple):
    """The elements in row-major order in another shape."""

    shape: Ints
    result: Ints

    def read(self, x: Any) -> Any:
        return s.reshape(x, shape=self.result)

    def write(self, x: Any, u: Any) -> Any:
        return s.reshape(u, shape=self.shape)


class Part(NamedTuple):
    """The real or the imaginary parts of complex numbers of `result`, their shape."""

    name: str
    result: Ints

    def read(self, x: Any) -> Any:
        return cx.real(x) if self.name == "real" else cx.imag(x)

    def write(self, x: Any, u: Any) -> Any:
        return cx.complex_(u, cx.imag(x())) if self.name == "real" else cx.complex_(cx.real(x()), u)


class Replay(NamedTuple):
    """Equations that compute a view that cannot be written from the variable `source`."""

    eqns: tuple[Eqn, ...]
    source: Var
    target: Var

    @property
    def result(self) -> Ints:
        return self.target.aval.shape

    def read(self, x: Any) -> Any:
        trace = x._trace
        env = {self.source: x._var}
        for eqn in self.eqns:
            outputs = [Var(v.aval) for v in eqn.outputs]
            trace.eqns.append(
                Eqn(eqn.prim, [env[a] if type(a) is Var and a in env else a for a in eqn.inputs], eqn.params, outputs, eqn.source)
            )
            env.update(zip(eqn.outputs, outputs, strict=True))
        return type(x)(trace, env[self.target])

    def write(self, x: Any, u: Any) -> Any:
        raise AssertionError("a read-only view is written")


Step = Window | Reshape | Part | Replay


def append_step(steps: tuple[Step, ...], step: Step) -> tuple[Step, ...]:
    """`steps` and one more; windows that follow each other become one, and a window that is all of an array none."""
    if type(step) is Window:
        if steps and type(steps[-1]) is Window:
            both = steps[-1].then(step)
            if both is not None:
                steps, step = steps[:-1], both
        if type(step) is Window and step.result == step.shape and step == whole(step.shape):
            return steps
    return (*steps, step)


def whole(shape: Ints) -> Window:
    """All of an array of `shape`."""
    return Window(shape, tuple((0, n, 1) for n in shape), tuple(range(len(shape))))


# ---- from equations ------------------------------------------------------------------------------------------------------


def steps_of(source: Var, result: Var, producers: dict[Var, Eqn]) -> list[Step]:
    """How `result` was made from `source`: windows and reshapes if only such equations lie between them, else a replay."""
    eqns, v = [], result
    while v is not source:
        eqn = producers.get(v)
        if eqn is None or eqn.prim.kind != "view" or type(eqn.inputs[0]) is not Var:
            return [_replayed(source, result, producers)]
        eqns.append(eqn)
        v = eqn.inputs[0]
    steps = [_step(eqn) for eqn in reversed(eqns)]
    if any(step is None for step in steps):
        return [Replay(tuple(reversed(eqns)), source, result)]
    return [step for step in steps if step is not None]


def _step(eqn: Eqn) -> Step | None:
    """The step that one equation takes; None if what it gives cannot be written through."""
    (x,), p = eqn.inputs, eqn.params
    shape, result = x.aval.shape, eqn.outputs[0].aval.shape
    every, axes = tuple((0, n, 1) for n in shape), tuple(range(len(shape)))
    if eqn.prim.name == "slice":
        return Window(shape, tuple(zip(p["start"], result, p["step"], strict=True)), axes)
    if eqn.prim.name == "reverse":
        spans = tuple((n - 1, n, -1) if a in p["axes"] and n > 1 else (0, n, 1) for a, n in enumerate(shape))
        return Window(shape, spans, axes)
    if eqn.prim.name == "transpose":
        return Window(shape, every, p["perm"])
    if eqn.prim.name in ("reshape", "broadcast") and math.prod(shape) == math.prod(result):
        lengths = [n for n in shape if n != 1]
        if lengths == [n for n in result if n != 1]:
            kept = iter([a for a in axes if shape[a] != 1])
            return Window(shape, every, tuple(None if n == 1 else next(kept) for n in result))
        return Reshape(shape, result) if eqn.prim.name == "reshape" else None
    return Part(eqn.prim.name, shape) if eqn.prim.name in ("real", "imag") else None


def _replayed(source: Var, result: Var, producers: dict[Var, Eqn]) -> Replay:
    """The equations between two variables, in order, without those that do not depend on `source`."""
    ordered: list[Eqn] = []
    depends: dict[Var, bool] = {source: True}
    stack: list[tuple[Var, bool]] = [(result, False)]
    while stack:
        v, ready = stack.pop()
        eqn = producers.get(v)
        if v in depends or eqn is None:
            depends.setdefault(v, False)
            continue
        operands = [a for a in eqn.inputs if type(a) is Var]
        if not ready:
            stack.append((v, True))
            stack += [(a, False) for a in operands]
            continue
        depends[v] = any(depends[a] for a in operands)
        if depends[v]:
            ordered.append(eqn)
    return Replay(tuple(ordered), source, result)


# ---- strides, by which NumPy decides whether a reshape is a view -------------------------------------------------------------


def c_strides(shape: Ints) -> Ints:
    """Strides in elements of a C-ordered array."""
    out = [1] * len(shape)
    for i in range(len(shape) - 2, -1, -1):
        out[i] = out[i + 1] * shape[i + 1]
    return tuple(out)


def strides_along(shape: Ints, steps: Sequence[Step]) -> Ints | None:
    """Strides of the view at the end of `steps` into a C-ordered array of `shape`; None if they are not known."""
    strides: Ints | None = c_strides(shape)
    for step in steps:
        if strides is None:
            return None
        if type(step) is Window:
            strides = step.strides(strides)
        elif type(step) is Reshape:
            strides = strides_without_copy(step.shape, strides, step.result)
        elif type(step) is Part:
            strides = tuple(2 * n for n in strides)
        elif type(step) is Replay:
            strides = _strides_replayed(step, strides)
    return strides


def _strides_replayed(step: Replay, strides: Ints) -> Ints | None:
    for eqn in step.eqns:
        one, shape = _step(eqn), eqn.inputs[0].aval.shape
        if type(one) is Window:
            strides = one.strides(strides)
        elif type(one) is Part:
            strides = tuple(2 * n for n in strides)
        elif eqn.prim.name == "broadcast":
            dims = dict(zip(eqn.params["dims"], range(len(shape)), strict=True))
            result = eqn.params["shape"]
            strides = tuple(strides[dims[d]] if d in dims and shape[dims[d]] == n else 0 for d, n in enumerate(result))
        else:
            return None
    return strides


def strides_without_copy(shape: Ints, strides: Ints, result: Ints) -> Ints | None:
    """The strides after a reshape that needs no copy, or None: axes can be merged where one continues the other."""
    if 0 in shape:
        return c_strides(result)
    old = [(n, k) for n, k in zip(shape, strides, strict=True) if n != 1]
    out: list[int] = []
    i = j = 0
    while j < len(result):
        if i == len(old):  # only axes of length 1 are left
            out += [1] * (len(result) - j)
            break
        first, group, length = i, j, result[j]
        have = old[i][0]
        while have != length:
            if have < length:
                i += 1
                have *= old[i][0]
            else:
                j += 1
                length *= result[j]
        if any(a[1] != b[1] * b[0] for a, b in pairwise(old[first : i + 1])):
            return None
        stride = old[i][1]
        tail = []
        for n in reversed(result[group : j + 1]):
            tail.append(stride)
            stride *= n
        out += reversed(tail)
        i, j = i + 1, j + 1
    return tuple(out)


def is_contiguous(shape: Ints, strides: Ints) -> bool:
    """Whether an array with these strides lies in C order without gaps."""
    return 0 in shape or all(n == 1 or k == want for n, k, want in zip(shape, strides, c_strides(shape), strict=True))
