"""Indexing and x.at against NumPy, on random indices: plain, into a traced array, and with traced index arrays."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

import fxgrad as fx
from fxgrad.ir.types import Aval
from fxgrad.numpy import asarray
from fxgrad.numpy.at import At
from fxgrad.numpy.indexing import getitem
from fxgrad.trace.tracing import Trace

MODES = ("plain", "traced", "traced indices")


def random_slice(r: random.Random, n: int) -> slice:
    bound = lambda: r.choice([None, *range(-n - 1, n + 2)])  # noqa: E731
    return slice(bound(), bound(), r.choice([None, 1, 2, -1, -2, 3]))


def random_array(r: random.Random, n: int, shape: tuple[int, ...]) -> Any:
    flat = [r.randrange(-n, n) for _ in range(int(np.prod(shape)))]
    found = np.array(flat, r.choice([np.int64, np.int32])).reshape(shape)
    return found.tolist() if found.ndim and r.random() < 0.3 else found


def random_index(r: random.Random, shape: tuple[int, ...]) -> Any:
    """Slices, new axes, integers, index arrays that broadcast, masks, an ellipsis."""
    entries: list[Any] = []
    axis, advanced, base = 0, r.random() < 0.7, r.choice([(), (2,), (3, 1), (1, 2)])
    while axis < len(shape) and r.random() < 0.85:
        n, kind = shape[axis], r.random()
        if kind < 0.3 or (not n and kind < 0.8):
            entries.append(random_slice(r, n))
        elif kind < 0.42:
            entries.append(None)
            axis -= 1
        elif kind < 0.6:
            entries.append(r.choice([int, np.int64])(r.randrange(-n, n)) if n else slice(None))
        elif kind < 0.85 and advanced and n:
            entries.append(random_array(r, n, r.choice([base, base, (1,), ()])))
        elif kind < 0.95 and advanced and n:
            width = 2 if axis + 2 <= len(shape) and r.random() < 0.4 else 1
            if all(shape[axis : axis + width]):
                entries.append(
                    np.array([r.random() < 0.6 for _ in range(int(np.prod(shape[axis : axis + width])))]).reshape(
                        shape[axis : axis + width]
                    )
                )
                axis += width - 1
            else:
                entries.append(slice(None))
        elif advanced and r.random() < 0.3:
            entries.append(r.choice([True, False]))
            axis -= 1
        else:
            entries.append(slice(None))
        axis += 1
    if r.random() < 0.4:
        entries.insert(r.randrange(len(entries) + 1), Ellipsis)
    return entries[0] if len(entries) == 1 and r.random() < 0.5 else tuple(entries)


def with_traced_arrays(r: random.Random, index: Any) -> Any:
    def one(i: Any) -> Any:
        return asarray(np.asarray(i)) if isinstance(i, (list, np.ndarray)) and r.random() < 0.7 else i

    return tuple(map(one, index)) if isinstance(index, tuple) else one(index)


def run(mode: str, r: random.Random, x: np.ndarray, index: Any, f: Any) -> Any:
    """f(x, index) in the mode; what it raises is an answer too."""
    try:
        if mode == "plain":
            return f(x, index)
        with Trace("grad", known=True) as trace:
            return f(trace.input(Aval(x.shape, x.dtype), x), index if mode == "traced" else with_traced_arrays(r, index))._known(
                "", ""
            )
    except (IndexError, fx.UnsupportedError) as error:
        return error


@pytest.mark.parametrize("seed", range(4))
def test_random_indices(seed: int) -> None:
    r = random.Random(seed)
    for number in range(120):
        shape = tuple(r.choice([1, 2, 3, 4, 0] if r.random() < 0.1 else [1, 2, 3, 4]) for _ in range(r.randrange(1, 5)))
        x, index = np.arange(float(np.prod(shape))).reshape(shape), random_index(r, shape)
        try:
            want: Any = x[index]
        except IndexError as error:
            want = error
        for mode in MODES:
            got = run(mode, r, x, index, getitem)
            context = f"{mode} {shape} {index!r}"
            if isinstance(want, IndexError):
                assert isinstance(got, IndexError), context
            else:
                assert np.shape(got) == want.shape and np.array_equal(got, want), context
                check_writes(mode, r, x, index, want, number, context)


WRITES = {"set": None, "add": np.add, "multiply": np.multiply, "min": np.minimum}


def check_writes(mode: str, r: random.Random, x: np.ndarray, index: Any, selected: np.ndarray, seed: int, context: str) -> None:
    rng = np.random.default_rng(seed)
    for name, ufunc in WRITES.items():
        value = r.choice([7.5, rng.random(selected.shape), rng.random((1,) * selected.ndim), rng.random(selected.shape[-1:])])
        want = x.copy()
        if ufunc is None:
            want[index] = value
        else:
            ufunc.at(want, index, value)
        got = run(mode, r, x, index, lambda x, i, n=name, v=value: getattr(At(x)[i], n)(v))
        if isinstance(got, fx.UnsupportedError):
            assert mode == "traced indices"
            continue
        assert np.array_equal(got, want), f"{name} {context}"


def test_gradients_of_reads_and_writes() -> None:
    x, v = np.arange(12.0).reshape(3, 4), np.arange(8.0).reshape(2, 4)
    w = np.arange(1.0, 13.0).reshape(3, 4)
    for index in (
        1,
        slice(None, None, -2),
        ([0, 0],),
        (Ellipsis, 2),
        (slice(None), [1, -1]),
        w > 5,
        (None, [[0], [1]], slice(1, 3)),
    ):
        weight = np.random.default_rng(0).normal(size=x[index].shape)
        want = np.zeros_like(x)
        np.add.at(want, index, weight)
        np.testing.assert_allclose(fx.grad(lambda x: (x[index] * weight).sum())(x), want)
    i = np.array([2, 2])
    to_x, to_v = fx.grad(lambda x, v: (x.at[i].set(v) * w).sum(), argnums=(0, 1))(x, v)
    np.testing.assert_array_equal(to_x, np.where(np.arange(3)[:, None] == 2, 0, w))
    np.testing.assert_array_equal(to_v, [np.zeros(4), w[2]])
    to_x, to_v = fx.grad(lambda x, v: (x.at[i].add(v) * w).sum(), argnums=(0, 1))(x, v)
    np.testing.assert_array_equal(to_x, w)
    np.testing.assert_array_equal(to_v, [w[2], w[2]])


def test_under_jit() -> None:
    x = np.arange(100.0).reshape(10, 10)
    want = x.copy()
    want[:4, np.mod(want[0], 2) == 0] = 0
    np.testing.assert_array_equal(fx.jit(lambda x: x.at[:4, np.mod(x[0], 2) == 0].set(0.0))(x), want)
    np.testing.assert_array_equal(fx.jit(lambda x: x.at[x < 50].add(1))(x), np.where(x < 50, x + 1, x))
    np.testing.assert_array_equal(fx.jit(lambda x, i: x[i, 1:3])(x, np.array([1, -1])), x[[1, -1], 1:3])
    np.testing.assert_array_equal(fx.jit(lambda x, i: x[i])(x, 2), x[2])
    i, want = np.arange(3), x.copy()
    want[i, i] *= 2
    np.testing.assert_array_equal(fx.jit(lambda x, i: x.at[i, i].multiply(2, unique_indices=True))(x, i), want)
    keep = np.array([True, False, True])
    assert fx.jit(lambda x: x[keep].sum())(np.arange(3.0)) == 2
    table = np.arange(5.0)
    np.testing.assert_array_equal(fx.jit(lambda i: fx.asarray(table)[i] * 2)(np.array([1, 3])), [2, 6])
    np.testing.assert_array_equal(fx.vmap(lambda x, i: x.at[i].set(0.0))(x, np.arange(10)), x * (1 - np.eye(10)))
    np.testing.assert_array_equal(fx.vmap(lambda x, i: x[i])(x, np.arange(10)), np.diag(x))
