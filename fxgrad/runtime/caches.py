"""One place that forgets everything remembered."""

from __future__ import annotations

from fxgrad.runtime.buffers import forget_buffers
from fxgrad.trace.function import forget_programs

__all__ = ["clear_caches"]


def clear_caches() -> None:
    """Forget remembered programs, free idle memory, and delete compiled kernels, in memory and in `fxgrad.config.cache_dir`."""
    from fxgrad.compile import cache

    forget_programs()
    forget_buffers()
    cache.clear_caches()
