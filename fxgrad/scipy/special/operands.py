"""How a special function meets its operands: promoted to one floating-point dtype, broadcast, float16 computed in float32."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fxgrad import errors
from fxgrad.numpy import elementwise as ew
from fxgrad.numpy.core import as_dtype, broadcast_operands, operand, result_type

__all__ = ["constant", "floats", "special"]


def floats(*args: Any) -> list[Any]:
    """Operands in one floating-point dtype and shape."""
    xs = [operand(x) for x in args]
    dtype = result_type(*xs)
    if dtype.kind == "c":
        raise errors.UnsupportedError(
            "special functions of complex arrays are not supported",
            why="Converting them would drop the imaginary parts.",
            fix="Pass x.real where x is real; or write the function with fxgrad.numpy.",
        )
    dtype = dtype if dtype.kind == "f" else np.dtype(float)
    return broadcast_operands([as_dtype(x, dtype) for x in xs])


def special(name: str, impl: Callable[..., Any], summary: str, nin: int = 1) -> Callable[..., Any]:
    """The function `name` of `nin` arrays; `impl` gets them in one dtype and shape."""
    single = ew.in_single(impl)

    def function(*args: Any) -> Any:
        if len(args) != nin:
            raise TypeError(f"{name}() takes {nin} positional arguments but {len(args)} were given")
        return single(*floats(*args))

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"{summary} Elementwise, as scipy.special.{name}."
    return function


def constant(x: Any, value: float) -> Any:
    """value as a scalar of the dtype of x."""
    return x.dtype.type(value)
