"""Memory the caller can write: what a pullback kept must not have changed, nor what a trace captured before it has ended."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fxgrad as fx
import fxgrad.numpy as fnp
from fxgrad.runtime.stale import COPY_LIMIT, GLANCE_LIMIT, SAMPLES, fingerprint, glance
from tests.four_parts import assert_four_parts, raised

F = Callable[..., Any]


def square(x: Any) -> Any:
    return np.sum(x * x)


def pullback_of(f: F, *args: Any) -> Callable[[], Any]:
    """The pullback at one, as a call without arguments."""
    pullback = fx.vjp(f, *args)[1]
    return lambda: pullback(1.0)


def linear_part_of(f: F, *args: Any) -> Callable[[], Any]:
    f_jvp = fx.linearize(f, *args)[1]
    return lambda: f_jvp(*[np.ones_like(a) for a in args])


LATER = {"vjp": pullback_of, "linearize": linear_part_of}
later = pytest.mark.parametrize("later", LATER.values(), ids=LATER)


def is_stale(call: Callable[[], Any]) -> bool:
    try:
        call()
    except fx.StaleValueError:
        return True
    return False


# ---- between forward and backward --------------------------------------------------------------------------------------------


def element(x: np.ndarray) -> None:
    x[1] = 7.0


def through_a_view(x: np.ndarray) -> None:
    view = x[1:]
    view[0] = 7.0


def optimizer_step(x: np.ndarray) -> None:
    x -= 0.1 * np.ones_like(x)


def through_out(x: np.ndarray) -> None:
    np.multiply(x, 2.0, out=x)


def sign_of_zero(x: np.ndarray) -> None:
    x[0] = -0.0


WRITES = (element, through_a_view, optimizer_step, through_out, np.ndarray.sort, sign_of_zero)


@later
@pytest.mark.parametrize("write", WRITES, ids=lambda w: w.__name__)
def test_changed_argument(later: F, write: F) -> None:
    x = np.array([0.0, 5.0, 2.0])
    call = later(square, x)
    first = call()
    write(x)
    with pytest.raises(fx.StaleValueError, match=r"argument 'x' of shape \(3,\) was changed in place before") as caught:
        call()
    x[:] = [0.0, 5.0, 2.0]
    np.testing.assert_array_equal(call()[0] if later is pullback_of else call(), first[0] if later is pullback_of else first)
    assert "x.copy()" in str(caught.value) and "w = w - lr * g" in str(caught.value)


@later
def test_message(later: F) -> None:
    x = np.ones(3)
    call = later(square, x)
    x[0] = 2.0
    assert_four_parts(
        raised(lambda: call(), fx.StaleValueError),
        what="argument 'x' of shape (3,) was changed in place before",
        line="lambda: ",
        why="the value it had in the forward pass",
        fix=["x.copy()", "w = w - lr * g"],
    )


@later
def test_written_through_the_base(later: F) -> None:
    base = np.arange(12.0)
    for view in (base[2:8], base[::2], base.reshape(3, 4).T, base[::-1], np.broadcast_to(base[3:4], (5,))):
        call = later(square, view)
        base[4 if view.size != 5 else 3] += 1.0
        assert is_stale(call)
        base[4 if view.size != 5 else 3] -= 1.0
        call()


@later
def test_written_beside_the_view_is_no_change(later: F) -> None:
    base = np.arange(12.0)
    call = later(square, base[::2])
    base[1::2] = 0.0
    call()


@later
def test_read_only_view_of_a_writeable_base(later: F) -> None:
    base = np.ones(3)
    view = base[:]
    view.flags.writeable = False
    call = later(square, view)
    base[0] = 2.0
    assert is_stale(call)


@later
def test_captured_array(later: F) -> None:
    w = np.ones(3)
    call = later(lambda x: np.sum(x * w), np.ones(3))
    w -= 0.5
    with pytest.raises(fx.StaleValueError, match=r"a captured array of shape \(3,\) was changed in place"):
        call()


def test_leaf_of_a_tree() -> None:
    p = {"w": np.ones(3), "b": [np.ones(2)]}
    pullback = fx.vjp(lambda p: square(p["w"]) + square(p["b"][0]), p)[1]
    p["b"][0][1] = 3.0
    with pytest.raises(fx.StaleValueError, match=r"argument 'p'\['b'\]\[0\] of shape \(2,\)"):
        pullback(1.0)


def test_returned_output() -> None:
    """exp keeps its result; who changes what was returned changes the residual."""
    for transform in (fx.vjp, fx.linearize):
        y, back = transform(np.exp, np.zeros(3))
        back(np.ones(3))
        y *= 2.0
        with pytest.raises(fx.StaleValueError, match="the returned output"):
            back(np.ones(3))


@later
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_single_element_of_a_large_array(later: F, dtype: str) -> None:
    n = 4 * COPY_LIMIT // np.dtype(dtype).itemsize + 3
    x = np.linspace(0, 1, n).astype(dtype)
    call = later(square, x)
    for i in (0, 1, n // 2, n - 2, n - 1):
        old = x[i]
        x[i] = np.nextafter(old, np.asarray(2, dtype))
        assert is_stale(call), i
        x[i] = old
        call()
    x[3], x[4] = x[4], x[3]
    assert is_stale(call)


def test_large_arrays_in_other_layouts() -> None:
    base = np.random.default_rng(0).normal(size=(300, 200))
    for view in (base.T, base[::-1], base[:, ::2], base[:, 1:]):
        call = pullback_of(square, view)
        view[7, 5] += 1.0
        assert is_stale(call)
        view[7, 5] -= 1.0


@later
def test_equal_values_written_back(later: F) -> None:
    for n in (3, COPY_LIMIT):
        x = np.arange(float(n))
        call = later(square, x)
        x[:] = np.arange(float(n))
        x += 1.0
        x -= 1.0
        call()
        call()
        x[0] = np.nan
        assert is_stale(call)
        call = later(square, x)
        x[0] = np.nan  # the same bits
        call()


@later
def test_nobody_can_write(later: F) -> None:
    x = np.frombuffer(np.arange(3.0).tobytes())
    call = later(square, x)
    assert not x.flags.writeable
    call()
    call = later(square, 3.0)
    call()


@later
def test_what_the_transform_computed(later: F) -> None:
    """Values in nobody's hands cannot go stale, whatever happens to the argument they came from."""
    x = np.array([1.0, 2.0])
    call = later(lambda x: np.sum(np.exp(x)), x)
    first = call()
    x[:] = 50.0
    np.testing.assert_array_equal(call(), first)
    call = later(lambda x: np.sum(3.0 * x), x)  # the derivative needs no value
    x[:] = 0.0
    call()


def test_several_uses_and_interleaved_pullbacks() -> None:
    x = np.array([1.0, 2.0])
    first = pullback_of(square, x)
    x += 1.0
    second = pullback_of(square, x)
    assert is_stale(first)
    np.testing.assert_array_equal(second()[0], [4, 6])
    x -= 1.0
    np.testing.assert_array_equal(first()[0], [2, 4])
    assert is_stale(second)


def test_in_a_training_loop() -> None:
    w = np.array([1.0, 2.0])
    for _ in range(3):
        _, pullback = fx.vjp(square, w)
        (g,) = pullback(1.0)
        w -= 0.1 * g  # after the pullback: fine
    np.testing.assert_allclose(w, np.array([1.0, 2.0]) * 0.8**3)


def test_compiled_functions_are_watched_too() -> None:
    for f in (fx.jit(square), fx.checkpoint(square)):
        for make in LATER.values():
            x = np.array([1.0, 2.0])
            call = make(f, x)
            x[0] = 9.0
            assert is_stale(call)


def test_value_and_grad_needs_no_check() -> None:
    x = np.array([1.0, 2.0])
    value, g = fx.value_and_grad(square)(x)
    x[:] = 0.0
    assert value == 5.0
    np.testing.assert_array_equal(g, [2, 4])


@pytest.mark.parametrize(
    "around", [fx.jit, fx.grad, fx.vmap, lambda f: lambda x: fx.jvp(f, (x,), (x,)), lambda f: fx.jit(fx.vmap(fx.grad(f)))]
)
def test_inside_other_transforms(around: F) -> None:
    """Residuals that are traced values cannot change."""

    def f(x: Any) -> Any:
        y, pullback = fx.vjp(lambda v: v * v * scale, x)
        (g,) = pullback(y)
        return np.sum(g + fx.linearize(np.sin, x)[1](x))

    scale = np.full(3, 2.0)
    x = np.arange(6.0).reshape(2, 3)
    np.testing.assert_array_equal(around(f)(x), around(f)(x.copy()))


def test_captured_array_changed_inside_an_outer_transform() -> None:
    """The residual of an inner vjp is a captured array of the outer trace."""

    def f(x: Any) -> Any:
        _, pullback = fx.vjp(lambda v: np.sum(v * w), x)
        w[0] = 5.0
        return np.sum(pullback(1.0)[0])

    for transform in (fx.jit, fx.grad):
        w = np.ones(3)
        with pytest.raises(fx.StaleValueError):
            transform(f)(np.ones(3))


# ---- while a function is traced ----------------------------------------------------------------------------------------------

TRACES: dict[str, F] = {
    "grad": fx.grad,
    "value_and_grad": fx.value_and_grad,
    "jit": fx.jit,
    "vmap": lambda f: lambda x: fx.vmap(f)(np.stack([x, x])),
    "jvp": lambda f: lambda x: fx.jvp(f, (x,), (x,)),
    "vjp": lambda f: lambda x: fx.vjp(f, x)[0],
    "linearize": lambda f: lambda x: fx.linearize(f, x)[0],
    "checkpoint": fx.checkpoint,
    "make_ir": fx.make_ir,
    "jit of grad": lambda f: fx.jit(fx.grad(f)),
    "grad of jit": lambda f: fx.grad(fx.jit(f)),
}
traces = pytest.mark.parametrize("transform", TRACES.values(), ids=TRACES)


@traces
def test_buffer_changed_while_it_is_traced(transform: F) -> None:
    """Arrays are captured by reference and read when the trace has ended: an earlier use would see the later value."""
    buffer = np.ones(3)

    def f(x: Any) -> Any:
        y = x * buffer
        buffer[0] = 7.0
        return np.sum(y + x * buffer)

    with pytest.raises(fx.StaleValueError) as caught:
        transform(f)(np.ones(3))
    assert_four_parts(
        caught.value,
        what=["an array f64[3] was changed in place while ", "traced 'f'"],
        line="y = x * buffer",
        why="read when the trace has ended",
        fix="a.copy()",
    )


@traces
def test_buffer_changed_before_its_first_use_or_copied(transform: F) -> None:
    buffer = np.zeros(3)

    def f(x: Any) -> Any:
        buffer[:] = 2.0
        y = x * buffer.copy()
        buffer[:] = 3.0
        y = y + x * buffer.copy()
        buffer[0] = 0.0
        return np.sum(y)

    transform(f)(np.ones(3))
    if transform in (fx.grad, fx.jit):
        np.testing.assert_array_equal(fx.grad(f)(np.ones(3)), [5, 5, 5])


def test_loop_that_refills_a_buffer() -> None:
    def f(x: Any, copy: bool) -> Any:
        row, total = np.empty(3), 0.0
        for i in range(4):
            row[:] = np.arange(3.0) + i
            total = total + np.sum(x * (row.copy() if copy else row))
        return total

    with pytest.raises(fx.StaleValueError, match=r"x \* \(row"):
        fx.grad(lambda x: f(x, False))(np.ones(3))
    np.testing.assert_array_equal(fx.grad(lambda x: f(x, True))(np.ones(3)), [6, 10, 14])


def test_views_and_bases_are_seen() -> None:
    base = np.ones(6)

    def through_base(x: Any) -> Any:
        y = x * base[::2]
        base[2] = 4.0
        return np.sum(y)

    def through_view(x: Any) -> Any:
        y = x * base[:3]
        base[1:][0] = 4.0
        return np.sum(y)

    for f in (through_base, through_view):
        base[:] = 1.0
        with pytest.raises(fx.StaleValueError):
            fx.grad(f)(np.ones(3))


def test_reused_by_an_inner_transform() -> None:
    buffer = np.ones(3)

    def f(x: Any) -> Any:
        g = fx.grad(lambda v: np.sum(v * v * buffer))(x)
        buffer[1] = 3.0
        return np.sum(g)

    with pytest.raises(fx.StaleValueError):
        fx.grad(f)(np.ones(3))


def test_changed_after_the_trace_is_no_matter() -> None:
    buffer = np.ones(3)
    f = fx.jit(lambda x: np.sum(x * buffer))
    assert f(np.ones(3)) == 3
    buffer[0] = 5.0
    assert f(np.ones(3)) == 7  # captured by reference


def test_large_buffers_are_looked_at_in_places() -> None:
    """Above GLANCE_LIMIT bytes a sample is compared: any run of 1/2048 of the elements is seen."""
    assert GLANCE_LIMIT > COPY_LIMIT
    for shape in ((1 << 20,), (1024, 1024), (7, 149_797)):
        for make in (np.zeros, lambda s: np.asfortranarray(np.zeros(s)), lambda s: np.zeros((*s[:-1], 2 * s[-1]))[..., ::2]):
            x = make(shape)
            assert x.nbytes > GLANCE_LIMIT
            mark = glance(x)
            assert glance(x) == mark
            run = math.ceil(x.size / (SAMPLES // 2))
            for start in (0, 12_345, x.size - run):
                index = np.unravel_index(np.arange(start, start + run), shape)
                x[index] = 1.0
                assert glance(x) != mark
                x[index] = 0.0
            for index in ((0,) * len(shape), tuple(n - 1 for n in shape)):
                x[index] = 1.0
                assert glance(x) != mark
                x[index] = 0.0
            if len(shape) > 1:
                for j in (0, 17, shape[1] // 2):
                    x[:, j if shape[0] > 100 else slice(j, j + 200)] = 1.0
                    assert glance(x) != mark, (shape, j)
                    x[:] = 0.0
            assert glance(x) == mark
    small = np.zeros(GLANCE_LIMIT // 8)
    mark = glance(small)
    small[777] = 1e-300
    assert glance(small) != mark and glance(small) == fingerprint(small)


def test_large_captured_buffer() -> None:
    buffer = np.ones(1 << 18)

    def f(x: Any) -> Any:
        y = np.sum(x * buffer)
        buffer[1000:3000] *= 0.5
        return y + np.sum(x * buffer)

    with pytest.raises(fx.StaleValueError, match=r"an array f64\[262144\]"):
        fx.grad(f)(1.0)


def test_constants_of_fxgrad_numpy_are_never_stale() -> None:
    def f(x: Any) -> Any:
        total = fnp.zeros(3)
        for i in range(3):
            total = total + x * fnp.arange(3.0) * i
        return total.sum()

    np.testing.assert_array_equal(fx.grad(f)(np.ones(3)), [0, 3, 6])
