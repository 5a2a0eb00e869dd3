"""One place that forgets everything remembered."""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["clear_caches", "forget_all", "on_clear"]

_forgetters: list[Callable[[], None]] = []


def on_clear(forget: Callable[[], None]) -> Callable[[], None]:
    """Decorates what `forget_all` shall call; a module that another thread is still importing has nothing to forget."""
    _forgetters.append(forget)
    return forget


def forget_all() -> None:
    """Drop what modules remember in memory; what is in use stays valid."""
    for forget in _forgetters:
        forget()


def clear_caches() -> None:
    """Forget remembered programs, free idle memory, and delete compiled kernels, in memory and in `fxgrad.config.cache_dir`.

    Example:
        >>> import tempfile, fxgrad as fx
        >>> usual, fx.config.cache_dir = fx.config.cache_dir, tempfile.mkdtemp()  # here, so that the usual one stays
        >>> fx.clear_caches()
        >>> fx.config.cache_dir = usual
    """
    from fxgrad.compile import cache

    cache.clear_caches()
