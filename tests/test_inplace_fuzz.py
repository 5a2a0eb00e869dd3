"""Random programs of views and writes: the bits of NumPy in a known trace and under jit, and gradients that agree with jvp."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import fxgrad as fx
import fxgrad.numpy as fnp
from fxgrad.testing.bits import assert_same_bits
from tests.test_random_programs import EXAMPLES

F = Callable[..., Any]
Op = Callable[[Any, list[Any], Any], None]  # (namespace, arrays, x): changes one of the arrays, or adds one


def random_basic(r: random.Random, shape: tuple[int, ...]) -> Any:
    """An index of ints, slices, None and an ellipsis."""
    entries: list[Any] = []
    for n in shape:
        kind = r.random()
        bound = lambda n=n: r.choice([None, *range(-n - 1, n + 2)])  # noqa: E731
        if kind < 0.3 and n:
            entries.append(r.randrange(-n, n))
        elif kind < 0.75:
            entries.append(slice(bound(), bound(), r.choice([None, 1, 2, -1, -2])))
        else:
            entries.append(slice(None))
        if r.random() < 0.1:
            entries.append(None)
    if r.random() < 0.4:
        entries = entries[: r.randrange(len(entries) + 1)]
    if r.random() < 0.3:
        entries.append(Ellipsis)
    return tuple(entries)


def random_shape(r: random.Random, size: int) -> tuple[int, ...]:
    factors = []
    while size > 1 and r.random() < 0.7:
        n = r.choice([d for d in range(1, size + 1) if size % d == 0])
        factors.append(n)
        size //= n
    return (*factors, size) if size != 1 or r.random() < 0.3 else tuple(factors)


def view_op(r: random.Random, a: Any) -> F:
    """A function (namespace, array) that NumPy answers with a view, or with a copy where it cannot."""
    kind = r.choice(
        ["index", "index", "index", "T", "reshape", "ravel", "flip", "new", "split", "row", "copy", "moved", "squeeze"]
    )
    if kind == "index":
        i = random_basic(r, a.shape)
        return lambda np, a: a[i]
    if kind == "reshape" and a.size:
        shape = random_shape(r, a.size)
        return lambda np, a: a.reshape(shape)
    if kind == "new":
        axis = r.randrange(a.ndim + 1)
        return lambda np, a: np.expand_dims(a, axis)
    if kind == "flip":
        return lambda np, a: np.flip(a)
    if kind == "split" and a.ndim and a.shape[0] > 1:
        at = r.randrange(1, a.shape[0])
        return lambda np, a: np.split(a, [at])[1]
    if kind == "row" and a.ndim > 1 and a.shape[0]:
        k = r.randrange(a.shape[0])
        return lambda np, a: list(a)[k]
    if kind == "moved" and a.ndim > 1:
        axes = r.sample(range(a.ndim), 2)
        return lambda np, a: np.swapaxes(a, *axes)
    simple: dict[str, F] = {
        "T": lambda np, a: a.T,
        "ravel": lambda np, a: a.ravel(),
        "copy": lambda np, a: a.copy(),
        "squeeze": lambda np, a: np.squeeze(a),
    }
    return simple.get(kind, simple["T"])


def value_op(r: random.Random, shape: tuple[int, ...], arrays: list[Any]) -> F:
    """A function (arrays, x) that gives something to write to a place of this shape."""
    k, c = r.randrange(4), r.choice([0.5, -1.0, 0.25, 2.0])
    same = [j for j, a in enumerate(arrays) if a.shape == shape]
    kind = r.random()
    if same and kind < 0.5:
        j = r.choice(same)
        return (lambda arrays, x: arrays[j]) if kind < 0.2 else (lambda arrays, x: arrays[j] * c + x[k])
    if kind < 0.7:
        return lambda arrays, x: x[k] * c
    if kind < 0.8:
        return lambda arrays, x: c
    table = np.arange(float(np.prod(shape))).reshape(shape) / 8 - 1
    return lambda arrays, x: table * x[k]


def whole_op(kind: str, number: int, v: F) -> Op:
    """A write to all of an array."""
    if kind == "copyto":
        return lambda np, arrays, x: np.copyto(arrays[number], v(arrays, x))
    if kind == "fill":
        return lambda np, arrays, x: arrays[number].fill(x[1])
    if kind == "out":
        return lambda np, arrays, x: np.multiply(v(arrays, x), 0.5, out=arrays[number])

    def whole(np: Any, arrays: list[Any], x: Any) -> None:
        if kind == "whole add":
            arrays[number] += v(arrays, x)
        else:
            arrays[number] *= v(arrays, x)

    return whole


def write_op(r: random.Random, number: int, arrays: list[Any]) -> Op | None:
    a = arrays[number]
    if not isinstance(a, np.ndarray):  # a scalar
        return None
    kind = r.choice(
        ["set", "set", "add", "sub", "mul", "whole add", "whole mul", "array", "mask", "add.at", "copyto", "fill", "out"]
    )
    index = random_basic(r, a.shape)
    if kind == "array" and a.ndim and a.shape[0]:
        index = [r.randrange(-a.shape[0], a.shape[0]) for _ in range(r.randrange(1, 4))]
    elif kind == "mask":
        index = np.array([r.random() < 0.5 for _ in range(a.size)], bool).reshape(a.shape)
    elif kind == "add.at" and a.ndim and a.shape[0]:
        places, v = [r.randrange(a.shape[0]) for _ in range(3)], value_op(r, a.shape[1:], [])
        return lambda np, arrays, x: np.add.at(arrays[number], places, v(arrays, x))
    elif kind in ("whole add", "whole mul", "copyto", "fill", "out"):
        return whole_op(kind, number, value_op(r, a.shape, arrays))
    v = value_op(r, np.shape(a[index]), arrays if kind != "mask" else [])

    def write(np: Any, arrays: list[Any], x: Any) -> None:
        if kind == "add":
            arrays[number][index] += v(arrays, x)
        elif kind == "sub":
            arrays[number][index] -= v(arrays, x)
        elif kind == "mul":
            arrays[number][index] *= v(arrays, x)
        else:
            arrays[number][index] = v(arrays, x)

    return write


def random_program(r: random.Random, x: np.ndarray) -> F:
    """A function (namespace, x) of a dozen views and writes; its result holds everything there is in the end."""
    start = np.arange(12.0).reshape(3, 4) / 16

    def initial(np: Any, x: Any) -> list[Any]:
        y = np.zeros((3, 4))
        y[...] = start
        return [y, x * start[:, :4]]

    arrays, ops = initial(np, x), []
    for _ in range(r.randrange(3, 14)):
        number = r.randrange(len(arrays))
        op: Op | None
        if r.random() < 0.45:
            if not isinstance(arrays[number], np.ndarray):
                continue
            view = view_op(r, arrays[number])
            op = lambda np, arrays, x, view=view, number=number: arrays.append(view(np, arrays[number]))  # noqa: E731
        else:
            op = write_op(r, number, arrays)
        if op is None:
            continue
        op(np, arrays, x)
        ops.append(op)

    def program(np: Any, x: Any) -> Any:
        arrays = initial(np, x)
        for op in ops:
            op(np, arrays, x)
        return np.concatenate([np.ravel(a) for a in arrays])

    return program


x4 = np.array([0.5, -1.5, 1.25, 0.75])


@pytest.mark.fuzz
@settings(max_examples=EXAMPLES // 3, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.randoms(use_true_random=False))
def test_random_views_and_writes(r: random.Random) -> None:
    program = random_program(r, x4)
    want = program(np, x4)
    f = lambda x: program(fnp, x)  # noqa: E731
    assert_same_bits(fx.vjp(f, x4)[0], want)
    assert_same_bits(fx.jit(f)(x4), want)
    assert_same_bits(fx.vmap(f)(np.stack([x4, x4])), np.stack([want, want]))
    if not np.all(np.abs(want) < 1e6):
        return
    weight, t = np.linspace(-1, 1, want.size), np.array([1.0, -0.5, 0.25, 2.0])
    scalar = lambda x: fnp.sum(f(x) * weight)  # noqa: E731
    gradient = fx.grad(scalar)(x4)
    assert_same_bits(fx.jit(fx.grad(scalar))(x4), gradient)
    slope, scale = float(np.sum(gradient * t)), 1 + np.max(np.abs(gradient))
    np.testing.assert_allclose(fx.jvp(scalar, (x4,), (t,))[1], slope, rtol=1e-10, atol=1e-11 * scale)
    h = 1e-5
    difference = np.sum((program(np, x4 + h * t) - program(np, x4 - h * t)) * weight) / (2 * h)
    np.testing.assert_allclose(difference, slope, rtol=1e-5, atol=1e-6 * scale)
