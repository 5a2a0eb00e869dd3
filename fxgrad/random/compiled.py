"""Draws as compiled functions: one for each shape and dtype, found by a look-up."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

from fxgrad.compile.jit import jit

__all__ = ["compiled"]


@lru_cache(maxsize=4096)
def compiled(impl: Callable[..., Any], *static: Any) -> Callable[..., Any]:
    """jit of `impl` with its last arguments fixed. Inside a trace it is recorded as any jitted function is."""
    return jit(partial(_last, impl, static))


def _last(impl: Callable[..., Any], static: tuple, *arrays: Any) -> Any:
    return impl(*arrays, *static)
