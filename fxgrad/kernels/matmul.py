"""Matrix products, batch by batch, of operands with any strides.

Every element is a fixed sum: k is cut into blocks of `block_length(dtype)`; within a block a chain acc = fma(a[i,k], b[k,j], acc)
runs in the order of k from acc = 0; the blocks' results are added from the first to the last. Nothing else enters, so an
element's bits do not depend on tiles, layout, batching, threads or the machine.

The kernel is one like all others, `kernel(pointers, plan, lo, hi)` with pointers a, b, c; the fields of the plan are `PLAN`.
Work is counted in units of rows (or columns) of one batch, and may be split anywhere. For every block of columns and of k, b is
packed into panels as wide as the register block (or read in place); then every panel of rows of a, packed or not, stays in
the first-level cache while the panels of b stream past it.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from fxgrad.ir.types import short_name

__all__ = ["DOT_PLAN", "MATVEC_PLAN", "MATVEC_ROWS", "PLAN", "DotKernel", "MatmulKernel", "MatvecKernel", "block_length"]

PLAN = (
    "extent", "grain", "units", "unit", "by_columns", "m", "n", "k", "pack_a", "pack_b", "stretch",
    "a_batch", "a_row", "a_k", "b_batch", "b_k", "b_column", "c_batch", "c_row",
)  # fmt: skip
MATVEC_ROWS = 16
MATVEC_PLAN = ("extent", "grain", "units", "n", "k", "a_batch", "a_row", "a_k", "x_batch", "x_k", "c_batch")
DOT_PLAN = ("extent", "grain", "k", "x_batch", "y_batch", "c_batch")


def block_length(dtype: np.dtype) -> int:
    """Length of a block of k: a constant, part of the numerics contract."""
    return 256


class _ProductKernel:
    """A kernel whose element is the fixed sum."""

    form: str  # its name and what it computes
    what: str

    def __init__(self, dtype: np.dtype):
        self.dtype = dtype
        chain = f"sum over blocks of {block_length(dtype)} k, in order, of the chain fma(..., ..., sum) from 0"
        self.text = f"kernel {self.form}({short_name(dtype)}) {{\n  {self.what} : {chain}\n}}"
        self.digest = hashlib.sha256(self.text.encode()).hexdigest()

    def emit(self, module: Any, name: str) -> Any:
        """The kernel as an internal function of an LLVM module."""
        raise NotImplementedError


class MatmulKernel(_ProductKernel):
    """c[g] = a[g] @ b[g]: see the module."""

    form, what = "matmul", "c[g,i,j] = a[g,i,k] * b[g,k,j]"

    def emit(self, module: Any, name: str) -> Any:
        from fxgrad.kernels.matmul_emit import emit_matmul

        return emit_matmul(module, name, self.dtype, block_length(self.dtype))


class MatvecKernel(_ProductKernel):
    """c[g] = a[g] @ x[g] with c contiguous; a has one contiguous axis.

    Work is counted in units of `MATVEC_ROWS` elements of c. Pointers are a, x, c; a batch has at least that many elements.
    """

    form, what = "matvec", "c[g,i] = a[g,i,k] * x[g,k]"

    def emit(self, module: Any, name: str) -> Any:
        from fxgrad.kernels.matvec_emit import emit_matvec

        return emit_matvec(module, name, self.dtype, block_length(self.dtype))


class DotKernel(_ProductKernel):
    """c[g] = x[g] @ y[g], both contiguous along k; work is counted in batches."""

    form, what = "dot", "c[g] = x[g,k] * y[g,k]"

    def emit(self, module: Any, name: str) -> Any:
        from fxgrad.kernels.matvec_emit import emit_dot

        return emit_dot(module, name, self.dtype, block_length(self.dtype))
