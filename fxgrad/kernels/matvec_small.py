"""A small matrix times a vector, for loops that do little else: no batches, no blocks, nothing to look up.

The columns of the matrix are contiguous along the results, and k is one block. `GROUPS` vectors of results are kept in registers
while k goes by; the chains are those of every product.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fxgrad.kernels.matmul import ProductKernel

__all__ = ["GROUPS", "SMALL_PLAN", "SmallMatvecKernel"]

SMALL_PLAN = ("extent", "grain", "m", "k", "strong", "a_offset", "a_column", "b_offset", "b_row", "c_offset")
GROUPS = 4


class SmallMatvecKernel(ProductKernel):
    """c = a @ b, b and c of one column: see the module. There is one unit of work."""

    form, what = "matvec_small", "c[i] = a[i,k] * b[k] : the chain fma(a, b, sum) from 0 in the order of k"

    @property
    def title(self) -> str:
        """What the kernel does."""
        return "matvec"

    def emit(self, module: Any, name: str) -> Any:
        """The kernel as an internal function of an LLVM module."""
        from fxgrad.kernels.matvec_small_emit import emit_small_matvec

        return emit_small_matvec(module, name, self.dtype)

    def plan(self, **fields: int) -> np.ndarray:
        """The plan with these fields."""
        return np.array([fields[f] for f in SMALL_PLAN], np.int64)
