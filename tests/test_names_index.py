"""Indexing whole, against NumPy: every mixture of indices, plain, traced and compiled; bounds; and tracers' methods."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import fxgrad as fx
import fxgrad.numpy as fnp
from fxgrad.testing.bits import assert_same_bits
from fxgrad.trace.tracer import Tracer

rng = np.random.default_rng(2)
X = rng.normal(size=(3, 4, 5))
PARTS: list[Any] = [
    slice(None), slice(2, None, -1), slice(-3, 9, 2), None, Ellipsis, 1, -1, np.int8(2), [0, -1], np.array([[0, 2], [1, 1]]),
    np.array(1), True,
]  # fmt: skip
TRACED = [np.array([0, 2]), np.array([[2], [0]]), np.int64(1)]


def _every_index() -> list[tuple[Any, ...]]:
    """Every mixture of up to three parts, and a sample of those of four."""
    some = [c for n in (1, 2, 3) for c in itertools.product(PARTS, repeat=n)]
    four = list(itertools.product(PARTS, repeat=4))
    return some + [four[k] for k in rng.permutation(len(four))[:1500]]


def _numpys(index: Any) -> Any:
    try:
        return X[index]
    except IndexError as problem:
        return problem


def test_every_mixture_of_indices_outside_jit() -> None:
    """Where new axes land, and which mixtures are errors, as in NumPy; under jvp, whose indices are known."""
    count = 0
    for index in _every_index():
        expected = _numpys(index)
        if isinstance(expected, IndexError):
            with pytest.raises(IndexError):
                fnp.getitem(X, index)
            continue
        assert_same_bits(np.asarray(fnp.getitem(X, index)), np.asarray(expected))
        count += 1
    assert count > 1500


MASK1, MASK2 = np.array([True, False, True]), rng.uniform(size=(3, 4)) < 0.5
WITH_MASKS: list[Any] = [
    MASK1, MASK2, (MASK1, 1), (1, MASK2[1]), (slice(None), MASK2[0]), (MASK2, slice(None, None, 2)), (None, MASK2),
    (..., X[0, 0] > 0),
    (MASK1, slice(1, 3), [0, 4]), ([0, 2], MASK2[0][:4], 0), (MASK1, None, 2), X > 0, (MASK2, 1), np.zeros(3, bool),
]  # fmt: skip


@pytest.mark.parametrize("index", WITH_MASKS, ids=range(len(WITH_MASKS)))
def test_masks(index: Any) -> None:
    expected = _numpys(index)
    if isinstance(expected, IndexError):
        with pytest.raises(IndexError):
            fx.jvp(lambda x: x[index], (X,), (X,))
        return
    value, tangent = fx.jvp(lambda x: x[index], (X,), (2 * X,))
    assert_same_bits(np.asarray(value), expected)
    assert_same_bits(np.asarray(tangent), 2 * expected)
    assert_same_bits(np.asarray(fx.jit(lambda x: x[index])(X)), expected)
    wanted = np.zeros_like(X)
    np.add.at(wanted, index, 1.0)
    assert_same_bits(fx.grad(lambda x: x[index].sum())(X), wanted)


@pytest.mark.parametrize("parts", [*itertools.product(PARTS[:7], TRACED), *itertools.product(TRACED, PARTS[:7], TRACED)])
def test_traced_indices_under_jit(parts: tuple[Any, ...]) -> None:
    """Index arrays that jit does not know, between slices, new axes and integers; negative ones count from the end."""
    places = [k for k, part in enumerate(parts) if any(part is t for t in TRACED)]

    def pick(x: Any, *indices: Any) -> Any:
        full = list(parts)
        for k, i in zip(places, indices, strict=True):
            full[k] = i
        return x[tuple(full)]

    for sign in (0, 1):
        given = [parts[k] - 3 * sign for k in places]  # also as negative ones
        full = list(parts)
        for k, g in zip(places, given, strict=True):
            full[k] = g
        expected = _numpys(tuple(full))
        if isinstance(expected, IndexError):
            with pytest.raises(IndexError):
                fx.jit(pick)(X, *given)
            continue
        assert_same_bits(np.asarray(fx.jit(pick)(X, *given)), np.asarray(expected))
        both = fx.vmap(pick, in_axes=(None, *[0] * len(given)))(X, *[np.stack([g, g]) for g in given])
        assert_same_bits(np.asarray(both)[1], np.asarray(expected))
        wanted = np.zeros_like(X)
        np.add.at(wanted, tuple(full), 1.0)
        assert_same_bits(fx.jit(fx.grad(lambda x, *i: fnp.sum(pick(x, *i))))(X, *given), wanted)


def test_bounds_in_every_mode() -> None:
    table, wrong = np.arange(5.0), np.array([0, 7])
    read = lambda t, i: (t * 2.0)[i].sum()  # noqa: E731
    runs = {
        "jit": lambda i: fx.jit(read)(table, i),
        "grad": lambda i: fx.grad(read)(table, i),
        "jit of grad": lambda i: fx.jit(fx.grad(read))(table, i),
        "vmap": lambda i: fx.vmap(read, in_axes=(None, 0))(table, i[None]),
        "jit of vmap": lambda i: fx.jit(fx.vmap(read, in_axes=(0, 0)))(table[None], i[None]),
        "write": lambda i: fx.jit(lambda t, i: fnp.sum(t.at[i].add(1.0)))(table, i),
        "write under vmap": lambda i: fx.jit(fx.vmap(lambda t, i: t.at[i].set(1.0)))(table[None], i[None]),
        "take_along_axis": lambda i: fx.jit(lambda t, i: fnp.take_along_axis(t, i, 0))(table, i),
    }
    for name, run in runs.items():
        for bad in (wrong, wrong - 13):
            with pytest.raises(IndexError, match=r"index -?\d+ is out of bounds for axis \d with size 5") as caught:
                run(bad)
            assert isinstance(caught.value, fx.FxError) and "at test_names_index.py" in str(caught.value), name
        run(np.array([-5, 4]))


def test_errors_name_the_line_of_their_own_function() -> None:
    """Also where another function of the same structure was traced, derived or compiled before."""
    table, wrong = np.arange(5.0), np.array([7])
    first = lambda t, i: (t * 3.0)[i].sum()  # noqa: E731
    second = lambda t, i: (t * 3.0)[i].sum()  # noqa: E731
    ways = (
        fx.jit, fx.grad, lambda f: fx.vmap(f, (None, 0)), lambda f: fx.jit(fx.vmap(f, (None, 0))), lambda f: fx.jit(fx.grad(f)),
        lambda f: fx.grad(fx.jit(f)), lambda f: fx.grad(fx.checkpoint(f)),
    )  # fmt: skip
    for way in ways:
        for f, name in ((first, "first"), (second, "second")):
            with pytest.raises(IndexError, match=f"{name} = lambda"):
                way(f)(table, wrong)


def test_take_modes_with_traced_indices() -> None:
    i = np.array([-9, -1, 0, 4, 11])
    for mode in ("wrap", "clip"):
        got = fx.jit(lambda x, i, mode=mode: fnp.take(x, i, axis=1, mode=mode))(X, i)
        assert_same_bits(np.asarray(got), np.take(X, i, axis=1, mode=mode))


# ---- methods and attributes -----------------------------------------------------------------------------------------------

METHODS: dict[str, Any] = {
    "argpartition": lambda x: x.argpartition(2, axis=0)[2],
    "conjugate": lambda x: x.conjugate(),
    "strides": lambda x: np.array(x.strides),
    "device": lambda x: np.array(x.device == "cpu"),
    "to_device": lambda x: x.to_device("cpu"),
    "copy": lambda x: __import__("copy").copy(x),
    "deepcopy": lambda x: __import__("copy").deepcopy(x),
    "itemsize": lambda x: np.array(x.itemsize + x.nbytes + x.size),
    "contains": lambda x: np.array(x.shape[0] in (3, 4)),
    "flat": lambda x: fnp.stack(list(x.flat)),
    "take": lambda x: x.take([0, 1], axis=1),
    "choose": lambda x: (x > 0).astype(int).choose([x, -x]),
    "compress": lambda x: x.compress([True, False, True], axis=0),
    "searchsorted": lambda x: fnp.sort(x[0]).searchsorted([0.0, 1.0]),
    "trace": lambda x: x.trace(),
    "ptp": lambda x: fnp.ptp(x, axis=0),
    "swapaxes": lambda x: x.swapaxes(0, 1),
    "round": lambda x: x.round(1),
}


@pytest.mark.parametrize("name", METHODS)
def test_methods_of_tracers(name: str) -> None:
    x = rng.normal(size=(3, 4))
    expected = np.asarray(METHODS[name](x))
    assert_same_bits(np.asarray(fx.jit(lambda x: fnp.asarray(METHODS[name](x)))(x)), expected)


_REFUSED = "byteswap ctypes data dump dumps flags getfield setfield setflags tobytes tofile view base"
REFUSED = _REFUSED.split()


@pytest.mark.parametrize("name", REFUSED)
def test_attributes_that_need_memory_say_so(name: str) -> None:
    def f(x: Any) -> Any:
        return getattr(x, name)

    for transform in (fx.jit, fx.grad, fx.vmap):
        with pytest.raises(fx.UnsupportedError, match=f"{name} of a traced") as caught:
            transform(f)(np.ones(3))
        assert "at test_names_index.py" in str(caught.value) and "getattr(x, name)" in str(caught.value)


def test_every_attribute_of_arrays_is_there_or_refused() -> None:
    left_out = {
        f"__{n}__" for n in ("array_interface", "array_struct", "array_finalize", "array_wrap", "class_getitem", "setstate")
    }
    left_out |= {"__dlpack__", "__dlpack_device__", "__delitem__"}
    in_place = {"put", "resize", "partition"}
    missing = [n for n in dir(np.ndarray) if n not in dir(Tracer) and n not in left_out | in_place | set(REFUSED)]
    assert not missing
    fx.jit(lambda x: x if not hasattr(x, "data") else 1 / 0)(np.ones(2))


def test_known_values_are_found_in_tracers() -> None:
    assert fx.grad(lambda x: x[0] if 2.0 in x else x[1])(np.array([1.0, 2.0])).tolist() == [1.0, 0.0]
