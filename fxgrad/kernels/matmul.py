"""Matrix products, batch by batch, of operands with any strides.

Every element is a fixed sum: k is cut into blocks of `block_length(dtype)`; within a block a chain acc = fma(a[i,k], b[k,j], acc)
runs in the order of k from acc = 0; the blocks' results are added from the first to the last. Nothing else enters, so an
element's bits do not depend on tiles, layout, batching, threads or the machine.

In a *strong* product zeros of one operand annihilate what they meet: an element whose fixed sum is NaN is computed again, its
chain passing over the k where that operand is zero. (Elsewhere such a k adds nothing.)

The kernels are like all others, `kernel(pointers, plan, lo, hi)` with pointers a, b, c; the fields of the plan are `PLAN`.
Work is counted in units of rows (or columns) of one batch, and may be split anywhere. For every block of columns and of k, b is
packed into panels as wide as the register block (or read in place); then every panel of rows of a, packed or not, stays in
the first-level cache while the panels of b stream past it.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from fxgrad.ir.types import short_name

__all__ = ["MATVEC_ROWS", "PLAN", "DotKernel", "MatmulKernel", "MatvecKernel", "ProductKernel", "block_length"]

PLAN = (
    "extent", "grain", "units", "unit", "m", "n", "k", "strong", "inner",
    "a_offset", "a_outer", "a_inner", "a_row", "a_column",
    "b_offset", "b_outer", "b_inner", "b_row", "b_column",
    "c_offset", "c_outer", "c_inner", "c_row", "c_column",
    "by_columns", "pack_a", "pack_b", "stretch",
)  # fmt: skip
MATVEC_ROWS = 16


def block_length(dtype: np.dtype) -> int:
    """Length of a block of k: a constant, part of the numerics contract."""
    return 256


class ProductKernel:
    """A kernel whose element is the fixed sum."""

    form: str  # its name and what it computes
    what: str

    def __init__(self, dtype: np.dtype):
        self.dtype = dtype
        chain = f"sum over blocks of {block_length(dtype)} k, in order, of the chain fma(..., ..., sum) from 0"
        self.text = f"kernel {self.form}({short_name(dtype)}) {{\n  {self.what} : {chain}\n}}"
        self.digest = hashlib.sha256(self.text.encode()).hexdigest()

    def bind(self, plan: np.ndarray) -> np.ndarray:
        """The plan with the values of the kernel's literals, of which it has none."""
        return plan

    @property
    def title(self) -> str:
        """What the kernel does, in a word or two."""
        return self.form

    def emit(self, module: Any, name: str) -> Any:
        """The kernel as an internal function of an LLVM module."""
        raise NotImplementedError


class MatmulKernel(ProductKernel):
    """c[g] = a[g] @ b[g] with the columns of c side by side: see the module."""

    form, what = "matmul", "c[g,i,j] = a[g,i,k] * b[g,k,j]"

    def emit(self, module: Any, name: str) -> Any:
        from fxgrad.kernels.matmul_emit import emit_matmul

        return emit_matmul(module, name, self.dtype, block_length(self.dtype))


class MatvecKernel(ProductKernel):
    """c[g] = a[g] @ b[g], b and c of one column, c contiguous; a has one contiguous axis.

    Work is counted in units of `MATVEC_ROWS` elements of c; a batch has at least that many.
    """

    form, what = "matvec", "c[g,i] = a[g,i,k] * b[g,k]"

    def emit(self, module: Any, name: str) -> Any:
        from fxgrad.kernels.matvec_emit import emit_matvec

        return emit_matvec(module, name, self.dtype, block_length(self.dtype))


class DotKernel(ProductKernel):
    """c[g] = a[g] @ b[g], a row and a column, both contiguous along k; work is counted in batches."""

    form, what = "dot", "c[g] = a[g,k] * b[g,k]"

    def emit(self, module: Any, name: str) -> Any:
        from fxgrad.kernels.matvec_emit import emit_dot

        return emit_dot(module, name, self.dtype, block_length(self.dtype))
