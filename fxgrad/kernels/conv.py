"""Products with a window: convolutions, computed by the register blocks of matrix products without a matrix of patches.

Seen as a matrix, the windowed operand x has *lines*, each an index (plain, l0, l1, l2), and in every line *elements* (t0, t1,
t2, c). In spatial dimension d they stand at position l_d * line_step_d + t_d * tap_step_d - low_d of x, and are 0 outside of it.
Forward, lines are rows of the left matrix and elements run along k; in the derivative by the weights lines run along k and
elements are the rows. The kernel gathers what it needs of this matrix for some rows and one block of k, which stays in
the first levels of the cache, line by line: the elements of a line lie side by side in x in runs of (t2, c), or of c alone.

The sum is that of a matrix product (`fxgrad.kernels.matmul`), also for strong products; k runs over (t0, t1, t2, c) forward, and
over (plain, l0, l1, l2) in the other case. Elements outside of x are zeros like all others: a strong product passes over them.
"""

from __future__ import annotations

from typing import Any

from fxgrad.kernels.matmul import PLAN, MatmulKernel, block_length

__all__ = ["DIMS", "WINDOW_PLAN", "ChannelsKernel", "WindowKernel"]

DIMS = 3  # spatial dimensions; where there are fewer the first ones have length 1
_EACH = ("lines", "line_step", "low", "taps", "tap_step", "size", "move", "c_step")
WINDOW_PLAN = (
    *PLAN, "by_lines", "plain_move", "c_plain", "channels", "run", "runs",
    *(f"{name}{d}" for d in range(DIMS) for name in _EACH),
)  # fmt: skip


class WindowKernel(MatmulKernel):
    """c[g] = window(x)[g] @ b[g]: see the module. The pointers are x, b, c; or x, b, panels, c.

    `runs` are the taps of the last dimension that are no part of a `run`. `c_step{d}` and `c_plain` are the bytes in c from one
    row to the next along each part of its index.
    """

    form = "windows"
    what = "c[g,i,j] = window(x)[g,i,k] * b[g,k,j] : sum over blocks of 256 k, in order, of the chain fma(x, b, sum) from 0"

    def emit(self, module: Any, name: str) -> Any:
        from fxgrad.kernels.conv_emit import emit_windows

        return emit_windows(module, name, self.dtype, block_length(self.dtype))


class ChannelsKernel(WindowKernel):
    """c[i, g] = window(x)[i, k, g] * b[k, g]: the batches g lie side by side in all three, and are lanes of vectors.

    In the plan n is the number of these batches, and the elements of a line have no channels.
    """

    form = "windows of channels"
    what = "c[i,g] = window(x)[i,k,g] * b[k,g] : sum over blocks of 256 k, in order, of the chain fma(x, b, sum) from 0"

    def emit(self, module: Any, name: str) -> Any:
        from fxgrad.kernels.conv_channels_emit import emit_channels

        return emit_channels(module, name, self.dtype, block_length(self.dtype))
