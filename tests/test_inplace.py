"""In-place code: every program here runs unchanged on NumPy arrays and under the transforms, with equal values.

`run_everywhere` compares NumPy with the traced values (grad, jit, vmap, checkpoint), and the gradient with jvp and differences.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fxgrad as fx
import fxgrad.numpy as fnp
from fxgrad.testing.bits import assert_same_bits

F = Callable[..., Any]


def plain(f: F, *args: Any) -> Any:
    """f by NumPy alone, on copies."""
    return f(np, *[np.array(a) for a in args])


def run_everywhere(f: F, *args: Any, gradients: bool = True, **tolerance: float) -> Any:
    """f(np, *args) gives one array; the same by NumPy, jit, checkpoint, vmap, and inside grad, and its gradient is right."""
    want = plain(f, *args)
    g = lambda *xs: f(fnp, *xs)  # noqa: E731
    got = fx.jit(g)(*args)
    np.testing.assert_allclose(got, want, rtol=1e-13, atol=1e-13)
    assert np.shape(got) == np.shape(want) and got.dtype == np.asarray(want).dtype
    assert_same_bits(fx.vjp(g, *args)[0], got)
    assert_same_bits(fx.checkpoint(g)(*args), got)
    stacked = [np.stack([a, a]) for a in args]
    assert_same_bits(fx.vmap(g)(*stacked), np.stack([got, got]))
    assert_same_bits(fx.jit(fx.vmap(g))(*stacked), np.stack([got, got]))
    if gradients:
        check_gradient(g, args, want, **tolerance)
    return got


def check_gradient(g: F, args: tuple, want: Any, rtol: float = 1e-6, atol: float = 1e-8) -> None:
    rng = np.random.default_rng(0)
    weight = rng.normal(size=np.shape(want))
    tangents = tuple(rng.normal(size=np.shape(a)) for a in args)
    scalar = lambda *xs: fnp.sum(g(*xs) * weight)  # noqa: E731
    numbers = tuple(range(len(args)))
    gradient = fx.grad(scalar, numbers)(*args)
    for transform in (lambda: fx.jit(fx.grad(scalar, numbers))(*args), lambda: fx.grad(fx.jit(scalar), numbers)(*args)):
        for a, b in zip(gradient, transform(), strict=True):
            assert_same_bits(a, b)
    for a, b in zip(gradient, fx.grad(fx.checkpoint(scalar), numbers)(*args), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-13, atol=1e-13)
    slope = sum(float(np.sum(a * t)) for a, t in zip(gradient, tangents, strict=True))
    np.testing.assert_allclose(fx.jvp(scalar, args, tangents)[1], slope, rtol=1e-10, atol=1e-12)
    h = 1e-5
    ahead, behind = ([a + s * h * t for a, t in zip(args, tangents, strict=True)] for s in (1, -1))
    np.testing.assert_allclose((scalar(*ahead) - scalar(*behind)) / (2 * h), slope, rtol=rtol, atol=max(atol, 1e-7))
    batch = fx.vmap(fx.grad(scalar, numbers))(*[np.stack([a, a + 1]) for a in args])
    for a, b in zip(gradient, batch, strict=True):
        assert_same_bits(a, b[0])


x3, x34 = np.array([0.5, -1.5, 2.0]), np.arange(12.0).reshape(3, 4) / 5 - 0.93

# ---- assignment --------------------------------------------------------------------------------------------------------------

MASK = np.array([[True, False, True, True], [False] * 4, [False, True, False, True]])
INDICES: dict[str, Any] = {
    "int": 1,
    "negative": -1,
    "numpy int": np.int64(2),
    "ints": (1, -2),
    "slice": slice(1, 3),
    "step": (slice(None, None, 2), slice(3, None, -2)),
    "backward": slice(None, None, -1),
    "ellipsis": (Ellipsis, 2),
    "whole": Ellipsis,
    "new": (slice(None), None, 1),
    "int and slice": (0, slice(1, None)),
    "empty slice": slice(2, 2),
    "list": [2, 0],
    "array": np.array([[0, 1], [1, 2]]),
    "arrays": ([0, 2, 1], [1, 1, 3]),
    "array and slice": (slice(1, None), [3, 0]),
    "apart": ([0, 1], slice(None, None, 2)),
    "mask": MASK,
    "row mask": np.array([True, False, True]),
    "mask and int": (np.array([True, False, True]), 2),
    "mask in columns": (slice(None), np.array([True, False, True, False])),
    "negative array": [-1, -3],
    "scalar mask": True,
}  # fmt: skip


@pytest.mark.parametrize("case", INDICES)
def test_assignment_at_every_index(case: str) -> None:
    index = INDICES[case]
    count = np.arange(1.0, 1.0 + x34[index].size).reshape(x34[index].shape)

    def full(np: Any, x: Any) -> Any:
        y = np.zeros((3, 4))
        y[...] = x * 2.0
        y[index] = np.sin(x[0, 1] * count)
        return y * x

    def scalar(np: Any, x: Any) -> Any:
        y = x * x
        y[index] = x[1, 2]
        return y + x

    def augmented(np: Any, x: Any) -> Any:
        y = x * x
        y[index] += x[0, 1]
        y[index] *= 3.0
        return y

    def constant(np: Any, x: Any) -> Any:
        y = np.ones((3, 4)) * x
        y[index] = 7
        return y

    for f in (full, scalar, augmented, constant):
        run_everywhere(f, x34)


@pytest.mark.parametrize(
    "value", [[1.0, 2.0, 3.0, 4.0], [[1.0], [2.0]], np.ones((1, 2, 4)), np.float32(2.5), 3, True, [[5]], np.ones((1, 1, 1))]
)
def test_broadcasting_of_the_value(value: Any) -> None:
    def f(np: Any, x: Any) -> Any:
        y = x * 1.0
        y[1:] = value
        y[:, ::2] *= 2
        return y

    run_everywhere(f, x34)


def test_traced_indices() -> None:
    def f(x: Any, i: Any, j: Any) -> Any:
        y = x * 1.0
        y[i] = x[0] * 2
        y[:, j] += 1.0
        y[i, j] = 5.0
        y[j, 1:] *= x[0, 0]
        return y

    def by_numpy(x: Any, i: Any, j: Any) -> Any:
        return f(np.array(x), i, j)

    for i, j in ((1, 2), (-1, 0), (np.array([0, 2]), np.array([1, -1]))):
        want = by_numpy(x34, i, j)
        for g in (f, fx.jit(f), fx.checkpoint(f)):
            np.testing.assert_array_equal(fx.vjp(lambda x, g=g, i=i, j=j: g(x, i, j), x34)[0], want)
    np.testing.assert_array_equal(
        fx.vmap(f)(np.stack([x34, x34]), np.array([1, -1]), np.array([2, 0])), [by_numpy(x34, 1, 2), by_numpy(x34, -1, 0)]
    )
    fx.jit(f)(x34, 1, 2)
    with pytest.raises(IndexError, match="out of bounds"):
        fx.jit(f)(x34, 3, 2)


def test_data_dependent_masks() -> None:
    def clipped(np: Any, x: Any) -> Any:
        y = x * 2.0
        y[y > 1] = 1.0
        y[y < x[0, 1]] = x[2, 3]
        y[x[:, 0] > 0, 1:] = -1.0
        y[1, x[2] > 0.9] = 0.25
        return y

    def rows(np: Any, x: Any) -> Any:
        y = np.zeros_like(x)
        y[x[:, 1] > 0] = x[1]
        return y

    for f in (clipped, rows):
        run_everywhere(f, x34)
    selected = lambda x: np.sum(where_positive(x) ** 2)  # noqa: E731
    np.testing.assert_array_equal(fx.grad(selected)(x3), np.where(x3 > 0, 18 * x3, 2 * x3))
    with pytest.raises(fx.ConcretizationError, match=r"np\.where\(mask"):
        fx.jit(selected)(x3)


def where_positive(x: Any) -> Any:
    y = x.copy()
    y[x > 0] = x[x > 0] * 3
    return y


def test_dtypes_are_kept() -> None:
    def f(np: Any, x: Any) -> Any:
        n = np.zeros(3, dtype=np.int32)
        n[:] = x * 3.7
        n[0] = 2.9
        n += 1
        flags = np.zeros(3, dtype=bool)
        flags[:2] = x[:2]
        flags[2] = 0.0
        single = np.zeros(3, np.float32)
        single[:] = x
        single += x
        half = np.ones(3, np.float16)
        half *= 3
        return n * single + flags + half

    assert_same_bits(fx.jit(lambda x: f(fnp, x))(x3), plain(f, x3))
    assert_same_bits(fx.vjp(lambda x: f(fnp, x), x3)[0], plain(f, x3))
    for change in (
        lambda n, x: n.__iadd__(x),
        lambda n, x: n.__itruediv__(2),
        lambda n, x: np.add(n, x, out=n),
        lambda n, x: np.copyto(n, x),
    ):
        for transform in (fx.jit, fx.checkpoint):
            with pytest.raises(TypeError, match=r"same_kind"):
                transform(lambda x, change=change: change(fnp.zeros(3, int), x))(x3)
        with pytest.raises(TypeError):
            change(np.zeros(3, int), x3)
    with pytest.raises(fx.errors.FxTypeError, match=r"x = x\.astype\('float64'\)"):
        fx.jit(lambda x: fnp.zeros(3, int).__iadd__(x))(x3)


def test_shapes_that_do_not_fit() -> None:
    for change in (
        lambda y, x: y.__setitem__(slice(1, 3), x),
        lambda y, x: y.__setitem__([0, 1], x),
        lambda y, x: y.__iadd__(np.ones((2, 3))),
        lambda y, x: np.add(x, np.ones((2, 1)), out=y),
        lambda y, x: np.sum(x, out=y),
    ):
        with pytest.raises(ValueError, match="shape|broadcast|dimensions"):
            change(np.zeros(3), x3)
        with pytest.raises(fx.errors.FxValueError):
            fx.grad(lambda x, change=change: change(x * 1.0, x))(x3)


# ---- augmented assignment, out=, ufunc.at ------------------------------------------------------------------------------------


def test_augmented_operators() -> None:
    def floats(np: Any, x: Any) -> Any:
        y = x * x + 2.0
        z = y
        y += x
        y -= 0.5
        y *= x[0]
        y /= 3
        y **= 2
        y //= 0.01
        y %= 0.7
        return z

    def integers(np: Any, x: Any) -> Any:
        n = np.arange(3)
        m = n
        n <<= 3
        n |= 5
        n &= 29
        n ^= 2
        n >>= 1
        n //= 2
        n **= 2
        n %= 7
        return m * x

    def product(np: Any, x: Any) -> Any:
        y = np.outer(x, x)
        view = y.T
        y @= y + np.eye(3)
        return view

    run_everywhere(floats, x3 + 2.0, gradients=False)
    run_everywhere(integers, x3)
    run_everywhere(product, x3)


def test_out() -> None:
    def f(np: Any, x: Any) -> Any:
        y = np.zeros(3)
        total = np.zeros(())
        np.sin(x, out=y)
        np.add(y, x, y)
        np.multiply(y, 2.0, out=y, where=np.array([True, False, True]))
        np.sum(y, out=total)
        rows = np.empty((2, 3))
        np.stack([x, y], out=rows)
        np.cumsum(x, out=rows[1])
        np.clip(rows, -1.0, 1.0, out=rows)
        np.matmul(np.outer(x, x), x, out=rows[0])
        np.concatenate([x[:1], x[1:]], out=y[::-1])
        np.maximum.reduce(rows, axis=0, out=rows[1])
        np.take(x, [0, 0, 1], out=rows[0, :])
        fraction, whole = np.empty(3), np.empty(3)
        np.modf(x, out=(fraction, whole))
        np.mean(rows, axis=1, out=whole[:2])
        return rows * y + total + fraction + whole

    run_everywhere(f, x3 + 0.1)

    def dispatched(x: Any) -> Any:
        y = np.zeros_like(x)
        assert np.sin(x, out=y) is y
        np.add(y, 1.0, out=y)
        np.sum(np.stack([x, y]), axis=0, out=y)
        return y

    for transform in (fx.jit, fx.checkpoint):
        assert_same_bits(transform(dispatched)(x3), np.asarray(fx.jit(lambda x: x + (fnp.sin(x) + 1.0))(x3)))
    y = np.empty(3)
    assert fnp.add(x3, x3, out=y) is y and fnp.sum(np.ones((2, 3)), axis=0, out=y) is y and fnp.round(x3, out=y) is y
    assert_same_bits(y, np.round(x3))


def test_ufunc_at() -> None:
    i = np.array([0, 2, 0, -1])

    def f(np: Any, x: Any) -> Any:
        y = x * 1.0
        np.add.at(y, i, x[[0, 1, 2, 0]])
        np.subtract.at(y, [1, 1], 0.5)
        np.multiply.at(y, i, 2.0)
        np.negative.at(y, [0, 1])
        np.add.at(y, slice(1, None), x[0])
        np.add.at(y[::-1], 0, 3.0)
        z = np.outer(x, x)
        np.add.at(z, (i, [0, 1, 0, 1]), x[0])
        np.maximum.at(z, ([0, 1], [0, 0]), 0.3)
        return y * z

    run_everywhere(f, x3)

    def traced(x: Any, i: Any) -> Any:
        y = fnp.zeros(3)
        fnp.add.at(y, i, x)
        np.add.at(y, i, x)
        return y

    want = np.zeros(3)
    np.add.at(want, [0, 2, 0], 2 * x3)
    np.testing.assert_allclose(fx.jit(traced)(x3, np.array([0, 2, 0])), want)
    count = np.zeros(3)
    fnp.add.at(count, [0, 0, 1], 1.0)
    np.testing.assert_array_equal(count, [2, 1, 0])


# ---- NumPy's functions that write --------------------------------------------------------------------------------------------

WRITERS: dict[str, F] = {
    "copyto": lambda np, y, x: np.copyto(y, x[0]),
    "copyto where": lambda np, y, x: np.copyto(y, x * 2, where=x > 0),
    "copyto mask of rows": lambda np, y, x: np.copyto(y, x[:, :1], where=MASK),
    "copyto unsafe": lambda np, y, x: np.copyto(y, x, casting="unsafe"),
    "put": lambda np, y, x: np.put(y, [0, -1, 5], x[1]),
    "put repeated": lambda np, y, x: np.put(y, [0, 3, 5, 3, 7], x[0, :2]),
    "put wrap": lambda np, y, x: np.put(y, [13, -1], x[0], mode="wrap"),
    "put clip": lambda np, y, x: np.put(y, [100, -5], x[0], mode="clip"),
    "put method": lambda np, y, x: y.put([1, 2], 3.0),
    "put in a view": lambda np, y, x: np.put(y.T, [1, 2], x[0]),
    "place": lambda np, y, x: np.place(y, x > 0, x[1]),
    "place one": lambda np, y, x: np.place(y, MASK, 3.0),
    "putmask": lambda np, y, x: np.putmask(y, x > 0, x * 3),
    "putmask repeated": lambda np, y, x: np.putmask(y, MASK, x[0, :3]),
    "put_along_axis": lambda np, y, x: np.put_along_axis(y, np.array([[1], [0], [3]]), x[:, :1], 1),
    "put_along_axis 0": lambda np, y, x: np.put_along_axis(y, np.array([[1, 0, 2, 0]]), 9.0, axis=0),
    "put_along_axis flat": lambda np, y, x: np.put_along_axis(y, np.array([1, 7]), x[0, :2], None),
    "fill_diagonal": lambda np, y, x: np.fill_diagonal(y, x[0, 1]),
    "fill_diagonal list": lambda np, y, x: np.fill_diagonal(y[:, 1:], x[0, :2]),
    "fill_diagonal tall": lambda np, y, x: np.fill_diagonal(y.reshape(6, 2), x[0, 1], wrap=True),
    "fill": lambda np, y, x: y.fill(x[0, 0]),
    "fill of a view": lambda np, y, x: y[1].fill(2),
    "sort": lambda np, y, x: y.sort(),
    "sort axis": lambda np, y, x: y.sort(axis=0),
    "sort of a view": lambda np, y, x: y[:, 1].sort(),
    "flat": lambda np, y, x: y.flat.__setitem__(slice(1, 9, 3), x[0, :3]),
    "flat int": lambda np, y, x: y.flat.__setitem__(5, x[0, 0]),
    "flat list": lambda np, y, x: y.flat.__setitem__([1, 4], x[1, 1]),
    "flat repeated": lambda np, y, x: y.flat.__setitem__(slice(None), x[0, :3]),
    "flat of a view": lambda np, y, x: y.T.flat.__setitem__(slice(0, 5), 1.0),
    "flat attribute": lambda np, y, x: setattr(y, "flat", x[0]),
    "real": lambda np, y, x: setattr(y, "real", x * 2),
    "nan_to_num": lambda np, y, x: np.nan_to_num(y, copy=False),
}


@pytest.mark.parametrize("case", WRITERS)
def test_functions_that_write(case: str) -> None:
    def f(np: Any, x: Any) -> Any:
        y = np.cos(3 * x)
        alias = y[:]
        assert WRITERS[case](np, y, x) is None or case == "nan_to_num"
        return alias * 2.0

    run_everywhere(f, x34)


def test_writers_on_plain_arrays() -> None:
    """Outside traces the functions of fxgrad.numpy change plain arrays as NumPy does."""
    for case, write in WRITERS.items():
        a, b = np.cos(3 * x34), np.cos(3 * x34)
        write(np, a, x34)
        write(fnp, b, x34)
        assert_same_bits(a, b), case
    a = fnp.zeros(3)
    a[1] = 2.0
    a += fnp.ones(3)
    assert type(a) is np.ndarray
    np.testing.assert_array_equal(a, [1, 3, 1])


def test_flat_reads() -> None:
    def f(np: Any, x: Any) -> Any:
        y = x * 2.0
        part = y.flat[2:5]
        y[...] = 0.0
        total = 0.0
        for v in x.T.flat:
            total = total * 0.5 + v
        return part * y.flat[3] + total + len(y.flat) + x.flat[4]

    run_everywhere(f, x34)


def test_resize_is_refused() -> None:
    with pytest.raises(fx.MutationError, match=r"np\.resize\(x, shape\)"):
        fx.jit(lambda x: (x * 1.0).resize(2))(x3)


# ---- views -------------------------------------------------------------------------------------------------------------------


def view_split(np: Any, y: Any, x: Any) -> None:
    left, right = np.split(y, 2, axis=1)
    left += 1.0
    right[0] = left[1]
    _, b, _ = np.array_split(y.ravel(), [2, 7])
    b[1:3] = 5.0
    top, bottom = np.vsplit(y[:2], 2)
    top[...] = bottom * 2
    for part in np.hsplit(y, 4):
        part[2] *= 3


def view_rows(np: Any, y: Any, x: Any) -> None:
    for k, row in enumerate(y):
        row[k] = x[0, k]
        row += y[0]
    first, *_, last = y
    last[:] = first
    rows = list(y)
    rows[1][2] = 7.0
    y[0, 0] = 4.0
    rows[2][1] = rows[0][0]


def view_reshape(np: Any, y: Any, x: Any) -> None:
    a = y.reshape(2, 6)
    a[0, 1] = 3.0
    b = y.T.reshape(-1)  # a copy
    b[0] = 100.0
    c = y.ravel()
    c[::5] = x[0, 0]
    d = y[:, ::2].ravel()  # a copy
    d[:] = 50.0
    e = y[:, :2].reshape(3, 2, 1)
    e[1] = 9.0
    g = y[1:].reshape(-1)
    g[3] = 8.0
    h = y.T.reshape(2, 2, 3)
    h[1, 0, 2] = 6.0
    y.flatten()[0] = 3.0
    y.reshape(-1, order="C")[-1] = 2.5


def view_axes(np: Any, y: Any, x: Any) -> None:
    y.T[1] = x[:, 0]
    y.swapaxes(0, 1)[2, 0] = 3.0
    np.transpose(y)[0, 1:] *= 2.0
    np.moveaxis(y, 0, 1)[3] = 1.5
    z = y[:, None, :, None]
    z[0, 0, 1] = 2.0
    np.squeeze(z)[1, 1] = 4.0
    np.expand_dims(y, 1)[2, 0, 0] = 5.0
    np.flip(y)[0, 0] = 6.0
    np.flipud(y)[0, 1] = 7.0
    y[::-1][0, 2] = 8.0
    np.rot90(y)[0, 0] += 1.0
    np.atleast_3d(y)[0, 0, 0] = 2.0
    y[1, ...][2] = 0.5
    y[0, 0, ...] += 2.0
    np.asarray(y)[2, 2] = 1.25
    np.rollaxis(y, 1)[0] -= 1


def view_of_views(np: Any, y: Any, x: Any) -> None:
    a = y[1:]
    b = a[:, ::-1]
    c = b.T[1:3]
    c[...] = x[0, 0]
    a[0, 0] = 5.0
    y[2] = x[1]
    b += c[0, 0]
    d = c[:, 1]
    d *= 2.0
    y *= 0.5
    c[0] = y[0, :2] + d[0]


def copies(np: Any, y: Any, x: Any) -> None:
    for c in (
        y.copy(), np.array(y), np.copy(y), y.astype(float), y[[0, 1]], y[MASK], y.flatten(), y + 0, +y, np.clip(y, None, 9e9),
        np.concatenate([y]), np.roll(y, 0), np.tile(y, 1), np.repeat(y, 1, axis=0), np.round(y, 20), np.conj(y), np.sort(y),
        abs(y),        y.take([0, 1], axis=0), np.where(True, y, y), np.ascontiguousarray(y.T), np.nan_to_num(y),
        np.pad(y, 0), np.positive(y),
        np.broadcast_to(y, (2, 3, 4)).copy(), np.full(3, y[0, 0]), np.array([y, y]), np.stack([y])[0], np.cumsum(y),
        y.clip(-9, 9),        np.full((3, 4), y), np.array(y, ndmin=3), y.round(20), y.repeat(1), np.real(y).copy(),
        np.append(y, []), np.vstack([y]),
    ):  # fmt: skip
        before = np.sum(c)
        c[...] = 77.0
        y += 0.0 * before


def copies_of_python(np: Any, y: Any, x: Any) -> None:
    for c in (copy.copy(y), copy.deepcopy(y), copy.deepcopy([y])[0]):
        c[...] = 77.0


def read_only(np: Any, y: Any, x: Any) -> None:
    """What broadcasting and diagonal give shows later writes."""
    wide, diagonal = np.broadcast_to(y[0], (2, 4)), np.diagonal(y)
    tall = wide.reshape(2, 4, 1)
    y[0] = x[1]
    y[1:] += np.sum(wide) + diagonal[0] + tall[1, 2]


def self_overlap(np: Any, y: Any, x: Any) -> None:
    y[1:] = y[:-1]
    y[:, ::-1] = y
    y[0], y[1] = y[1].copy(), y[0].copy()
    y[:, 0], y[:, 1] = y[:, 1], y[:, 0]  # NumPy's trap: both are views
    y[...] += y[0, 0]
    y[:] *= 2.0
    v = y[1]
    v[:] += 1.0
    v[...] = v


VIEWS = [view_split, view_rows, view_reshape, view_axes, view_of_views, copies, copies_of_python, read_only, self_overlap]


@pytest.mark.parametrize("change", VIEWS)
def test_views(change: F) -> None:
    def f(np: Any, x: Any) -> Any:
        y = np.sin(x) + x
        change(np, y, x)
        return y

    run_everywhere(f, x34)


def test_views_without_a_base() -> None:
    def f(np: Any, x: Any) -> Any:
        y = np.zeros((3, 4)).T[::-1]
        z = (x * 2).reshape(6, 2)[1:]
        y[1] = x[:, 0]
        z[0] = x[0, 0]
        return z * y[0, 0] + y[1, 0]

    run_everywhere(f, x34)


def test_read_only_views() -> None:
    for view in (lambda y: np.broadcast_to(y, (2, 3)), lambda y: np.diagonal(np.outer(y, y)), lambda y: np.diag(np.outer(y, y))):
        with pytest.raises(ValueError, match="read-only"):
            view(np.ones(3))[0] = 1.0
    for view in (lambda y: np.broadcast_to(y, (2, 3)), lambda y: np.diagonal(np.outer(y, y))):
        with pytest.raises(fx.MutationError, match="read-only") as caught:
            fx.jit(lambda x, view=view: view(x * 1.0).__setitem__(0, 1.0))(x3)
        assert "y = x.copy()" in str(caught.value)


def test_memory_is_shared_as_in_numpy() -> None:
    def f(x: Any) -> Any:
        y = x * 1.0
        assert np.shares_memory(y, y[1:]) and np.may_share_memory(y.T, y) and not np.shares_memory(y, y.copy())
        assert not np.shares_memory(x * 1.0, x * 1.0)
        return y

    fx.jit(f)(x34)
    f(x34)


def test_scalars_and_arrays_of_rank_0() -> None:
    def f(np: Any, x: Any) -> Any:
        total = np.zeros(())
        alias = total
        for v in x:
            total += v
        s = x[0] * 1.0
        kept = s
        s += 5.0  # a scalar: rebinds
        total[...] = total * 2
        alias[()] += 1.0
        return np.stack([alias, total, kept, s])

    run_everywhere(f, x3)
    with pytest.raises(TypeError, match="does not support item assignment"):
        x3.sum()[()] = 1.0
    with pytest.raises(TypeError, match="does not support item assignment"):
        fx.jit(lambda x: x.sum().__setitem__((), 1.0))(x3)


# ---- gradients ---------------------------------------------------------------------------------------------------------------


def test_8_dead_stores_are_dead() -> None:
    """A value that is overwritten has no gradient, whatever it was; later duplicates win, in add.at all count."""

    def overwritten(x: Any) -> Any:
        y = fnp.zeros(3)
        y[:] = fnp.sqrt(x - x) / x  # infinite slopes
        y[0] = np.inf * x[1]
        y[...] = x * 2.0
        return y.sum()

    for g in (
        fx.grad(overwritten),
        fx.jit(fx.grad(overwritten)),
        fx.grad(fx.jit(overwritten)),
        fx.grad(fx.checkpoint(overwritten)),
    ):
        assert_same_bits(g(x3), np.full(3, 2.0))

    def partly(x: Any) -> Any:
        y = x.copy()
        y[1] = fnp.log(x[1] * 0.0)
        y[1:] = x[:2] * 3.0
        return fnp.sum(y)

    assert_same_bits(fx.grad(partly)(x3), np.array([4.0, 3.0, 0.0]))
    assert_same_bits(fx.jit(fx.grad(partly))(x3), np.array([4.0, 3.0, 0.0]))

    def duplicates(x: Any) -> Any:
        y = fnp.zeros(2)
        y[[0, 0, 1]] = x
        return y.sum()

    assert_same_bits(fx.grad(duplicates)(x3), np.array([0.0, 1.0, 1.0]))
    assert_same_bits(fx.grad(lambda x: added(x).sum())(x3), np.ones(3))


def added(x: Any) -> Any:
    y = fnp.zeros(2)
    np.add.at(y, [0, 0, 1], x)
    return y


def test_where_the_branch_not_taken_is_written() -> None:
    def f(x: Any) -> Any:
        y = fnp.zeros(3)
        y[:] = fnp.sqrt(x)
        y[x < 0] = 0.0
        return y.sum()

    assert_same_bits(fx.grad(f)(np.array([4.0, -1.0, 0.25])), np.array([0.25, 0.0, 1.0]))


def test_a_pullback_does_not_see_later_writes() -> None:
    def f(x: Any) -> Any:
        y = x * 2.0
        value, pull = fx.vjp(lambda y: y * y, y)
        _, push = fx.linearize(lambda y: y * y, y)
        y[:] = 100.0
        value[0] = 0.0
        return pull(fnp.ones(3))[0] + push(fnp.ones(3)) + 0.0 * y

    np.testing.assert_array_equal(fx.jit(f)(x3), 8 * x3)
    np.testing.assert_array_equal(fx.vjp(f, x3)[0], 8 * x3)

    def closed(x: Any) -> Any:
        y = x * 1.0
        _, pull = fx.vjp(lambda z: z * y, x)
        y *= 0.0
        return pull(fnp.ones(3))[0]

    np.testing.assert_array_equal(fx.jit(closed)(x3), x3)


def test_known_values_follow_writes() -> None:
    def f(x: Any) -> Any:
        y = x * 1.0
        view = y[1:]
        y[2] = -5.0
        if view[1] < 0:
            view[0] = x[0] ** 2
        n = int(y[2])
        assert str(view) == "[ 0.25 -5.  ]" and n == -5
        return y[1] * 3.0

    np.testing.assert_array_equal(fx.grad(f)(x3), [3.0, 0.0, 0.0])


# ---- what cannot be written --------------------------------------------------------------------------------------------------

table = np.arange(3.0)


def test_writes_to_outer_values() -> None:
    def outer(inner: F) -> F:
        def f(x: Any) -> Any:
            y = x * 1.0
            return fx.grad(lambda z: inner(y, z))(x).sum()

        return f

    for inner in (
        lambda y, z: y.__setitem__(0, z[0]),
        lambda y, z: y.__iadd__(z),
        lambda y, z: y[1:].__setitem__(0, 1.0),
        lambda y, z: np.sin(z, out=y),
        lambda y, z: y.T.fill(0.0),
    ):
        for transform in (fx.grad, fx.jit):
            with pytest.raises(fx.MutationError, match="outside the") as caught:
                transform(outer(inner))(x3)
            assert "test_inplace.py" in str(caught.value) and "y = x.copy()" in str(caught.value)
    np.testing.assert_array_equal(fx.grad(outer(lambda y, z: inner_copy(y, z)))(x3), np.ones(3))


def inner_copy(y: Any, z: Any) -> Any:
    c = y.copy()
    c[:] *= z
    return c.sum()


def test_writes_to_arguments_of_inner_functions() -> None:
    @fx.jit
    def callee(v: Any) -> Any:
        v[0] = 1.0
        return v

    with pytest.raises(fx.MutationError, match=r"v\[0\] = 1\.0"):
        fx.grad(lambda x: callee(x * 2.0).sum())(x3)

    @fx.jit
    def identity(v: Any) -> Any:
        return v, v

    def caller(x: Any) -> Any:
        y = x * 2.0
        a, b = identity(y)
        c = fx.checkpoint(lambda v: v)(y)
        d = fx.vmap(lambda v: v)(y)
        e = fx.stop_gradient(y)
        g, h = fx.vjp(lambda v: (v, v), y)[0]
        for k, v in enumerate((a, b, c, d, e, g, h)):
            v[0] = k
        return fnp.stack([y, a, b, c, d, e, g, h])[:, 0]

    np.testing.assert_array_equal(fx.jit(caller)(x3), [1, 0, 1, 2, 3, 4, 5, 6])


def test_plain_arrays_seen_through_views() -> None:
    for view in (
        lambda: fnp.asarray(table),
        lambda: fnp.reshape(table, (3, 1)),
        lambda: fnp.transpose(table[None]),
        lambda: fnp.split(table, 3)[0],
        lambda: fnp.asarray(table)[1:],
    ):
        with pytest.raises(fx.MutationError, match="from outside the transformed function"):
            fx.jit(lambda x, view=view: view().__setitem__(0, x[0]))(x3)
    np.testing.assert_array_equal(fx.jit(lambda x: filled(fnp.array(table), x))(x3), [0.5, 1, 2])
    assert table[0] == 0


def filled(y: Any, x: Any) -> Any:
    y[0] = x[0]
    return y


@pytest.mark.parametrize(
    "transform", [fx.grad, fx.jit, lambda f: fx.grad(fx.checkpoint(f)), lambda f: lambda x: fx.vmap(f)(x[None])]
)
def test_53_plain_arrays_never_lose_a_traced_value(transform: F) -> None:
    def element(x: Any) -> Any:
        a = np.zeros(3)
        a[0] = x[0]

    def region(x: Any) -> Any:
        a = np.zeros(3)
        a[:] = x

    def added_element(x: Any) -> Any:
        a = np.zeros(3)
        a[0] += x[0]

    def masked(x: Any) -> Any:
        a = np.zeros(3)
        a[x > 0] = 1.0

    def added(x: Any) -> Any:
        a = np.zeros(3)
        a += x

    for f, line in ((element, "a[0] = x[0]"), (region, "a[:] = x"), (added_element, "a[0] += x[0]"), (added, "a += x")):
        with pytest.raises(fx.MutationError, match="np.zeros_like") as caught:
            transform(f)(x3)
        assert line in str(caught.value) and "a plain NumPy array" in str(caught.value)
    if transform is fx.jit:
        with pytest.raises(fx.MutationError, match="a plain NumPy array"):
            transform(masked)(x3)


def test_arguments_that_are_not_differentiated() -> None:
    """Their copies may be written to, their values may go into plain arrays, they themselves may not change."""

    def f(x: Any, start: Any, *, weight: Any) -> Any:
        u = start.copy()
        u[1:] += x[1:] * weight[1:]
        plain = np.zeros(3)
        plain[0] = start[0]
        plain += np.asarray(weight)
        return np.sum(u * plain)

    start, weight = np.array([2.0, 3.0, 4.0]), np.array([5.0, 6.0, 7.0])
    np.testing.assert_array_equal(fx.grad(f)(x3, start, weight=weight), [0.0, 36.0, 49.0])
    with pytest.raises(fx.MutationError, match="argument of the transformed function"):
        fx.grad(lambda x, y: y.__setitem__(0, x[0]))(x3, start)
    np.testing.assert_array_equal(start, [2.0, 3.0, 4.0])


def test_52_buffers_of_the_namespace() -> None:
    """zeros, empty, ones, full, arange and their like, and np.zeros_like of a traced value, can be filled."""
    for make in (
        lambda x: fnp.zeros(3), lambda x: fnp.empty(3), lambda x: fnp.ones(3), lambda x: fnp.full(3, 1.0),
        lambda x: fnp.arange(3.0),        lambda x: fnp.zeros_like(x), lambda x: np.zeros_like(x),
        lambda x: np.empty_like(x), lambda x: np.ones_like(x, shape=3),
        lambda x: np.full_like(x, 2.0), lambda x: fnp.linspace(0, 1, 3), lambda x: fnp.array([1.0, 2.0, 3.0]),
        lambda x: fnp.eye(3)[0], lambda x: fnp.array(table), lambda x: fnp.array([x[0], 1.0, 2.0]),
        lambda x: fnp.empty_like(table),        lambda x: fnp.zeros_like(table), lambda x: fnp.identity(3)[1],
        lambda x: fnp.copy(table),
    ):  # fmt: skip

        def f(x: Any, make: F = make) -> Any:
            y = make(x)
            for i in range(3):
                y[i] = x[i] * x[(i + 1) % 3]
            return y

        assert_same_bits(fx.jit(f)(x3), x3 * np.roll(x3, -1))
        np.testing.assert_array_equal(fx.grad(lambda x, f=f: f(x).sum())(x3), np.roll(x3, 1) + np.roll(x3, -1))


def test_leaked_after_a_write() -> None:
    kept: list[Any] = []

    def f(x: Any) -> Any:
        y = x * 1.0
        kept.extend([y, y[1:]])
        y[0] = 1.0
        return y.sum()

    fx.jit(f)(x3)
    for use in (lambda v: v + 1.0, lambda v: v.__setitem__(0, 1.0), lambda v: v[0], lambda v: bool(v[0] > 0), lambda v: v.sum()):
        for v in kept:
            with pytest.raises(fx.LeakedTracerError):
                use(v)
    assert "Traced<" in repr(kept[1])


# ---- what is recorded, and what it costs -------------------------------------------------------------------------------------


def names(f: F, *args: Any) -> list[str]:
    return [e.prim.name for e in fx.make_ir(f)(*args).eqns]


def test_one_equation_for_a_region() -> None:
    def stencil(x: Any) -> Any:
        y = fnp.zeros((3, 4))
        y[1:-1, 1:-1] = x[1:-1, 1:-1]
        return y

    assert names(stencil, x34) == ["broadcast", "slice", "update_slice"]

    def rows(x: Any) -> Any:
        y = x * 1.0
        for row in y:
            row[:2] = 0.0
        y[1:][:, ::2][0] += 1.0
        y[:] = y
        y += 1.0
        return y

    assert names(rows, x34).count("update_slice") == 4 and "gather" not in names(rows, x34)
    text = str(fx.make_ir(fx.grad(lambda x: stencil(x).sum()))(x34))
    assert "gather" not in text and "scatter" not in text


def test_tracing_writes_takes_linear_time() -> None:
    def f(x: Any, n: int) -> Any:
        y = fnp.zeros(n)
        rows = list(y.reshape(n, 1))
        for i in range(n):
            y[i] = x[0]
        for i in range(n):
            rows[i][0] = x[1]
        return y

    def equations(n: int) -> int:
        return len(fx.make_ir(lambda x: f(x, n))(x3).eqns)

    assert equations(200) - equations(100) == 2 * (equations(100) - equations(50))
    assert_same_bits(fx.checkpoint(lambda x: f(x, 400))(x3), np.full(400, x3[1]))
