"""NumPy's functions, differentiable and compiled: `import fxgrad.numpy as np`.

Arrays in and out are `numpy.ndarray`; inside a transform the same functions take and give traced values.
"""

from __future__ import annotations

from types import ModuleType as _ModuleType
from typing import Any

import numpy as _numpy
from numpy import (  # noqa: F401
    False_,
    ScalarType,
    True_,
    base_repr,
    binary_repr,
    bool_,
    byte,
    cdouble,
    complex64,
    complex128,
    complexfloating,
    csingle,
    dtype,
    e,
    errstate,
    euler_gamma,
    exceptions,
    finfo,
    float16,
    float32,
    float64,
    floating,
    format_float_positional,
    format_float_scientific,
    generic,
    get_printoptions,
    geterr,
    iinfo,
    index_exp,
    inexact,
    inf,
    int8,
    int16,
    int32,
    int64,
    intc,
    integer,
    intp,
    isdtype,
    isscalar,
    issubdtype,
    little_endian,
    long,
    longlong,
    mintypecode,
    nan,
    ndarray,
    ndindex,
    newaxis,
    number,
    pi,
    printoptions,
    promote_types,
    s_,
    sctypeDict,
    set_printoptions,
    seterr,
    short,
    signedinteger,
    typecodes,
    typename,
    ubyte,
    uint8,
    uint16,
    uint32,
    uint64,
    uintc,
    uintp,
    ulong,
    ulonglong,
    unsignedinteger,
    ushort,
)

from fxgrad.numpy import aliasing as _aliasing
from fxgrad.numpy import elementwise as _elementwise
from fxgrad.numpy import fft as fft
from fxgrad.numpy import linalg as linalg
from fxgrad.numpy.array_api import __array_namespace_info__, from_dlpack  # noqa: F401
from fxgrad.numpy.bits import *  # noqa: F403
from fxgrad.numpy.contraction import *  # noqa: F403
from fxgrad.numpy.core import result_type, tensor  # noqa: F401
from fxgrad.numpy.creation import *  # noqa: F403
from fxgrad.numpy.elementwise import around, clip, divmod, nan_to_num, round, where  # noqa: F401
from fxgrad.numpy.examples import document as _document
from fxgrad.numpy.functional import *  # noqa: F403
from fxgrad.numpy.histograms import *  # noqa: F403
from fxgrad.numpy.indexing import getitem  # noqa: F401
from fxgrad.numpy.inplace import *  # noqa: F403
from fxgrad.numpy.linalg import cross, dot, inner, kron, matmul, matvec, outer, tensordot, vdot, vecdot, vecmat  # noqa: F401
from fxgrad.numpy.manipulation import *  # noqa: F403
from fxgrad.numpy.numeric import *  # noqa: F403
from fxgrad.numpy.plain import *  # noqa: F403
from fxgrad.numpy.polynomials import *  # noqa: F403
from fxgrad.numpy.positions import *  # noqa: F403
from fxgrad.numpy.quantiles import *  # noqa: F403
from fxgrad.numpy.reductions import *  # noqa: F403
from fxgrad.numpy.repetition import *  # noqa: F403
from fxgrad.numpy.selection import *  # noqa: F403
from fxgrad.numpy.sets import *  # noqa: F403
from fxgrad.numpy.sorting import *  # noqa: F403
from fxgrad.numpy.windows import *  # noqa: F403

globals().update(_elementwise.UFUNCS)
bool = _numpy.bool
double = float64
single, half, int_, uint = float32, float16, _numpy.int_, _numpy.uint
broadcast_shapes = _numpy.broadcast_shapes
__array_api_version__ = "2024.12"


def shape(a: Any) -> tuple[int, ...]:
    """The shape, as numpy.shape."""
    return tensor(a).shape


def ndim(a: Any) -> int:
    """The number of axes, as numpy.ndim."""
    return tensor(a).ndim


def size(a: Any, axis: int | None = None) -> int:
    """The number of elements, or the length of an axis, as numpy.size."""
    x = tensor(a)
    return x.size if axis is None else x.shape[axis]


def iscomplexobj(x: Any) -> Any:
    """Whether the dtype is complex, as numpy.iscomplexobj."""
    return tensor(x).dtype.kind == "c"


def isrealobj(x: Any) -> Any:
    """Whether the dtype is not complex, as numpy.isrealobj."""
    return not iscomplexobj(x)


_aliasing.with_numpy_memory(globals())
for _prefix, _names in (("", globals()), ("linalg.", vars(linalg)), ("fft.", vars(fft))):
    _document(_prefix, _names)
_internal = ("Any", "annotations", "getitem", "tensor")
__all__ = [
    _name
    for _name, _value in globals().items()
    if not _name.startswith("_")
    and _name not in _internal
    and (not isinstance(_value, _ModuleType) or _name in ("linalg", "fft"))
]


def __getattr__(name: str) -> Any:
    from fxgrad.numpy.missing import missing

    raise missing("fxgrad.numpy", "np", name, _numpy, globals())


def __dir__() -> list[str]:
    return __all__
