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
    """Where the innermost frame outside this package and NumPy stands.

    Example:
        >>> from fxgrad.errors import user_location
        >>> code, offset = user_location()
        >>> code.co_name
        '<module>'
    """
    frame = frame or sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        internal = _internal.get(code)
        if not (is_internal(code) if internal is None else internal):
            return code, frame.f_lasti
        frame = frame.f_back
    return None


_WRITERS = {"__setitem__", "fill", "fill_diagonal", "put"}  # calls by which a plain array asks for numbers to keep


def at_item_assignment() -> bool:
    """Whether the user's code is executing `a[i] = v`, or a call that does the same."""
    location = user_location()
    if location is None or location[1] < 0:
        return False
    from dis import get_instructions

    code, offset = location
    line, called = line_of(code, offset), set[str]()
    for instruction in get_instructions(code):
        if instruction.offset == offset:
            return instruction.opname == "STORE_SUBSCR" or bool(called & _WRITERS)
        if instruction.opname in ("LOAD_ATTR", "LOAD_METHOD") and line_of(code, instruction.offset) == line:
            called.add(instruction.argval)
    return False


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
    """Base of all errors raised by fxgrad.

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> try:
        ...     fx.grad(lambda n: n)(3)
        ... except fx.FxError as error:
        ...     print(type(error).__name__, isinstance(error, TypeError))
        NonDifferentiableError True
    """

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
    """A value of the wrong type or dtype.

    Example:
        >>> import fxgrad as fx
        >>> fx.jit("sin")
        Traceback (most recent call last):
            ...
        fxgrad.errors.FxTypeError: jit takes a function, got str
          ...
    """


def not_picklable(what: str, fix: str) -> FxTypeError:
    """The error for what means something in this process only."""
    return FxTypeError(f"cannot pickle {what}", why="It holds memory and machine code of this process.", fix=fix)


class FxValueError(FxError, ValueError):
    """A wrong shape, axis, or setting.

    Example:
        >>> import fxgrad as fx
        >>> fx.numpy.add([1.0, 2.0], [1.0, 2.0, 3.0])
        Traceback (most recent call last):
            ...
        fxgrad.errors.FxValueError: operands of shapes (2,) and (3,) cannot be broadcast together
          ...
    """


class FxFloatingPointError(FxError, FloatingPointError):
    """A NaN was made while `fx.config.debug_nans` is on.

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> fx.config.debug_nans = True
        >>> fx.jit(lambda x: np.sqrt(x) + 1.0)(-1.0)
        Traceback (most recent call last):
            ...
        fxgrad.errors.FxFloatingPointError: 'sqrt' of f64[] made a NaN in '<lambda>'
          ...
        >>> fx.config.debug_nans = False
    """


class FxOverflowError(FxError, OverflowError):
    """A Python int that no dtype of NumPy holds.

    Example:
        >>> import fxgrad as fx
        >>> fx.numpy.sum(1 << 70)
        Traceback (most recent call last):
            ...
        fxgrad.errors.FxOverflowError: expected an array or a number, got an int: 1180591620717411303424
          ...
    """


def too_large(what: str, value: int) -> FxOverflowError:
    """The error for a Python int beyond 64 bits; `what` names the operand."""
    text = str(value) if abs(value) < 1 << 80 else f"about 2**{value.bit_length() - 1}"
    return FxOverflowError(
        f"{what}: {text}",
        why="A Python int becomes an int64, which holds -2**63 to 2**63 - 1.",
        fix="Pass float(n), or np.uint64(n) if that holds it.",
    )


class FxIndexError(FxError, IndexError):
    """An index out of bounds.

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> fx.grad(lambda x: x[3])(np.ones(2))
        Traceback (most recent call last):
            ...
        fxgrad.errors.FxIndexError: index 3 is out of bounds for axis 0 with size 2
          ...
    """


class FxLinAlgError(FxValueError, np.linalg.LinAlgError):
    """A matrix that a decomposition or a solver cannot take: not square, singular, not positive definite.

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> fx.numpy.linalg.inv(np.zeros((2, 2)))
        Traceback (most recent call last):
            ...
        fxgrad.errors.FxLinAlgError: Singular matrix
          ...
    """


class ConcretizationError(FxTypeError):
    """Python asked for the value of something of which only shape and dtype are known.

    Example:
        >>> import fxgrad as fx
        >>> fx.jit(lambda x: x if x > 0 else -x)(1.0)
        Traceback (most recent call last):
            ...
        fxgrad.errors.ConcretizationError: cannot use a traced bool[] as a Python bool
          ...
    """


class NonDifferentiableError(FxTypeError):
    """A derivative was asked for where there is none, or where it would have been cut silently.

    Example:
        >>> import fxgrad as fx
        >>> fx.grad(lambda n: 2.0 * n)(3)
        Traceback (most recent call last):
            ...
        fxgrad.errors.NonDifferentiableError: grad needs floating-point inputs, but argument 'n' has dtype int64
          ...
    """


class UnsupportedError(FxTypeError):
    """NumPy or Python offers it, fxgrad does not (yet).

    Example:
        >>> import fxgrad as fx
        >>> fx.scipy.special.factorial(5, exact=True)
        Traceback (most recent call last):
            ...
        fxgrad.errors.UnsupportedError: factorial(..., exact=True) is not supported
          ...
    """


class LeakedTracerError(FxError, RuntimeError):
    """A traced value was used after its transform had ended.

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> kept = []
        >>> fx.jit(lambda x: kept.append(x) or x)(1.0)
        np.float64(1.0)
        >>> kept[0] + 1.0
        Traceback (most recent call last):
            ...
        fxgrad.errors.LeakedTracerError: a traced f64[] escaped from jit of '<lambda>'
          ...
    """


class StaleValueError(FxError, RuntimeError):
    """A value kept for the backward pass was changed in place before it was used.

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> x = np.ones(2)
        >>> y, pullback = fx.vjp(lambda x: x * x, x)
        >>> x[:] = 3.0
        >>> pullback(np.ones(2))
        Traceback (most recent call last):
            ...
        fxgrad.errors.StaleValueError: argument 'x' of shape (2,) was changed in place before vjp's pullback used it
          ...
    """


class MutationError(FxValueError):
    """An in-place change that fxgrad cannot follow.

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> def f(x):
        ...     x[0] = 0.0
        ...     return x
        >>> fx.jit(f)(np.ones(2))
        Traceback (most recent call last):
            ...
        fxgrad.errors.MutationError: cannot change a traced f64[2] in place ...
          ...
    """


class TreeMismatchError(FxValueError):
    """Two pytrees that should have the same structure do not.

    Example:
        >>> import fxgrad as fx
        >>> fx.tree.map(lambda x, y: x + y, (1.0, 2.0), (1.0,))
        Traceback (most recent call last):
            ...
        fxgrad.errors.TreeMismatchError: the trees given to map differ in structure at the root: ...
          ...
    """


class FileFormatError(FxValueError):
    """A file that is not what it should be: foreign, cut short, or changed.

    Example:
        >>> import os, fxgrad as fx
        >>> fx.io.load(os.devnull)
        Traceback (most recent call last):
            ...
        fxgrad.errors.FileFormatError: cannot load /dev/null: it ends after 0 bytes
          ...
    """


class FileWriteError(FxError, OSError):
    """A file could not be written; `errno` says why, as in any OSError.

    Example:
        >>> import fxgrad as fx
        >>> fx.io.save("/nowhere/params.safetensors", {})
        Traceback (most recent call last):
            ...
        fxgrad.errors.FileWriteError: cannot save /nowhere/params.safetensors: No such file or directory
          ...
    """


class MissingPackageError(FxError, ImportError):
    """An optional package that something needs is not installed.

    Example:
        >>> import fxgrad as fx
        >>> issubclass(fx.errors.MissingPackageError, ImportError)
        True
    """
