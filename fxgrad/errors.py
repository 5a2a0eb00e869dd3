"""The errors users meet. Each says four things: what failed, where in the user's file, why, and what to write instead."""

from __future__ import annotations

import os
import sys
from types import CodeType, FrameType

import numpy as np

__all__ = [
    "ConcretizationError",
    "FileFormatError",
    "FileWriteError",
    "FxError",
    "FxFloatingPointError",
    "FxIndexError",
    "FxLinAlgError",
    "FxOverflowError",
    "FxTypeError",
    "FxValueError",
    "LeakedTracerError",
    "MissingPackageError",
    "MutationError",
    "NonDifferentiableError",
    "StaleValueError",
    "TreeMismatchError",
    "UnsupportedError",
    "user_location",
]

_PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep
_NUMPY = os.path.dirname(os.path.abspath(np.__file__)) + os.sep
_SCIPY = os.path.join(os.path.dirname(os.path.dirname(_NUMPY)), "scipy") + os.sep
_internal: dict[CodeType, bool] = {}

Location = tuple[CodeType, int]  # code and the offset of an instruction in it: its line is looked up when a message needs it


def is_internal(code: CodeType) -> bool:
    """Code of this package (what it generates too), NumPy or SciPy, which errors do not point at."""
    found = _internal.get(code)
    if found is None:
        path = code.co_filename
        found = _internal[code] = path.startswith((_PACKAGE, _NUMPY, _SCIPY, "<fxgrad ", "<__array_function__", "<frozen"))
    return found


def user_location(frame: FrameType | None = None) -> Location | None:
    """Where the innermost frame outside this package and NumPy stands."""
    frame = frame or sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        internal = _internal.get(code)
        if not (is_internal(code) if internal is None else internal):
            return code, frame.f_lasti
        frame = frame.f_back
    return None


def at_item_assignment() -> bool:
    """Whether the user's code is executing `a[i] = v` (and not a call)."""
    location = user_location()
    if location is None:
        return False
    from opcode import opname

    code, offset = location
    return offset >= 0 and opname[code.co_code[offset]] == "STORE_SUBSCR"


def line_of(code: CodeType, offset: int) -> int:
    """The line of a location."""
    for start, end, line in code.co_lines():
        if start <= offset < end and line is not None:
            return line
    return code.co_firstlineno


def format_location(location: Location | None) -> str | None:
    """A location as messages show it: `model.py:31   if loss > 0.1:`."""
    if location is None:
        return None
    import linecache

    code, offset = location
    line = line_of(code, offset)
    text = linecache.getline(code.co_filename, line).strip()
    return f"{os.path.basename(code.co_filename)}:{line}" + (f"   {text}" if text else "")


class FxError(Exception):
    """Base of all errors raised by fxgrad."""

    def __init__(self, what: str, *, why: str = "", fix: str = "", where: Location | None = None):
        self._parts = what, why, fix
        location = format_location(where if where is not None else user_location())
        super().__init__("\n  ".join(part for part in (what, location and f"at {location}", why, fix) if part))

    def at(self, where: Location) -> FxError:
        """The same error, said to come from another place."""
        what, why, fix = self._parts
        return type(self)(what, why=why, fix=fix, where=where)

    def __reduce__(self) -> tuple:
        return _rebuild, (type(self), self.args)


def _rebuild(kind: type[FxError], args: tuple) -> FxError:
    self = kind.__new__(kind)
    Exception.__init__(self, *args)
    return self


class FxTypeError(FxError, TypeError):
    """A value of the wrong type or dtype."""


def not_picklable(what: str, fix: str) -> FxTypeError:
    """The error for what means something in this process only."""
    return FxTypeError(f"cannot pickle {what}", why="It holds memory and machine code of this process.", fix=fix)


class FxValueError(FxError, ValueError):
    """A wrong shape, axis, or setting."""


class FxFloatingPointError(FxError, FloatingPointError):
    """A NaN was made while `fx.config.debug_nans` is on."""


class FxOverflowError(FxError, OverflowError):
    """A Python int that no dtype of NumPy holds."""


def too_large(what: str, value: int) -> FxOverflowError:
    """The error for a Python int beyond 64 bits; `what` names the operand."""
    text = str(value) if abs(value) < 1 << 80 else f"about 2**{value.bit_length() - 1}"
    return FxOverflowError(
        f"{what}: {text}",
        why="A Python int becomes an int64, which holds -2**63 to 2**63 - 1.",
        fix="Pass float(n), or np.uint64(n) if that holds it.",
    )


class FxIndexError(FxError, IndexError):
    """An index out of bounds."""


class FxLinAlgError(FxValueError, np.linalg.LinAlgError):
    """A matrix that a decomposition or a solver cannot take: not square, singular, not positive definite."""


class ConcretizationError(FxTypeError):
    """Python asked for the value of something of which only shape and dtype are known."""


class NonDifferentiableError(FxTypeError):
    """A derivative was asked for where there is none, or where it would have been cut silently."""


class UnsupportedError(FxTypeError):
    """NumPy or Python offers it, fxgrad does not (yet)."""


class LeakedTracerError(FxError, RuntimeError):
    """A traced value was used after its transform had ended."""


class StaleValueError(FxError, RuntimeError):
    """A value kept for the backward pass was changed in place before it was used."""


class MutationError(FxValueError):
    """An in-place change that fxgrad cannot follow."""


class TreeMismatchError(FxValueError):
    """Two pytrees that should have the same structure do not."""


class FileFormatError(FxValueError):
    """A file that is not what it should be: foreign, cut short, or changed."""


class FileWriteError(FxError, OSError):
    """A file could not be written; `errno` says why, as in any OSError."""


class MissingPackageError(FxError, ImportError):
    """An optional package that something needs is not installed."""
