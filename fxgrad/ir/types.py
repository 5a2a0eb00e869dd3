"""What equations are made of: abstract values, variables, scalar literals."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, ClassVar

import numpy as np

__all__ = ["SHORT_NAMES", "Atom", "Aval", "Lit", "Var", "aval_of", "short_name"]

SHORT_NAMES = {
    "bool": "bool",
    "float16": "f16",
    "float32": "f32",
    "float64": "f64",
    "complex64": "c64",
    "complex128": "c128",
    "int8": "i8",
    "int16": "i16",
    "int32": "i32",
    "int64": "i64",
    "uint8": "u8",
    "uint16": "u16",
    "uint32": "u32",
    "uint64": "u64",
}
TAPE = np.dtype(object)  # the dtype of tapes: values of a number of turns that is not known before they are made
LONG_NAMES = {short: np.dtype(name) for name, short in SHORT_NAMES.items()}
TYPE_NAMES = {**LONG_NAMES, "tape": TAPE}  # of variables; there are no literals of tapes


@lru_cache(maxsize=256)
def short_name(dtype: np.dtype) -> str:
    """`f32` for float32, and so on; what the text form of the IR and the error messages call a dtype."""
    return SHORT_NAMES.get(dtype.name) or ("tape" if dtype == TAPE else dtype.name)


@lru_cache(maxsize=256)
def _canonical_dtype(dtype: Any) -> np.dtype:
    """In native byte order, and the one object NumPy keeps for it."""
    return np.dtype(np.dtype(dtype).name)


class Aval:
    """An abstract value: the shape and dtype of an array, and nothing else. Equal avals are the same object.

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> x = fx.Aval((2, 3), np.float32)
        >>> x, x.ndim, x.nbytes
        (f32[2,3], 2, 24)
        >>> fx.eval_shape(lambda x: x.T, x)
        f32[3,2]
    """

    __slots__ = ("dtype", "nbytes", "ndim", "shape", "size")
    shape: tuple[int, ...]
    dtype: np.dtype
    ndim: int
    size: int
    nbytes: int
    _interned: ClassVar[dict[tuple, Aval]] = {}

    def __new__(cls, shape: tuple[int, ...], dtype: Any) -> Aval:
        key = (shape, dtype)
        found = cls._interned.get(key)
        if found is not None:
            return found
        shape, dtype = tuple([int(n) for n in shape]), _canonical_dtype(dtype)
        self = cls._interned.get((shape, dtype))
        if self is None:
            self = super().__new__(cls)
            self.shape, self.dtype, self.ndim = shape, dtype, len(shape)
            self.size = 1
            for n in shape:
                self.size *= n
            self.nbytes = self.size * dtype.itemsize
            self = cls._interned.setdefault((shape, dtype), self)  # one object, also when two threads make it at once
        return self

    def with_shape(self, shape: tuple[int, ...]) -> Aval:
        return Aval(shape, self.dtype)

    def with_dtype(self, dtype: Any) -> Aval:
        return Aval(self.shape, np.dtype(dtype))

    def __reduce__(self) -> tuple:
        return Aval, (self.shape, self.dtype)

    def __repr__(self) -> str:
        return f"{short_name(self.dtype)}[{','.join(map(str, self.shape))}]"


def aval_of(x: Any) -> Aval:
    """The Aval of an array, NumPy scalar or tracer (anything with a shape and a dtype)."""
    aval = getattr(x, "aval", None)
    return aval if aval is not None else Aval(x.shape, x.dtype)


class Var:
    """One SSA value; its identity is its name."""

    __slots__ = ("aval",)

    def __init__(self, aval: Aval):
        self.aval = aval

    def __repr__(self) -> str:
        return f"Var({self.aval})"


class Lit:
    """A scalar constant inside an equation. Elementwise equations let it meet operands of any shape."""

    __slots__ = ("_key", "aval", "value")

    def __init__(self, value: np.generic):
        self.value = value
        self.aval = Aval((), value.dtype)
        self._key: tuple | None = None

    def key(self) -> tuple:
        """Equal for equal bits: tells 0.0 from -0.0; any NaN equals any NaN (also as a part of a complex number)."""
        if self._key is None:
            value = self.value
            parts = ["nan" if x != x else x.tobytes() for x in (value.real, value.imag)] if value != value else [value.tobytes()]
            self._key = (self.aval, *parts)
        return self._key

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Lit) and self.key() == other.key())

    def __hash__(self) -> int:
        return hash(self._key or self.key())

    def __repr__(self) -> str:
        return f"Lit({self.value!r})"


Atom = Var | Lit
