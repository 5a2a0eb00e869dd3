"""How a special function meets its operands: promoted to one floating-point dtype, broadcast, float16 computed in float32."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fxgrad import errors
from fxgrad.doctext import documented
from fxgrad.numpy import elementwise as ew
from fxgrad.numpy.core import as_dtype, broadcast_operands, operand, result_type

__all__ = ["constant", "floats", "of_floats", "special"]


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


def special(name: str, impl: Callable[..., Any], summary: str, example: str, gives: str, nin: int = 1) -> Callable[..., Any]:
    """The function `name` of `nin` arrays; `impl` gets them in one dtype and shape. `example` are arguments that give `gives`."""
    function = of_floats(name, impl, nin)
    function.__module__ = "fxgrad.scipy.special"  # where it is found, by readers and by pickle
    function.__doc__ = documented(
        f"{summary} Elementwise, as scipy.special.{name}.",
        f"special.{name}({example})",
        gives,
        "from fxgrad.scipy import special",
    )
    return function


def of_floats(name: str, impl: Callable[..., Any], nin: int = 1) -> Callable[..., Any]:
    """A function of `nin` arrays; `impl` gets them in one dtype and shape."""
    single = ew.in_single(impl)

    def function(*args: Any) -> Any:
        if len(args) != nin:
            raise TypeError(f"{name}() takes {nin} positional arguments but {len(args)} were given")
        return single(*floats(*args))

    function.__name__ = function.__qualname__ = name
    return function


def constant(x: Any, value: float) -> Any:
    """value as a scalar of the dtype of x."""
    return x.dtype.type(value)
