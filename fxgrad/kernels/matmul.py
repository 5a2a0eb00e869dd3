"""Matrix products, batch by batch, of operands with any strides.

Every element is a fixed sum: k is cut into blocks of `block_length(dtype)`; within a block a chain acc = fma(a[i,k], b[k,j], acc)
runs in the order of k from acc = 0; the blocks' results are added from the first to the last. Nothing else enters, so an
element's bits do not depend on tiles, layout, batching, threads or the machine.

In a *strong* product zeros of one operand annihilate what they meet: the chain of a block whose result is NaN is run again and
passes over the k where that operand is zero. (Elsewhere such a k adds nothing.)

The kernels are like all others, `kernel(pointers, plan, lo, hi)` with pointers a, b, c; the fields of the plan are `PLAN`.
Work is counted in units of rows (or columns) of one batch, and may be split anywhere. b is read in place, or packed into panels
as wide as the register block: by a kernel of its own, once for all rows and threads, or, small ones, along the way. For every
block of columns and of k every panel of rows of a, packed or not, stays in the first-level cache while b's stream past it.

With `cut` in the plan the inner batches are the blocks of one k: a product of few results and a long k, whose blocks' sums are
added by a `SumKernel`.

Packed, b is `panels`: for each batch and each block of k one panel after the other, in each of which the columns of one k lie
side by side. The memory begins at the first multiple of 64 bytes.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from fxgrad.ir.types import short_name

__all__ = [
    "ALONG", "APART", "DOT_BLOCKS", "IN_PLACE", "MATVEC_ROWS", "PLAN", "DotKernel", "MatmulKernel", "MatvecKernel", "PackKernel",
    "ProductKernel", "SumKernel", "block_length",
]  # fmt: skip

PLAN = (
    "extent", "grain", "units", "unit", "m", "n", "k", "strong", "inner",
    "a_offset", "a_outer", "a_inner", "a_row", "a_column",
    "b_offset", "b_outer", "b_inner", "b_row", "b_column",
    "c_offset", "c_outer", "c_inner", "c_row", "c_column",
    "by_columns", "pack_a", "pack_b", "parts", "cut", "stretch", "panels_outer", "panels_inner", "panels_block",
)  # fmt: skip
MATVEC_ROWS = 16
DOT_BLOCKS = 256  # of a dot product whose blocks' sums are added by the kernel that computes them
IN_PLACE, ALONG, APART = range(3)  # how b is packed


def block_length(dtype: np.dtype) -> int:
    """Length of a block of k: a constant, part of the numerics contract."""
    return 256


_SUM = "sum over blocks of 256 k, in order, of the chain fma(a, b, sum) from 0"


class ProductKernel:
    """A kernel that computes fixed sums, or helps to."""

    form: str  # its name and what it computes
    what: str

    def __init__(self, dtype: np.dtype):
        self.dtype = dtype
        self.text = f"kernel {self.form}({short_name(dtype)}) {{\n  {self.what}\n}}"
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
    """c[g] = a[g] @ b[g] with the columns of c side by side: see the module.

    Where b is packed apart the pointers are a, b, panels, c.
    """

    form, what = "matmul", f"c[g,i,j] = a[g,i,k] * b[g,k,j] : {_SUM}"

    def emit(self, module: Any, name: str) -> Any:
        from fxgrad.kernels.matmul_emit import emit_matmul

        return emit_matmul(module, name, self.dtype, block_length(self.dtype))


class PackKernel(ProductKernel):
    """Panels of b; work is counted in units of columns, the pointers are b and panels."""

    form, what = "pack", "panels[g,k,j] = b[g,k,j]"

    def emit(self, module: Any, name: str) -> Any:
        from fxgrad.kernels.matmul_emit import emit_pack_kernel

        return emit_pack_kernel(module, name, self.dtype, block_length(self.dtype))


class MatvecKernel(ProductKernel):
    """c[g] = a[g] @ b[g], b and c of one column, c contiguous; a has one contiguous axis.

    Work is counted in units of `MATVEC_ROWS` elements of c; a batch has at least that many.
    """

    form, what = "matvec", f"c[g,i] = a[g,i,k] * b[g,k] : {_SUM}"

    def emit(self, module: Any, name: str) -> Any:
        from fxgrad.kernels.matvec_emit import emit_matvec

        return emit_matvec(module, name, self.dtype, block_length(self.dtype))


class DotKernel(ProductKernel):
    """c[g] = a[g] @ b[g], a row and a column, both contiguous along k; work is counted in batches.

    With `parts`, c[g] are the sums of all blocks side by side, and blocks are the units of work; else there are at most
    `DOT_BLOCKS` of them.
    """

    form, what = "dot", f"c[g] = a[g,k] * b[g,k] : {_SUM}"

    def emit(self, module: Any, name: str) -> Any:
        from fxgrad.kernels.matvec_emit import emit_dot

        return emit_dot(module, name, self.dtype, block_length(self.dtype))


class SumKernel(ProductKernel):
    """c[g] = a[g, 0] + a[g, 1] + ..., each of n elements side by side, which are the units of work."""

    form, what = "sum of parts", "c[g,j] = a[g,0,j] + a[g,1,j] + ..."

    def emit(self, module: Any, name: str) -> Any:
        from fxgrad.kernels.matvec_emit import emit_sum

        return emit_sum(module, name, self.dtype, block_length(self.dtype))
