"""Kernels that read or write arrays at positions known when they run: `take`, `put` and `add`.

Units of work are index tuples. Each leads to a box of the array x, which is read into, written from, or increased by, a box of
the other array u. Indices count from the end if they are negative; one out of bounds stops the program: the kernel writes two
words, a code of the plan plus the number of the index array, and the index. A kernel that *clamps* takes the nearest position.

Pointers: x, indices, u of `take`; x, u, indices of the others; last the two words, if it does not clamp.
The plan: `PLAN`, then `INDEX` for each index array. Boxes have three dimensions.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from fxgrad.ir.types import short_name

__all__ = ["CODE", "DIMS", "INDEX", "PLAN", "IndexKernel"]

DIMS = 3
PLAN = (
    "extent", "grain", "code", "x_offset", "u_offset", "u_unit",
    *(f"{name}_{d}" for name in ("size", "x", "u") for d in range(DIMS)),
)  # fmt: skip
INDEX = ("offset", "step", "length", "stride")  # from one unit to the next; positions there are; bytes of x from one to the next
CODE = PLAN.index("code")

_WHAT = {"take": "u[unit] = x[index]", "put": "x[index] = u[unit]", "add": "x[index] += u[unit]"}


class IndexKernel:
    """`what` is take, put or add; of elements of one dtype, at indices of others."""

    form = "indexed"

    def __init__(self, what: str, dtype: np.dtype, indices: Sequence[np.dtype], clamps: bool):
        self.what, self.dtype, self.indices, self.clamps = what, dtype, tuple(indices), clamps
        names = ", ".join(map(short_name, self.indices))
        self.text = f"kernel {what}({short_name(dtype)}; {names}{'; clamped' if clamps else ''}) {{\n  {_WHAT[what]}\n}}"
        self.digest = hashlib.sha256(self.text.encode()).hexdigest()

    @property
    def checks(self) -> bool:
        """Whether it may stop the program, and has a pointer to the words that tell why."""
        return not self.clamps

    @property
    def title(self) -> str:
        """What the kernel does."""
        return self.what

    def bind(self, plan: np.ndarray) -> np.ndarray:
        """The plan: it has no literals."""
        return plan

    def emit(self, module: Any, name: str) -> Any:
        """The kernel as an internal function of an LLVM module."""
        from fxgrad.kernels.indexed_emit import emit_indexed

        return emit_indexed(self, module, name)
