"""Settings: `fxgrad.config` holds them, the environment gives their first values."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fxgrad import errors

__all__ = ["config", "disable_jit"]


def _default_cache_dir() -> str:
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.environ.get("FXGRAD_CACHE_DIR") or os.path.join(base, "fxgrad")


_UNITS = {"": 0, "K": 10, "M": 20, "G": 30, "T": 40}
_BOOLS = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}
_LOGS = ("cache", "eager")


def _wrong(setting: str, value: Any, why: str, fix: str) -> errors.FxValueError:
    return errors.FxValueError(f"{setting} cannot be {value!r}", why=why, fix=fix)


def _bool(setting: str, value: Any) -> bool:
    if not isinstance(value, (bool, np.bool_)):
        raise _wrong(setting, value, "It is on or off.", "Set it to True or False.")
    return bool(value)


def _matmul(setting: str, value: Any) -> str:
    if value not in ("own", "blas"):
        raise _wrong(setting, value, "There are two ways of multiplying matrices.", "Set it to 'own' or 'blas'.")
    return str(value)


def _directory(setting: str, value: Any) -> str:
    if not isinstance(value, (str, os.PathLike)) or not os.fspath(value):
        raise _wrong(setting, value, "It is the path of a directory.", "Set it to a string or a pathlib.Path.")
    return os.fsdecode(value)


def _bytes(setting: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 0:
        raise _wrong(setting, value, "It is a number of bytes.", "Set it to an int >= 0: 1 << 30 is 1 GiB.")
    return int(value)


def _logs(setting: str, value: Any) -> frozenset[str]:
    fix = f"Set it to some of {', '.join(map(repr, _LOGS))}: {{'cache'}}, or 'cache,eager', or () for none."
    if isinstance(value, str):
        value = filter(None, (part.strip() for part in value.split(",")))
    try:
        names = frozenset(value)
    except TypeError:
        raise _wrong(setting, value, "It is a set of names of what to report.", fix) from None
    unknown = sorted(map(repr, names.difference(_LOGS)))
    if unknown:
        raise _wrong(setting, ",".join(map(str, names)), f"Nothing is reported under the name {unknown[0]}.", fix)
    return names


def _default_cache_size() -> int:
    text = os.environ.get("FXGRAD_CACHE_SIZE", "").strip()
    number, unit = (text[:-1], text[-1].upper()) if text[-1:].isalpha() else (text, "")
    if text and (not number.isdecimal() or unit not in _UNITS):
        raise _wrong(
            "the environment variable FXGRAD_CACHE_SIZE",
            text,
            "It is a number of bytes.",
            "Set it to 1073741824, 1024M or 1G, say.",
        )
    return int(number) << _UNITS[unit] if text else 1 << 30


def _default_background() -> bool:
    text = os.environ.get("FXGRAD_BACKGROUND_COMPILE", "").strip()
    if text and text.lower() not in _BOOLS:
        raise _wrong("the environment variable FXGRAD_BACKGROUND_COMPILE", text, "It is on or off.", "Set it to 1 or 0.")
    return _BOOLS[text.lower()] if text else True


def _default_log() -> frozenset[str]:
    return _logs("the environment variable FXGRAD_LOG", os.environ.get("FXGRAD_LOG", ""))


@dataclass
class Config:
    """Settings that change how programs run, never what they compute; `matmul` alone changes roundings.

    fusion: compile chains of operations into one kernel (False: one kernel an operation).
    matmul: "own": matrix products are sums in a fixed order, with the same bits everywhere; "blas": NumPy's, which promise none.
    cache_dir: where compiled kernels are kept; from FXGRAD_CACHE_DIR, else the user's cache directory.
    cache_size: bytes they may take on disk, from FXGRAD_CACHE_SIZE (500M and 2G are understood), else 1 GiB; what was not used
        for longest goes first.
    background_compile: compile what eager evaluation runs again and again (gradients without jit, say) in a background thread,
        and run it compiled from then on; FXGRAD_BACKGROUND_COMPILE=0 turns it off.
    debug_nans: jitted functions, loops and derivatives run op by op, and a NaN in their results that was not in their arguments
        raises FxFloatingPointError, which names the operation that made it, forward or backward, and its line.
    log: what to report on stderr, from FXGRAD_LOG, comma separated: "cache" tells why jit traced again, "eager" what is compiled
        in the background.

    Example:
        >>> import fxgrad as fx
        >>> fx.config.matmul
        'own'
        >>> fx.config.fusion = 2
        Traceback (most recent call last):
            ...
        fxgrad.errors.FxValueError: fxgrad.config.fusion cannot be 2
          ...
    """

    fusion: bool = True
    matmul: str = "own"
    cache_dir: str = field(default_factory=_default_cache_dir)
    cache_size: int = field(default_factory=_default_cache_size)
    background_compile: bool = field(default_factory=_default_background)
    debug_nans: bool = False
    log: frozenset[str] = field(default_factory=_default_log)

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in self.__dataclass_fields__:
            raise AttributeError(f"fxgrad.config has no setting '{name}'; it has {', '.join(self.__dataclass_fields__)}")
        object.__setattr__(self, name, _CHECKS[name](f"fxgrad.config.{name}", value))


_CHECKS: dict[str, Callable[[str, Any], Any]] = {
    "fusion": _bool,
    "matmul": _matmul,
    "cache_dir": _directory,
    "cache_size": _bytes,
    "background_compile": _bool,
    "debug_nans": _bool,
    "log": _logs,
}


config = Config()
_jit_disabled: ContextVar[bool] = ContextVar("fxgrad_jit_disabled", default=False)


def jit_disabled() -> bool:
    return _jit_disabled.get() or config.debug_nans


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
