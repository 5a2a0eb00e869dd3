"""Settings: `fxgrad.config` holds them, the environment gives their first values."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

__all__ = ["config", "disable_jit"]


def _default_cache_dir() -> str:
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.environ.get("FXGRAD_CACHE_DIR") or os.path.join(base, "fxgrad")


def _default_cache_size() -> int:
    return int(os.environ.get("FXGRAD_CACHE_SIZE") or 1 << 30)


@dataclass
class Config:
    """Settings that change how programs run, never what they compute; `matmul` alone changes roundings.

    fusion: compile chains of operations into one kernel (False: one kernel an operation).
    matmul: "own": matrix products are sums in a fixed order, with the same bits everywhere; "blas": NumPy's, which promise none.
    cache_dir: where compiled kernels are kept; from FXGRAD_CACHE_DIR, else the user's cache directory.
    cache_size: bytes they may take on disk, from FXGRAD_CACHE_SIZE, else 1 GiB; what was not used for longest goes first.
    background_compile: compile what eager evaluation runs again and again (gradients without jit, say) in a background thread,
        and run it compiled from then on; FXGRAD_BACKGROUND_COMPILE=0 turns it off.
    log: what to report on stderr, from FXGRAD_LOG, comma separated: "cache" tells why jit traced again, "eager" what is compiled
        in the background.
    """

    fusion: bool = True
    matmul: str = "own"
    cache_dir: str = field(default_factory=_default_cache_dir)
    cache_size: int = field(default_factory=_default_cache_size)
    background_compile: bool = field(default_factory=lambda: os.environ.get("FXGRAD_BACKGROUND_COMPILE", "1") != "0")
    log: frozenset[str] = field(default_factory=lambda: frozenset(filter(None, os.environ.get("FXGRAD_LOG", "").split(","))))

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in self.__dataclass_fields__:
            raise AttributeError(f"fxgrad.config has no setting '{name}'; it has {', '.join(self.__dataclass_fields__)}")
        if name == "matmul" and value not in ("own", "blas"):
            raise ValueError(f"fxgrad.config.matmul is 'own' or 'blas', not {value!r}")
        object.__setattr__(self, name, value)


config = Config()
_jit_disabled: ContextVar[bool] = ContextVar("fxgrad_jit_disabled", default=False)


def jit_disabled() -> bool:
    return _jit_disabled.get()


@contextmanager
def disable_jit() -> Iterator[None]:
    """Within this context, jitted functions run their traced program operation by operation, with the same bits.

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> with fx.disable_jit():
        ...     fx.jit(np.sin)(0.0)
        np.float64(0.0)
    """
    token = _jit_disabled.set(True)
    try:
        yield
    finally:
        _jit_disabled.reset(token)
