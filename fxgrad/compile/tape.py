"""Scalar programs: many single numbers and elements of arrays, computed one after the other by one kernel from a list."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fxgrad.compile.updates import is_update
from fxgrad.ir.program import Eqn
from fxgrad.ir.types import Atom, Aval, Lit, Var
from fxgrad.kernels.tape import HEADER, Case, TapeKernel

if TYPE_CHECKING:
    from fxgrad.compile.analysis import Analysis
    from fxgrad.compile.fuse import Task

__all__ = ["Tape"]

_Place = tuple[object, int]  # a variable, the scratch or the plan's constants; byte offset
_SCRATCH, _CONSTANTS = "scratch", "constants"


class Tape:
    """The instructions of a task: what is read, what is written, in which places."""

    def __init__(self, a: Analysis, task: Task):
        self.a, self.task = a, task
        self.stored = set(task.stored)
        self.roots: dict[Var, None] = {}
        self.slots: dict[Var, int] = {}
        self.constants: dict[bytes, int] = {}
        self.code: list[tuple[Case, _Place, list[_Place]]] = []
        self.saved: dict[tuple[Var, int], _Place] = {}  # elements read after they are written
        self.count = 0
        over = {u.base: u.home for u in task.updates if u.over}
        written: set[tuple[Var, int]] = set()
        home: dict[Var, Var] = {}
        self.first: list[tuple[Case, _Place, list[_Place]]] = []
        ends = self._ends()
        for e in task.eqns:
            if is_update(e):
                u = ends[e.outputs[0]]
                source = self._place(e.inputs[1], e, over, written)
                self._move(self.code, u[0], (u[1], u[2]), source)
                written.add((u[1], u[2]))
                home[e.outputs[0]] = u[1]
            else:
                self._operation(e, [self._place(x, e, over, written) for x in e.inputs])
        self.code = self.first + self.code

    def _ends(self) -> dict[Var, tuple[np.dtype, Var, int]]:
        """For each array with an element written, in which array that is in the end, and where."""
        a, out = self.a, {}
        last: dict[Var, Var] = {}
        for e in reversed(self.task.eqns):
            if is_update(e):
                u = a.updates[a.producer[e.outputs[0]]]
                end = last.get(u.home, u.home)
                if isinstance(u.base, Var):
                    last.setdefault(u.base, end)
                out[e.outputs[0]] = (u.home.aval.dtype, end, u.parts[0][1].offset)
        return out

    def _place(self, x: Atom, e: Eqn, over: dict[Atom, Var], written: set[tuple[Var, int]]) -> _Place:
        """Where an operand lies."""
        root, layout = self.a.access(x)
        if isinstance(root, Lit):
            word = root.value.tobytes().ljust(8, b"\0")
            return _CONSTANTS, self.constants.setdefault(word, 8 * len(self.constants))
        if root in self.slots:
            return _SCRATCH, self.slots[root]
        if root in self.stored:
            return root, 0
        self.roots[root] = None
        where = root, layout.offset
        if root not in over or (over[root], layout.offset) not in written:
            return where
        if where not in self.saved:
            self.saved[where] = self._slot()
            self._move(self.first, root.aval.dtype, self.saved[where], where)
        return self.saved[where]

    def _slot(self) -> _Place:
        self.count += 1
        return _SCRATCH, 8 * (self.count - 1)

    def _move(self, code: list, dtype: np.dtype, target: _Place, source: _Place) -> None:
        word = np.dtype(f"u{dtype.itemsize}")
        code.append((Case(None, (), (word,), word), target, [source]))

    def _operation(self, e: Eqn, sources: list[_Place]) -> None:
        v = e.outputs[0]
        case = Case(e.prim, tuple(sorted(e.params.items())), tuple(x.aval.dtype for x in e.inputs), v.aval.dtype)
        target: _Place = (v, 0)
        if v not in self.stored:
            target = self._slot()
            self.slots[v] = target[1]
        self.code.append((case, target, sources))

    def kernel(self) -> TapeKernel:
        return TapeKernel([case for case, _, _ in self.code])

    def scratch(self) -> Var:
        """Memory for the numbers that nobody else needs."""
        return Var(Aval((max(self.count, 1),), np.dtype(np.int64)))

    def plan(self, kernel: TapeKernel, operands: list[Var], scratch: Var) -> np.ndarray:
        """The list, for a kernel that is given these operands."""
        number: dict[object, int] = {v: i for i, v in enumerate(operands)}
        number[_SCRATCH] = number[scratch]
        width, n = kernel.width, len(self.code)
        rows = np.zeros((n, width), np.int64)
        start = 8 * (HEADER + n * width)
        number[_CONSTANTS] = -1
        shift = {_CONSTANTS: start}
        for row, (case, target, sources) in zip(rows, self.code, strict=True):
            words = [kernel.number[case]]
            for place, offset in (target, *sources):
                words += [number[place], offset + shift.get(place, 0)]  # type: ignore[call-overload]
            row[: len(words)] = words
        head = np.array([1, 0, n], np.int64)
        return np.concatenate([head, rows.reshape(-1), np.frombuffer(b"".join(self.constants), np.int64)])
