"""Checks of derivatives, for any function of arrays: of fxgrad, plain NumPy, PyTorch, JAX and autograd.

`check_grads(f, args)` compares what a library computes with what is measured, `assert_gradients(f, *args)` is that for tests,
`gradient_error_curve(f, args)` shows how good measuring can be. On the command line: `python -m fxgrad.testing module:function`.
"""

from __future__ import annotations

from typing import Any

from fxgrad.testing.bits import assert_same_bits, same_bits
from fxgrad.testing.check import Check, check_grads, check_jvp, check_vjp
from fxgrad.testing.curve import ErrorCurves, gradient_error_curve
from fxgrad.testing.diagnosis import Finding, GradientError
from fxgrad.testing.ulp import ulp_difference

__all__ = [
    "Check", "ErrorCurves", "Finding", "GradientError", "assert_gradients", "assert_same_bits", "check_grads", "check_jvp",
    "check_vjp", "gradient_error_curve", "same_bits", "ulp_difference",
]  # fmt: skip


def assert_gradients(f: Any, *args: Any, **options: Any) -> Check:
    """Fail unless the derivatives of f at these arguments are right: `check_grads(f, args, **options)` as tests write it.

    Args:
        f, args: the function and its arguments, one after the other.
        options: as for `check_grads`: order, modes, atol, rtol, grad, library, ...
    Returns:
        The `Check`.
    Raises:
        GradientError: as `check_grads`, an AssertionError.

    >>> import numpy as np
    >>> assert_gradients(np.tanh, np.array([0.1, -2.0]))
    <gradients of 'tanh' (fxgrad) are right: forward mode, reverse mode, forward over forward, reverse over forward, ...>
    """
    __tracebackhide__ = True
    return check_grads(f, args, **options)
