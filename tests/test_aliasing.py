"""Results share memory with operands exactly where NumPy's do: every function of the namespace, plain and traced."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fxgrad as fx
import fxgrad.numpy as fnp
from fxgrad.trace.tracer import Tracer

matrix, vector = np.arange(12.0).reshape(3, 4), np.arange(4.0)
ARRAYS = {
    "matrix": matrix,
    "vector": vector,
    "square": np.eye(3) + 1,
    "integers": np.arange(6).reshape(2, 3),
    "strided": matrix[:, ::2],
    "transposed": matrix.T,
}
EXTRAS: list[tuple[Any, ...]] = [
    (), (1,), (0,), ((0, 1),), (0, 1), (None,), (1, 0), (None, None), (2,), ((3, 4),), ((4, 3),), (None, 0), ([0],), (0, 0),
    (-5.0, 50.0),
]  # fmt: skip
# Views that nobody writes (ix_), tested below (einsum), and what NumPy makes read-only although it could be written (the rest).
NOT_AS_IN_NUMPY = {"ix_", "imag", "broadcast_to", "broadcast_arrays", "einsum"}
FUNCTIONS = [
    name
    for name in sorted(fnp.__all__)
    if callable(getattr(np, name, None)) and not isinstance(getattr(fnp, name), type) and name not in NOT_AS_IN_NUMPY
]


def first(out: Any) -> Any:
    return out[0] if isinstance(out, (tuple, list)) and len(out) else out


def answer(f: Any, a: Any, extra: tuple[Any, ...]) -> Any:
    """What f says, or None if it does not take these arguments."""
    try:
        return first(f(a, *extra))
    except (TypeError, ValueError, IndexError, AttributeError, ZeroDivisionError, np.linalg.LinAlgError, np.exceptions.AxisError):
        return None


def laid_out_as(a: np.ndarray, x: Any) -> Any:
    """The values of x in a traced array that lies in memory as a does."""
    if a.flags.c_contiguous:
        return x * 1
    return (x.T * 1).T if a.strides[0] < a.strides[1] else (fnp.repeat(x, 2, axis=1) * 1)[:, ::2]


@pytest.mark.filterwarnings("ignore::RuntimeWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize("name", FUNCTIONS)
def test_memory_is_shared_as_in_numpy(name: str) -> None:
    for a in ARRAYS.values():
        for extra in EXTRAS:
            with np.errstate(all="ignore"):
                want = answer(getattr(np, name), a, extra)
            if not isinstance(want, np.ndarray) or not want.size or want.dtype.kind not in "biuf":
                continue
            shared = np.shares_memory(want, a)
            context = f"np.{name}({a.tolist()}, {extra})"
            got = answer(getattr(fnp, name), a, extra)
            if isinstance(got, np.ndarray) and got.shape == want.shape:
                assert np.shares_memory(got, a) == shared, context
                assert got.flags.writeable == want.flags.writeable, context
            check_traced(name, a, extra, shared, want, context)


def check_traced(name: str, a: np.ndarray, extra: tuple[Any, ...], shared: bool, want: np.ndarray, context: str) -> None:
    seen: list[tuple[bool, bool]] = []

    def f(x: Any) -> Any:
        y = laid_out_as(a, x)
        out = answer(getattr(fnp, name), y, extra)
        if type(out) is Tracer and out.shape == want.shape and out.shape:
            shares = out is y or np.shares_memory(out, y)
            try:
                out[...] = 101
                seen.append((shares, True))
            except fx.MutationError:
                seen.append((shares, False))
        return y

    after = fx.checkpoint(f)(a)
    if seen:
        shares, written = seen[0]
        assert shares == shared and written == want.flags.writeable, context
        assert np.array_equal(after, a) != (shared and written), context


def test_einsum_that_only_rearranges() -> None:
    for subscripts, is_view in (("ij->ji", True), ("ji", True), ("...i->i...", True), ("ij->i", False), ("ij,j->i", False)):

        def f(x: Any, subscripts: str = subscripts, is_view: bool = is_view) -> Any:
            y = x * 1
            out = fnp.einsum(subscripts, y, *([vector] if "," in subscripts else []))
            assert np.shares_memory(out, y) == is_view
            out[...] = 5.0
            return y

        np.testing.assert_array_equal(fx.jit(f)(matrix), np.full((3, 4), 5.0) if is_view else matrix)
    with pytest.raises(fx.MutationError, match="read-only"):
        fx.jit(lambda x: fnp.einsum("ii->i", x * 1).fill(0.0))(np.eye(3))
