"""Names, constants, inspection, the array object; errors that the standard asks for."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import fxgrad as fx
import fxgrad.numpy as xp
from fxgrad.trace.tracer import Tracer
from tests.array_api import calls
from tests.four_parts import assert_four_parts, raised

METHODS = """abs add and array_namespace bool complex dlpack dlpack_device eq float floordiv ge getitem gt index int invert le
lshift lt matmul mod mul ne neg or pos pow rshift setitem sub truediv xor"""
REFLECTED = "add and floordiv lshift matmul mod mul or pow rshift sub truediv xor"
DTYPES = "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float32 float64 complex64 complex128"


def test_names() -> None:
    spaces = {"": xp, "linalg": xp.linalg, "fft": xp.fft}
    names = [*calls.UNARY, *calls.BINARY, *calls.SIGNATURES, "broadcast_arrays", "meshgrid", "finfo", "iinfo", "result_type"]
    names += [f"{space}.{name}" if space else name for space, name, _, _ in calls.CALLS]
    for name in names:
        space, _, last = name.rpartition(".")
        assert callable(getattr(spaces[space], last)), name
    assert (xp.pi, xp.e, xp.inf, xp.newaxis) == (math.pi, math.e, math.inf, None) and math.isnan(xp.nan)
    assert xp.__array_api_version__ == "2024.12"
    assert all(np.dtype(getattr(xp, d)).name == d for d in DTYPES.split())


def test_inspection() -> None:
    info = xp.__array_namespace_info__()
    assert info.capabilities() == {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 64}
    assert info.default_device() == "cpu" and info.devices() == ["cpu"]
    oracle = np.__array_namespace_info__()
    assert info.default_dtypes(device="cpu") == oracle.default_dtypes()
    assert list(info.dtypes()) == DTYPES.split() and info.dtypes() == oracle.dtypes()
    for kind in ("bool", "signed integer", "unsigned integer", "integral", "real floating", "complex floating", "numeric"):
        assert info.dtypes(kind=kind) == oracle.dtypes(kind=kind)
    assert list(info.dtypes(kind=("bool", "real floating"))) == ["bool", "float32", "float64"]
    assert xp.finfo(np.complex64).bits == 32 and xp.iinfo(np.int16).max == 32767


def test_the_array_object() -> None:
    names = [f"__{m}__" for m in METHODS.split()] + [f"__{r}{m}__" for r in "ri" for m in REFLECTED.split()]
    names += ["T", "mT", "device", "dtype", "ndim", "shape", "size", "to_device"]
    assert all(hasattr(Tracer, name) for name in names)

    def look(x: Any) -> Any:
        assert x.__array_namespace__(api_version="2024.12") is xp
        assert (x.dtype, x.ndim, x.shape, x.size, x.device) == (np.dtype("f8"), 3, (2, 3, 4), 24, "cpu")
        assert x.__dlpack_device__() == (1, 0) and x.to_device("cpu").shape == x.shape
        return x.mT, x[0].T, x[..., None, 0], x[:, ::-1], x[1, 2, 3]

    mt, t, new, back, one = fx.jit(look)(calls.x)
    assert mt.shape == (2, 4, 3) and t.shape == (4, 3) and new.shape == (2, 3, 1) and (back[:, 0] == calls.x[:, 2]).all()
    assert one == calls.x[1, 2, 3]
    fx.vjp(lambda z: (complex(fx.stop_gradient(z)), z)[1], 1 + 2j)


def test_operators() -> None:
    x, n, b = calls.x[0], calls.n, calls.b

    def everything(x: Any, n: Any, b: Any) -> Any:
        return [
            abs(x), x + 2, 2 - x, x * x, 1 / x, x // 0.25, x % 0.25, x**2, 2**x, -x, +x, x @ x.T, x < 0.5, x <= 0.5, x == x,
            x != x, x >= 0.5, x > 0.5, n & 3, 3 | n, n ^ 1, ~n, n << 2, n >> 1, ~b, b & b, b | b, b ^ b, divmod(n, 2)[0],
            7 // n, 7 % n,
        ]  # fmt: skip

    for got, want in zip(fx.jit(everything)(x, n, b), everything(x, n, b), strict=True):
        assert got.dtype == want.dtype
        np.testing.assert_allclose(got, want, rtol=1e-15)


def test_from_dlpack() -> None:
    x = calls.x
    y = xp.from_dlpack(x)
    assert np.shares_memory(x, y) and not np.shares_memory(x, xp.from_dlpack(x, copy=True))
    assert fx.jit(lambda: xp.from_dlpack(x, device="cpu") * 2)().shape == x.shape


@pytest.mark.parametrize(
    "f, kind, what, why, fix",
    [
        (lambda x: x.__dlpack__(), fx.ConcretizationError, "to another library", "does not exist yet", "outside"),
        (lambda x: x.to_device("gpu"), ValueError, "no device 'gpu'", "on the CPU", "device="),
    ],
)
def test_errors_of_the_array_object(f: Any, kind: type[Exception], what: str, why: str, fix: str) -> None:
    assert_four_parts(raised(lambda: fx.jit(f)(calls.x), kind), what=what, line="lambda x: x.", why=why, fix=fix)


@pytest.mark.parametrize(
    "f, what, why, fix",
    [
        (lambda: xp.__array_namespace_info__().dtypes(kind="real"), "no kind 'real'", "standard", "real floating"),
        (lambda: xp.__array_namespace_info__().dtypes(device="gpu"), "no device 'gpu'", "on the CPU", "device="),
        (lambda: xp.from_dlpack(np.ones(2), device="gpu"), "no device 'gpu'", "on the CPU", "device="),
    ],
)
def test_errors_of_the_namespace(f: Any, what: str, why: str, fix: str) -> None:
    assert_four_parts(raised(f, fx.errors.FxValueError), what=what, line="lambda: xp.", why=why, fix=fix)


def test_errors_the_standard_asks_for() -> None:
    x = calls.x
    for f in (
        lambda x: xp.reshape(x, (5, 5)), lambda x: xp.concat([x, x[0]]), lambda x: xp.broadcast_to(x, (3, 3)),
        lambda x: xp.matmul(x, x), lambda x: xp.squeeze(x, 0), lambda x: xp.stack([x, x[0]]), lambda x: x + xp.ones(7),
    ):  # fmt: skip
        for g in (f, fx.jit(f)):
            with pytest.raises((ValueError, TypeError)):
                g(x)
    for f in (lambda x: xp.sum(x, axis=3), lambda x: xp.expand_dims(x, axis=7), lambda x: xp.flip(x, axis=-4)):
        with pytest.raises((np.exceptions.AxisError, ValueError, IndexError)):
            fx.jit(f)(x)
    with pytest.raises(IndexError):
        fx.jit(lambda x: x[0, 0, 0, 0])(x)
    for name in ("bitwise_and", "atan2", "less_equal"):
        with pytest.raises(TypeError):
            fx.jit(lambda x, name=name: getattr(xp, name)(x, x))(np.ones(2) if name == "bitwise_and" else np.array(["a"]))
    with pytest.raises(ValueError, match="zero-size"):
        xp.max(x[:0])
