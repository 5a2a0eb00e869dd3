"""Operands of steps that read whole values in order: what is in order is read where it lies, the rest is copied before."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from fxgrad.compile.analysis import Analysis
from fxgrad.compile.kernelize import copy_launch
from fxgrad.compile.layout import Layout, collapse
from fxgrad.compile.tables import Find
from fxgrad.ir.types import Atom, Lit, Var
from fxgrad.runtime.table import Move, Operand

if TYPE_CHECKING:
    from fxgrad.compile.lower import Step

__all__ = ["Given", "Operands"]


class Given(NamedTuple):
    """An operand: a stored value, the byte with which it begins there, and how far apart slices are."""

    root: Var
    offset: int
    stride: int

    def operand(self, find: Find, moves: Sequence[Move] = (), offset: int = 0) -> Operand:
        """Where it lies, moved on."""
        place = find(self.root)
        return place._replace(offset=place.offset + self.offset + offset, moves=(*place.moves, *moves))


class Operands:
    """Brings the operands of an equation in order, by `steps` before its own, where they are not."""

    def __init__(self, a: Analysis, why: str):
        self.a, self.why = a, [why]
        self.steps: list[Step] = []
        self.roots: list[Var] = []  # once for each time an operand is taken

    def take(self, x: Atom, sliced: bool = False) -> Given:
        """A value whose elements, or those of each slice along the first axis, lie side by side in order."""
        root, layout = self.a.access(x)
        slices = Layout(layout.shape[sliced:], layout.strides[sliced:])
        if type(root) is Var and _in_order(slices, x.aval.dtype.itemsize):
            self.roots.append(root)
            return Given(root, layout.offset, layout.strides[0] if sliced else 0)
        out = Var(x.aval)
        self.roots.append(out)
        self.write(root, layout, out)
        return Given(out, 0, x.aval.nbytes // x.aval.shape[0] if sliced and x.aval.size else 0)

    def write(self, root: Atom, layout: Layout, out: Var) -> None:
        """A view of a value (or a number) written to a variable of its own."""
        from fxgrad.compile.lower import Step, kernel_step

        if out.aval.size == 0:
            self.steps.append(Step("fill", "no elements", self.why, [], [out]))
        elif isinstance(root, Lit):
            self.steps.append(Step("fill", "fill", self.why, [], [out]))
            self.steps[-1].value = root.value
        elif _in_order(layout, out.aval.dtype.itemsize):
            step = Step("copy", "copy", self.why, [root], [out])
            step.offset, step.bytes_read = layout.offset, out.aval.nbytes
            if layout.offset == 0 and out.aval.nbytes == root.aval.nbytes:
                step.in_place = [(root, out)]
            self.steps.append(step)
        else:
            self.steps.append(kernel_step(copy_launch(root, layout, out), "copy", self.why))


def _in_order(layout: Layout, itemsize: int) -> bool:
    sizes, (strides,) = collapse(layout.shape, [layout.strides])
    return 0 in sizes or not sizes or (len(sizes) == 1 and strides[0] == itemsize)
