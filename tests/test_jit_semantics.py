"""What `jit` promises of Python code (issue 4, item 7), one clause a test; tests/test_jit.py has the cases of each in breadth."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import fxgrad as fx
import fxgrad.numpy as fnp
from fxgrad.testing.bits import assert_same_bits

F = Callable[..., Any]
x3 = np.array([0.5, -1.5, 2.0])


def counted(f: F, **options: Any) -> tuple[F, list[int]]:
    """f compiled, and a list that grows by one each time it is traced."""
    traces: list[int] = []

    def run(*args: Any, **kwargs: Any) -> Any:
        traces.append(1)
        return f(*args, **kwargs)

    run.__wrapped__ = f  # type: ignore[attr-defined]
    return fx.jit(run, **options), traces


# ---- static arguments ------------------------------------------------------------------------------------------------


def test_static_arguments_by_type_and_value() -> None:
    f, traces = counted(lambda x, k: x * 1 if k is True else x * (2 if isinstance(k, float) else 3), static_argnums=1)
    values = [1, True, 1.0, np.float32(1), np.int8(1), 0.0, -0.0, (1,), (1.0,), (True,), "1", None, b"1", frozenset({1})]
    for k in values:
        f(x3, k)
    assert len(traces) == len(values)
    for k in values:
        f(x3, k)
    assert len(traces) == len(values)
    assert_same_bits(f(x3, True), x3)
    assert_same_bits(f(x3, 1.0), x3 * 2)
    assert_same_bits(f(x3, 1), x3 * 3)


def test_static_arguments_inside_other_transforms() -> None:
    f, traces = counted(lambda x, n: x**n, static_argnames="n", static_argnums=1)
    for n in (2, 3, 2, 3):
        np.testing.assert_array_equal(fx.grad(lambda x, n=n: f(x, n).sum())(x3), n * x3 ** (n - 1))
    np.testing.assert_array_equal(fx.vmap(lambda x: f(x, n=2))(x3), x3**2)
    np.testing.assert_array_equal(fx.vmap(lambda x: f(x, 2))(x3), x3**2)
    assert len(traces) == 3  # two of vectors, one of scalars


# ---- rebinding -------------------------------------------------------------------------------------------------------

scale: Any = 2.0


def test_rebinding_retraces() -> None:
    global scale
    factor: Any = 3.0

    class Model:
        bias = 0.25

        def __init__(self) -> None:
            self.weight: Any = 1.0
            self.parts = {"a": [1.0]}

        def apply(self, x: Any) -> Any:
            return x * self.weight + self.bias + self.parts["a"][0]

    @fx.jit
    def f(x: Any) -> Any:
        return helper(x) * factor

    def helper(x: Any) -> Any:
        return x * scale

    def nested(x: Any) -> Any:
        return (lambda y: y * factor + scale)(x)

    g = fx.jit(fx.grad(lambda x: nested(x)))
    model = Model()
    method = fx.jit(model.apply)
    before = scale
    try:
        for scale in (2.0, -1.0, 2):
            for factor in (3.0, 0.5):
                assert f(2.0) == 2.0 * scale * factor
                assert g(2.0) == factor
    finally:
        scale = before
    bound = fx.jit(lambda x: x * model.weight + model.bias + model.parts["a"][0])
    for compiled in (method, bound):
        model.weight, model.parts["a"][0] = 1.0, 1.0
        assert compiled(2.0) == 3.25
        model.weight = 5.0
        assert compiled(2.0) == 11.25
        model.parts["a"][0] = 2.0
        assert compiled(2.0) == 12.25
    model.bias = 1.0
    assert bound(2.0) == 13.0
    assert method(2.0) == 13.0
    del model.bias
    assert bound(2.0) == 12.25 and method(2.0) == 12.25


def test_rebinding_is_seen_by_functions_that_write() -> None:
    start = np.zeros(3)

    @fx.jit
    def f(x: Any) -> Any:
        y = fnp.array(start)
        y[1:] = x[1:]
        y += offset
        return y

    offset = 1.0
    assert_same_bits(f(x3), np.array([1.0, -0.5, 3.0]))
    offset = 2.0
    assert_same_bits(f(x3), np.array([2.0, 0.5, 4.0]))
    start = np.ones(3)
    assert_same_bits(f(x3), np.array([3.0, 0.5, 4.0]))


# ---- captured arrays -------------------------------------------------------------------------------------------------


def test_in_place_changes_of_captured_arrays_are_seen() -> None:
    table, tree = np.arange(3.0), {"w": [np.ones(3)]}

    def body(x: Any) -> Any:
        y = fnp.asarray(table) * x
        z = fnp.array(table)
        z[0] = x[0]
        return y + tree["w"][0] + z + fnp.sum(table)

    f, traces = counted(body)
    g = fx.jit(fx.grad(lambda x: body(x).sum()))
    for value in (0.0, 7.0, -3.0):
        table[1] = value
        tree["w"][0][:] = value
        want = table * x3 + value + np.array([x3[0], value, 2.0]) + table.sum()
        np.testing.assert_allclose(f(x3), want)
        np.testing.assert_array_equal(g(x3), table + [1, 0, 0])
    assert len(traces) >= 1
    table.resize(3, refcheck=False)
    f2, traces = counted(lambda x: fnp.asarray(table) * x)
    f2(x3)
    for value in (5.0, 6.0, 7.0):
        table[:] = value
        assert_same_bits(f2(x3), value * x3)
    assert len(traces) == 2  # read at the call: once a change has left the trace as it was, no reason to trace again


# ---- calls -----------------------------------------------------------------------------------------------------------


def test_keyword_and_positional_calls_share_a_trace() -> None:
    f, traces = counted(lambda a, b=2.0, *, c=1.0: a * b + c)
    for call in (
        lambda: f(x3, 2.0),
        lambda: f(x3, b=2.0),
        lambda: f(a=x3, b=2.0),
        lambda: f(b=2.0, a=x3),
        lambda: partial(f, b=2.0)(x3),
    ):
        assert_same_bits(call(), x3 * 2 + 1)
    assert len(traces) == 1
    g, traces = counted(lambda a, n: a * n, static_argnums=1)
    for call in (lambda: g(x3, 2), lambda: g(x3, n=2), lambda: g(a=x3, n=2), lambda: g(n=2, a=x3)):
        assert_same_bits(call(), x3 * 2)
    assert len(traces) == 1


def test_python_scalars_never_recompile() -> None:
    f, traces = counted(lambda x, s, n, flag: fnp.where(flag, x * s + n, x))
    for k in range(20):
        assert_same_bits(f(x3, 0.5 * k, k, k % 2 == 0), x3 * (0.5 * k) + k if k % 2 == 0 else x3)
    assert_same_bits(f(x3, float("inf"), 2**40, True), np.where(True, x3 * np.inf + 2**40, x3))
    assert len(traces) == 1
    single = f(x3.astype(np.float32), 0.5, 3, True)
    assert single.dtype == np.float32 and len(traces) == 2  # weak: the array's dtype stays

    def written(x: Any, s: Any) -> Any:
        y = x.copy()
        y[0] = s
        y[1:] *= s
        return y

    g, traces = counted(written)
    for s in (1.0, -2.5, 1e300):
        assert_same_bits(g(x3, s), written(x3, s))
    assert len(traces) == 1


# ---- errors ----------------------------------------------------------------------------------------------------------


def test_vmap_errors_name_the_argument_and_the_sizes() -> None:
    def f(x: Any, params: Any, scale: Any = 1.0) -> Any:
        return x * params["w"] * scale

    with pytest.raises(fx.errors.FxValueError) as caught:
        fx.vmap(f)(np.ones(3), {"w": np.ones(4)})
    text = str(caught.value)
    assert "argument 'x'" in text and "size 3" in text and "argument 'params'['w']" in text and "size 4" in text, text
    with pytest.raises(fx.errors.FxValueError, match=r"argument 'x' of shape \(\) has no axis 0"):
        fx.vmap(f)(1.0, {"w": np.ones(4)})
    with pytest.raises(fx.errors.FxValueError, match=r"argument 'params'\['w'\] of shape \(4,\) has no axis 1"):
        fx.vmap(f, in_axes=(0, 1))(np.ones(3), {"w": np.ones(4)})
    with pytest.raises(fx.errors.FxValueError, match="different batch sizes") as caught:
        fx.vmap(f)(np.ones(3), {"w": np.ones(3)}, scale=np.ones(2))
    assert "'scale'" in str(caught.value) and "size 2" in str(caught.value), str(caught.value)


kept: list[Any] = []


@pytest.mark.parametrize("transform", [fx.jit, fx.grad, fx.checkpoint])
def test_leaked_tracers_are_named_with_the_line_that_made_them(transform: F) -> None:
    def keeps_value(x: Any) -> Any:
        kept.append(x * 2.0)  # made here
        return x.sum()

    def keeps_view(x: Any) -> Any:
        y = x * 1.0
        kept.append(y[1:])  # made here
        y[2] = 0.0
        return y.sum()

    def keeps_written(x: Any) -> Any:
        y = x * 1.0
        y[0] = 5.0  # made here
        kept.append(y)
        return y.sum()

    for f in (keeps_value, keeps_view, keeps_written):
        kept.clear()
        transform(f)(x3)
        with pytest.raises(fx.LeakedTracerError) as caught:
            kept[0] + 1.0
        assert f"'{f.__name__}'" in str(caught.value) and "# made here" in str(caught.value), str(caught.value)
        with pytest.raises(fx.LeakedTracerError, match="# made here"):
            fx.jit(lambda z: z + kept[0])(1.0)
        with pytest.raises(fx.LeakedTracerError, match="# made here"):
            kept[0][0] = 1.0
    kept.clear()
