"""Whole loops as one kernel: the values a small body carries stay in registers from turn to turn.

The body is a straight line of operations on single numbers; small arrays are so many numbers. A kernel of a counted loop does
turns lo to hi, one of a loop with a test at most so many:

```
kernel turns(a: f64 const 1, b: f64 carry 2, c: f64 x 1) -> (f64 y 1) {
  t0: f64 = mul a0 b0
  t1: f64 = add t0 c0
  next b: t1 b0
  y: t0
}
```
Operands are arrays of so many numbers each, or those at the places listed of an array: `const` is read before the first turn,
`carry` before the first and written after the last one, `x` and `y` are slices of stacked arrays, read and written at every turn.
`while` names the number that is tested before each turn; such a kernel has one more operand: a word of which the first byte tells
in the end whether the test still holds, and one with the number of turns done.

The plan: `[extent, grain, then for every x and y (where the slice of turn 0 begins, how far apart slices are)..., literals...]`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from fxgrad.ir.types import short_name
from fxgrad.kernels.spec import Kernel, Op, Operand, Ref, format_op, format_ref

__all__ = ["Group", "TurnsKernel"]


class Group(NamedTuple):
    """An operand: numbers of one dtype, those at the positions `places` of an array. `role` is const, carry, x or y."""

    role: str
    dtype: np.dtype
    places: tuple[int, ...]

    @property
    def size(self) -> int:
        return len(self.places)

    def __str__(self) -> str:
        whole = self.places == tuple(range(self.size))
        return f"{short_name(self.dtype)} {self.role} {self.size if whole else ','.join(map(str, self.places)) + ','}"


class TurnsKernel(Kernel):
    """A loop; values are numbered: those of the groups const, carry and x, then operations.

    `results` are the next values of all carries, then the values of the groups y, then what is tested, if anything is; of the
    operations the first `tested` find that one.
    """

    __slots__ = ("groups", "tested")

    def __init__(self, groups: Sequence[Group], ops: Sequence[Op], results: Sequence[Ref], tested: int = -1):
        numbers = [Operand(g.dtype, "splat") for g in groups if g.role != "y" for _ in range(g.size)]
        super().__init__("turns", numbers, ops, results, [])
        self.groups, self.tested = tuple(groups), tested

    @property
    def text(self) -> str:
        if self._text is None:
            self._text = self._format()
        return self._text

    @property
    def digest(self) -> str:
        if self._digest is None:
            self._digest = hashlib.sha256(self.text.encode()).hexdigest()
        return self._digest

    def _format(self) -> str:
        letters = [f"{'abcdefghijklmnopqrsuvwxyz'[i % 25]}{'_' * (i // 25)}" for i in range(len(self.groups))]
        names = [f"{c}{i}" for c, g in zip(letters, self.groups, strict=True) if g.role != "y" for i in range(g.size)]
        signature = [f"{c}: {g}" for c, g in zip(letters, self.groups, strict=True) if g.role != "y"]
        signature += [f"s{i}: {short_name(d)} literal" for i, d in enumerate(self.scalars)]
        written = ", ".join(str(g) for g in self.groups if g.role == "y")
        lines = [f"kernel turns({', '.join(signature)}) -> ({written}) {{"]
        for i, op in enumerate(self.ops):
            if i == self.tested:
                lines.append(f"  while {format_ref(self.results[-1], names)}")
            lines.append(format_op(f"t{i}", op, names))
            names.append(f"t{i}")
        if self.tested == len(self.ops):
            lines.append(f"  while {format_ref(self.results[-1], names)}")
        rest = list(self.results)
        for c, g in zip(letters, self.groups, strict=True):
            if g.role in ("carry", "y"):
                values, rest = rest[: g.size], rest[g.size :]
                lines.append(f"  {'next ' + c if g.role == 'carry' else 'y'}: {' '.join(format_ref(r, names) for r in values)}")
        return "\n".join([*lines, "}"])

    def emit(self, module: Any, name: str) -> Any:
        """The kernel as an internal function of an LLVM module."""
        from fxgrad.kernels.turns_emit import emit_turns

        return emit_turns(self, module, name)
