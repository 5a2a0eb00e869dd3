"""Steps written into a table of the executor: kernels, fills and copies here, control in `control.py`.

Where a value lies depends on where its step stands: in the program itself, or in a loop, whose values move from turn to turn. So
whoever writes steps gives the function that finds the operand of a value.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fxgrad.compile.kernelize import Launch
from fxgrad.ir.program import Eqn
from fxgrad.ir.types import Aval, Var
from fxgrad.kernels.indexed import CODE, IndexKernel
from fxgrad.runtime.table import Operand, Run, Table

if TYPE_CHECKING:
    from fxgrad.compile.lower import Step
    from fxgrad.compile.plan import Place

__all__ = ["CODES", "Find", "TableWriter", "passing_operand"]

Find = Callable[[Var], Operand]
_COPY_GRAIN, _FILL_GRAIN = 1 << 16, 1 << 13  # bytes and words that are worth a thread


CODES = 64  # for each step that can fail


class TableWriter:
    """Adds steps to a table; `addresses` are those of kernels, by digest.

    Kernels that can stop the program get the place of the table's status and a code of their own: 1, plus `CODES` times the
    number in `checked`, to which the equation is appended with the axes that its indices lead along.
    """

    def __init__(self, table: Table, addresses: dict[str, int], checked: list[tuple[Eqn, Sequence[int]]]):
        self.table, self.addresses, self.checked = table, addresses, checked

    def add_all(self, steps: Sequence[Step], find: Find) -> None:
        for step in steps:
            self.add(step, find)

    def add(self, step: Step, find: Find) -> None:
        """Add a step, whose values `find` tells where they lie."""
        if step.control is not None:
            step.control.write(self, find)
        elif step.kind == "fill":
            if step.value is not None:
                (out,) = step.writes
                self.fill(find(out), step.value, out.aval)
        elif step.kind == "iota":
            from fxgrad.runtime.launch import ramp_kernel

            (out,) = step.writes
            self.table.pipeline([Run(ramp_kernel, np.array([out.aval.size, _FILL_GRAIN], np.int64), [find(out)])])
        elif step.kind == "copy":
            (source,), (out,) = step.reads, step.writes
            start = find(source)
            self.copy(start._replace(offset=start.offset + step.offset), find(out), out.aval.nbytes)
        else:
            runs = [self._run(step, x, [find(v) for v in (*x.reads, *x.writes)]) for x in step.launches]
            room, where = (0, None) if step.room is None else (step.room.aval.nbytes, find(step.room))
            self.table.pipeline(runs, step.rows, step.block, step.lead, room, where)

    def _run(self, step: Step, x: Launch, operands: list[Operand]) -> Run:
        plan = x.plan
        if isinstance(x.kernel, IndexKernel) and x.kernel.checks:
            plan = plan.copy()
            plan[CODE] = 1 + CODES * len(self.checked)
            assert step.eqn is not None
            self.checked.append((step.eqn, step.checked))
            operands.append(Operand(self.table.slots - 1, self.table.status))
        elif x.codes:
            plan = plan.copy()
            for place, eqn in x.codes:
                plan[place] = 1 + CODES * len(self.checked)
                self.checked.append((eqn, eqn.params["axes"]))
            operands.append(Operand(self.table.slots - 1, self.table.status))
        return Run(self.addresses[x.kernel.digest], plan, operands, x.scale)

    def run(self, kernel: Any, plan: np.ndarray, operands: Sequence[Operand]) -> None:
        """A kernel by itself."""
        self.table.pipeline([Run(self.addresses[kernel.digest], plan, operands)])

    def fill(self, target: Operand, value: Any, aval: Aval) -> None:
        from fxgrad.runtime.launch import fill_kernel

        self.table.pipeline([Run(fill_kernel, _fill_plan(value, aval), [target])])

    def copy(self, source: Operand, target: Operand, nbytes: int) -> None:
        """Copy so many bytes, unless they are there."""
        from fxgrad.runtime.launch import copy_kernel

        if nbytes and source != target:
            self.table.pipeline([Run(copy_kernel, np.array([nbytes, _COPY_GRAIN], np.int64), [source, target])])


def passing_operand(place: Place) -> Operand:
    """What passes from kernel to kernel."""
    return Operand(-1, place.offset, passing=place.number)


def _fill_plan(value: Any, aval: Aval) -> np.ndarray:
    """Whole words of the repeated value, and the bytes of the last one."""
    pattern = np.full(8 // aval.dtype.itemsize, value, aval.dtype).view(np.int64)[0]
    return np.array([-(-aval.nbytes // 8), _FILL_GRAIN, pattern, aval.nbytes % 8], np.int64)
