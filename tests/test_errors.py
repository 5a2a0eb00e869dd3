"""Every error says four things: what failed, with names and types; where in the user's file; why; and what to write instead."""

from __future__ import annotations

import ast
import functools
import math
import pathlib
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.special as ss

import fxgrad as fx
from tests.four_parts import assert_four_parts, raised

F = Callable[..., Any]
ones = np.ones(3)


def under_vmap(f: F) -> F:
    return lambda x: fx.vmap(f)(np.stack([x, x]))


def under_jvp(f: F) -> F:
    return lambda x: fx.jvp(f, (x,), (x,))


def under_vjp(f: F) -> F:
    return lambda x: fx.vjp(f, x)[0]


def under_linearize(f: F) -> F:
    return lambda x: fx.linearize(f, x)[0]


# ---- leaked tracers ----------------------------------------------------------------------------------------------------------

ESCAPES: dict[str, tuple[F, str]] = {
    "jit": (fx.jit, "jit"),
    "grad": (fx.grad, "grad"),
    "value_and_grad": (fx.value_and_grad, "value_and_grad"),
    "vmap": (under_vmap, "vmap"),
    "jvp": (under_jvp, "jvp"),
    "vjp": (under_vjp, "vjp"),
    "linearize": (under_linearize, "linearize"),
    "checkpoint": (fx.checkpoint, "checkpoint"),
}
USES: dict[str, F] = {
    "add": lambda v: v + 1.0,
    "radd": lambda v: ones + v,
    "function": lambda v: np.sin(v),
    "fxgrad": lambda v: fx.numpy.sin(v),
    "index": lambda v: v[None],
    "bool": lambda v: bool(v),
    "float": lambda v: float(v),
    "int": lambda v: int(v),
    "at": lambda v: v.at[...].set(0.0),
    "method": lambda v: v.sum(),
    "argument": lambda v: fx.grad(lambda x: x * v)(1.0),
    "differentiated": lambda v: fx.grad(lambda x: x * x)(v),
    "compiled": lambda v: fx.jit(lambda x: x * 2)(v),
    "jvp": lambda v: fx.jvp(np.sin, (v,), (1.0,)),
    "stop_gradient": lambda v: fx.stop_gradient(v),
}  # fmt: skip


@pytest.mark.parametrize("transform", ESCAPES)
@pytest.mark.parametrize("use", USES)
def test_leaked_tracer(transform: str, use: str) -> None:
    stash: list[Any] = []

    def keeps(x: Any) -> Any:
        stash.append(x * 2.0)
        return x

    wrap, name = ESCAPES[transform]
    wrap(keeps)(1.0)
    assert_four_parts(
        raised(lambda: USES[use](stash[0]), fx.LeakedTracerError),
        what=[f"a traced f64[] escaped from {name} of 'keeps'", "made at test_errors.py:", "stash.append(x * 2.0)"],
        line=f'"{use}": lambda v:',
        why="only while its function is traced",
        fix="Return the value",
    )


def test_leaked_argument() -> None:
    """An input was made by no line; what it is an input of is still told."""
    stash: list[Any] = []
    fx.grad(lambda x: (stash.append(x), x)[1])(1.0)
    assert_four_parts(
        raised(lambda: stash[0] + 1, fx.LeakedTracerError),
        what="a traced f64[] escaped from grad of '<lambda>'",
        line="stash[0] + 1",
        why="only while its function is traced",
        fix="has_aux=True",
    )


def test_leak_into_an_inner_or_later_trace() -> None:
    stash: list[Any] = []

    def inner(y: Any) -> Any:
        stash.append(y * 3.0)
        return y

    def outer(x: Any) -> Any:
        fx.grad(inner)(x)
        return x * stash[-1]  # of a trace that has ended, inside one that has not

    for transform in (fx.grad, fx.jit, under_jvp):
        assert_four_parts(
            raised(lambda: transform(outer)(1.0), fx.LeakedTracerError),
            what=["escaped from grad of 'inner'", "stash.append(y * 3.0)"],
            line="return x * stash[-1]",
            why="only while",
            fix="Return the value",
        )


# ---- what can be differentiated --------------------------------------------------------------------------------------------

INTEGERS: dict[str, tuple[F, Any, str]] = {
    "int": (lambda x: x**2, 3, "argument 'x' has dtype int64"),
    "array": (lambda weights: np.sum(weights), np.arange(4), "argument 'weights' has dtype int64"),
    "uint8": (lambda x: np.sum(x), np.zeros(2, np.uint8), "argument 'x' has dtype uint8"),
    "bool": (lambda x: x * 1.0, True, "argument 'x' has dtype bool"),
    "leaf": (lambda p: p["w"] * p["b"][1], {"w": 1.0, "b": [2.0, 3]}, "argument 'p'['b'][1] has dtype int64"),
}


@pytest.mark.parametrize("case", INTEGERS)
@pytest.mark.parametrize("transform", [fx.grad, fx.value_and_grad, fx.jacfwd, fx.jacrev, fx.hessian])
def test_integer_inputs(case: str, transform: F) -> None:
    f, x, what = INTEGERS[case]
    derivative = transform(f)
    assert_four_parts(
        raised(lambda: derivative(x), fx.NonDifferentiableError),
        what=["needs floating-point inputs, but", what],
        line="derivative(x)",
        why="no derivative",
        fix=["astype(float)", "argnums="],
    )


OUTPUTS: dict[str, tuple[F, str, str]] = {
    "vector": (lambda x: x * 2.0, "a scalar output, got shape (3,) from", "fx.jacrev"),
    "one element": (lambda x: x[:1], "a scalar output, got shape (1,) from", "y[0]"),
    "pair": (lambda x: (x[0], x[1]), "a scalar output, '<lambda>' returned a tuple", "has_aux=True"),
    "nothing": (lambda x: None, "a scalar output, '<lambda>' returned a NoneType", "return"),
    "integer": (lambda x: np.argmax(x), "a real floating-point output, got int64 from", "astype"),
    "python int": (lambda x: 3, "a real floating-point output, got int from", "astype"),
    "bool": (lambda x: x[0] > 0, "a real floating-point output, got bool from", "astype"),
}


@pytest.mark.parametrize("case", OUTPUTS)
@pytest.mark.parametrize("transform", [fx.grad, fx.value_and_grad])
def test_outputs_that_have_no_gradient(case: str, transform: F) -> None:
    f, what, fix = OUTPUTS[case]
    assert_four_parts(
        raised(lambda: transform(f)(ones), fx.NonDifferentiableError),
        what=[f"{transform.__name__} needs ", what],
        line="transform(f)(ones)",
        why="A gradient is the derivative of one real number",
        fix=fix,
    )


@pytest.mark.parametrize("transform", [fx.grad, fx.value_and_grad])
def test_has_aux_needs_a_pair(transform: F) -> None:
    for f in (lambda x: x.sum(), lambda x: (x.sum(), 1, 2), lambda x: [x.sum(), 1]):
        assert_four_parts(
            raised(lambda: transform(f, has_aux=True)(ones), fx.errors.FxTypeError),
            what=f"{transform.__name__}(has_aux=True): '<lambda>' must return a pair (out, aux), got",
            line="transform(f, has_aux=True)(ones)",
            why="passed through",
            fix="return out, aux",
        )


def test_argnums_out_of_range() -> None:
    for transform in (fx.grad, fx.jacfwd, fx.jacrev):
        assert_four_parts(
            raised(lambda: transform(np.sin, argnums=1)(1.0), fx.errors.FxValueError),
            what=["argnums=1", "1 positional arguments"],
            line="transform(np.sin, argnums=1)(1.0)",
            why="from 0",
            fix="by position",
        )


def test_arguments_that_are_no_arrays() -> None:
    for transform in (fx.grad, fx.jit, fx.vmap, fx.jacrev, fx.checkpoint):
        assert_four_parts(
            raised(lambda: transform(lambda a: 1.0)("text"), fx.errors.FxTypeError),
            what="is a str, which is not an array or a number",
            line='transform(lambda a: 1.0)("text")',
            why="take arrays, numbers, and (nested)",
            fix=(["static_argnums"] if transform is fx.jit else []) + ["register_node"],
        )


# ---- cotangents and tangents -----------------------------------------------------------------------------------------------

Wrong = tuple[Any, type[Exception], str, str]
WrongType = fx.errors.FxTypeError


def pair(x: Any) -> Any:
    return {"a": x * 2.0, "b": (np.sum(x), np.argmax(x))}


UNLIKE = "the output of 'pair' and the cotangent given to its pullback differ in structure at"
COTANGENTS: dict[str, Wrong] = {
    "shape": ({"a": np.ones(2), "b": (1.0, None)}, ValueError, "['a'] {} has shape (2,), {} shape (3,)", "shape (3,)"),
    "rank": ({"a": 1.0, "b": (1.0, None)}, fx.errors.FxValueError, "['a'] {} has shape (), {} shape (3,)", "shape (3,)"),
    "dtype": ({"a": np.float32(ones), "b": (1.0, None)}, WrongType, "['a'] {} has dtype float32, {} dtype float64", "astype"),
    "integer": ({"a": np.ones(3, int), "b": (1.0, None)}, WrongType, "['a'] {} has dtype int64, {} dtype float64", "np.float64"),
    "nested": ({"a": ones, "b": (np.float32(1), None)}, WrongType, "['b'][0] {} has dtype float32, {} dtype float64", "astype"),
    "text": ({"a": "one", "b": (1.0, None)}, WrongType, "['a'] {} is a str", ""),
    "list for array": ({"a": [1.0, 1.0, 1.0], "b": (1.0, None)}, WrongType, "['a'] {} is a list", ""),
    "missing key": ({"a": ones}, fx.TreeMismatchError, f"{UNLIKE} the root: only the first has 'b'", "same keys"),
    "other key": ({"a": ones, "c": (1.0, None)}, fx.TreeMismatchError, f"{UNLIKE} the root: only the first has 'b'; only", ""),
    "list for tuple": ({"a": ones, "b": [1.0, None]}, fx.TreeMismatchError, f"{UNLIKE} ['b']: a tuple of 2 in the first", ""),
    "array for tree": (ones, fx.TreeMismatchError, f"{UNLIKE} the root: a dict with keys 'a', 'b' in the first, a leaf", ""),
    "too many": ({"a": ones, "b": (1.0, None, 1.0)}, fx.TreeMismatchError, f"{UNLIKE} ['b']: a tuple of 2 in the first", ""),
}  # fmt: skip


@pytest.mark.parametrize("case", COTANGENTS)
def test_wrong_cotangents(case: str) -> None:
    given, kind, what, fix = COTANGENTS[case]
    what = what.replace("{}", "given to the pullback of 'pair'", 1).replace("{}", "the output has")
    _, pullback = fx.vjp(pair, ones)
    assert_four_parts(raised(lambda: pullback(given), kind), what=what, line="pullback(given)", why="", fix=fix)


def test_right_cotangents_are_taken() -> None:
    _, pullback = fx.vjp(pair, ones)
    for a, b in ((ones, 1.0), (ones, 1), (ones, np.float64(1)), (None, 1.0), (ones, None)):
        (g,) = pullback({"a": a, "b": (b, None)})
        np.testing.assert_array_equal(g, 2.0 * (a is not None) * ones + (b is not None))
    np.testing.assert_array_equal(pullback(None)[0], 0 * ones)
    _, pullback = fx.vjp(lambda x: {"y": x, "nothing": None}, ones)  # None is also an empty tree
    np.testing.assert_array_equal(pullback({"y": ones, "nothing": None})[0], ones)
    np.testing.assert_array_equal(pullback({"y": None, "nothing": None})[0], 0 * ones)


SET = "'p'['w'] has"
UNLIKE = "the primals and the tangents differ in structure at [0]:"
TANGENTS: dict[str, Wrong] = {
    "shape": (({"w": np.ones(2), "i": None},), fx.errors.FxValueError, f"{SET} shape (2,), the primal has shape (3,)", "(3,)"),
    "dtype": (({"w": np.float32(ones), "i": None},), WrongType, f"{SET} dtype float32, the primal has dtype float64", "astype"),
    "other key": (({"v": ones, "i": None},), fx.TreeMismatchError, f"{UNLIKE} only the first has 'w'", "same keys"),
    "missing key": (({"w": ones},), fx.TreeMismatchError, f"{UNLIKE} only the first has 'i'", "same keys"),
    "too many": ((ones, ones), fx.TreeMismatchError, "got 1 primals and 2 tangents", "None"),
}  # fmt: skip


@pytest.mark.parametrize("case", TANGENTS)
def test_wrong_tangents(case: str) -> None:
    given, kind, what, fix = TANGENTS[case]

    def f(p: Any) -> Any:
        return p["w"] * p["i"]

    primals = ({"w": ones, "i": 2},)
    error = raised(lambda: fx.jvp(f, primals, given), kind)
    assert_four_parts(error, what=what, line="fx.jvp(f, primals, given)", why="", fix=fix)
    _, f_jvp = fx.linearize(f, *primals)
    assert_four_parts(raised(lambda: f_jvp(*given), kind), what=what, line="f_jvp(*given)", why="", fix=fix)


def test_tangents_must_come_in_a_sequence() -> None:
    assert_four_parts(
        raised(lambda: fx.jvp(np.sin, 1.0, 1.0), fx.errors.FxTypeError),
        what="jvp takes primals and tangents as tuples",
        line="fx.jvp(np.sin, 1.0, 1.0)",
        why="one entry for each argument",
        fix="jvp(f, (x,), (t,))",
    )


# ---- Python numbers ----------------------------------------------------------------------------------------------------------

CUTS: dict[str, F] = {
    "float": lambda x: float(x) * x,
    "math.exp": lambda x: math.exp(x),
    "math.pow": lambda x: math.pow(2.0, x),
    "complex": lambda x: complex(x).real,
    "item": lambda x: x.item(),
    "tolist": lambda x: x.tolist(),
    "derived": lambda x: math.sqrt(np.sin(x) ** 2 + 1.0),
}


@pytest.mark.parametrize("case", CUTS)
@pytest.mark.parametrize("transform", [fx.grad, fx.value_and_grad, under_jvp, under_vjp, under_linearize, fx.jacrev])
def test_python_numbers_of_differentiated_values(case: str, transform: F) -> None:
    assert_four_parts(
        raised(lambda: transform(CUTS[case])(1.5), fx.NonDifferentiableError),
        what="cannot use a traced f64[] as a Python",
        line=f'"{case}": lambda x:',
        why="would cut the gradient silently",
        fix=["np.exp for math.exp", "fx.stop_gradient(x)"],
    )


@pytest.mark.parametrize("transform", [fx.grad, under_jvp, under_vjp, under_linearize])
def test_python_numbers_that_cut_nothing(transform: F) -> None:
    table = np.arange(4.0)

    def f(x: Any, n: Any = 3.0) -> Any:
        k = float(fx.stop_gradient(x)) + math.exp(fx.stop_gradient(np.sin(x)))
        k += float(fx.numpy.sum(table)) + math.floor(fx.stop_gradient(x)) + int(x) + round(float(fx.stop_gradient(x)))
        return x * k + float(np.argmax(fx.numpy.asarray(table))) * bool(x > 0) + float(fx.numpy.asarray(n))

    assert np.all(np.isfinite(transform(f)(1.5)))
    k = 1.5 + math.exp(math.sin(1.5)) + 6 + 1 + 1 + 2
    assert fx.grad(f)(1.5) == k
    assert fx.grad(lambda x, n: x * float(n), 0)(2.0, 3.0) == 3.0  # n is not differentiated
    assert fx.jvp(lambda x, n: x * float(n), (2.0, 3.0), (1.0, None))[1] == 3.0


def test_float_of_an_outer_differentiated_value() -> None:
    """A value that an outer transform differentiates is not safe in an inner one."""

    def outer(x: Any) -> Any:
        return fx.grad(lambda y: y * float(x))(2.0)

    assert_four_parts(
        raised(lambda: fx.grad(outer)(1.5), fx.NonDifferentiableError),
        what="cannot use a traced f64[] as a Python float",
        line="fx.grad(lambda y: y * float(x))",
        why="would cut",
        fix="stop_gradient",
    )


@pytest.mark.parametrize("transform", [fx.jit, under_vmap])
def test_float_under_jit_and_vmap(transform: F) -> None:
    for f in (lambda x: float(x), lambda x: math.exp(x), lambda x: x.item()):
        assert ".at[" not in str(raised(lambda: transform(f)(1.5), fx.ConcretizationError))
        assert_four_parts(
            raised(lambda: transform(f)(1.5), fx.ConcretizationError),
            what="cannot use a traced f64[] as a Python float",
            line="for f in (lambda x: float(x)",
            why="only its shape and dtype",
            fix="np.exp for math.exp",
        )


LOOKED_UP: dict[str, F] = {
    "set": lambda x: x * len({x}),
    "key": lambda x: x * len({x: 1}),
    "cached": lambda x: functools.cache(lambda y: y)(x),
}


@pytest.mark.parametrize("case", LOOKED_UP)
@pytest.mark.parametrize("transform", [fx.grad, fx.jit, under_vmap])
def test_tracers_are_not_hashable(case: str, transform: F) -> None:
    error = raised(lambda: transform(LOOKED_UP[case])(1.5), TypeError)
    assert_four_parts(error, what="a traced f64[] is not hashable", line=f'"{case}": lambda x:', why="element by", fix="a list")


STRANGE: dict[str, tuple[Any, str]] = {
    "longdouble": (np.ones(2, np.longdouble), "x.astype(np.float64)"),
    "complex": (np.ones(2, np.clongdouble), "x.astype(np.complex128)"),
    "object": (np.array([1, 2.0], object), "x.astype(np.float64)"),
    "scalar": (np.longdouble(1), "x.astype(np.float64)"),
    "dates": (np.array(["2020-01-01"], "M8[D]"), "(x - x.min()).astype(np.float64)"),
    "text": (np.array(["a"]), "np.unique(x, return_inverse=True)"),
    "records": (np.zeros(2, [("a", float)]), "x[name]"),
}


@pytest.mark.parametrize("case", STRANGE)
@pytest.mark.parametrize("transform", [fx.grad, fx.jit, fx.vmap])
def test_arrays_of_dtypes_that_programs_do_not_have(case: str, transform: F) -> None:
    x, fix = STRANGE[case]
    assert_four_parts(
        raised(lambda: transform(lambda x: x)(x), fx.errors.FxTypeError),
        what=["argument 'x' of", str(x.dtype)],
        line="transform(lambda x: x)(x)",
        why="up to 64 bits",
        fix=fix,
    )


def test_hvp_speaks_of_itself() -> None:
    error = raised(lambda: fx.hvp(lambda x: x**3, 1.0, 1.0), fx.errors.FxTypeError)
    assert_four_parts(error, what="hvp takes", line="fx.hvp(", why="one entry", fix="fx.hvp(f, (x,), (t,))")


# ---- control flow --------------------------------------------------------------------------------------------------------------


def branches(x: Any) -> Any:
    if np.sum(x) > 0:
        y = x * 2.0
    else:
        y = x * 3.0
    while np.sum(y) < 10:
        y = y * 2.0
    return y if not isinstance(x, np.ndarray) or x.shape else y[()]


def test_control_flow_on_known_values() -> None:
    """`if` and `while` on traced values work wherever values are known."""

    def loss(x: Any) -> Any:
        return np.sum(branches(x))

    up, down = ones, -ones
    for f in (loss, fx.checkpoint(loss)):
        np.testing.assert_array_equal(fx.grad(f)(up), [4, 4, 4])
        assert fx.jvp(f, (up,), (up,))[1] == 12
        assert fx.vjp(f, up)[1](1.0)[0][0] == 4
        assert fx.linearize(f, up)[1](up) == 12
        assert fx.value_and_grad(f)(up)[0] == 12
    with pytest.raises(RecursionError):
        endless(down)
    np.testing.assert_array_equal(fx.grad(lambda x: np.sum(x * 2.0 if x[0] > 0 else x * 3.0))(down), [3, 3, 3])
    np.testing.assert_array_equal(fx.hessian(lambda x: np.sum(x**3 if x[0] > 0 else x**2))(up), 6 * np.eye(3))
    np.testing.assert_array_equal(fx.grad(lambda x: fx.grad(lambda y: y**3 if y > x else y * x)(2.0) * x)(3.0), 6.0)


def endless(x: Any) -> Any:
    return endless(x)


@pytest.mark.parametrize("transform", [fx.jit, under_vmap, lambda f: fx.jit(fx.grad(f)), lambda f: fx.grad(fx.jit(f))])
def test_control_flow_on_unknown_values(transform: F) -> None:
    def f(x: Any) -> Any:
        if np.sum(x) > 0.1:
            return np.sum(x * 2.0)
        return np.sum(x)

    assert_four_parts(
        raised(lambda: transform(f)(ones), fx.ConcretizationError),
        what="cannot use a traced bool[] as a Python bool",
        line="if np.sum(x) > 0.1:",
        why="the value is not known yet, only its shape and dtype",
        fix=["np.where(", "fx.cond("],
    )


INTEGERS_WANTED: dict[str, tuple[F, str]] = {
    "int": (lambda x: x * int(x), "Python int"),
    "range": (lambda x: sum(x for _ in range(x.astype(int))), "an index or a size"),
    "size": (lambda x: np.zeros_like(x, shape=x.astype(int)), "size"),
}


@pytest.mark.parametrize("case", INTEGERS_WANTED)
@pytest.mark.parametrize("transform", [fx.jit, under_vmap])
def test_integers_of_unknown_values(case: str, transform: F) -> None:
    f, what = INTEGERS_WANTED[case]
    assert_four_parts(
        raised(lambda: transform(f)(2.0), fx.ConcretizationError),
        what=["cannot use a traced", what],
        line=f'"{case}": (lambda x:',
        why="only its shape and dtype",
        fix="static",
    )
    assert np.all(np.isfinite(fx.jvp(f, (2.0,), (1.0,))[0]))


# ---- NumPy ---------------------------------------------------------------------------------------------------------------------

UNSUPPORTED: dict[str, tuple[F, str, str]] = {
    "isnat": (lambda x: np.isnat(x), "np.isnat", "Similar names"),
    "busday_count": (lambda x: np.busday_count(x, x), "np.busday_count", "Convert to floats"),
    "is_busday": (lambda x: np.is_busday(x), "np.is_busday", "Convert to floats"),
    "savetxt": (lambda x: np.savetxt("x.txt", x), "np.savetxt", "outside"),
    "airy": (lambda x: ss.airy(x)[0], "scipy.special.airy", ""),
    "reduceat": (lambda x: np.add.reduceat(x, [0, 1]), "np.add.reduceat", "np.add.reduce"),
    "accumulate": (lambda x: np.hypot.accumulate(x), "np.hypot.accumulate", "fx.lax.associative_scan(np.hypot, x, axis=0)"),
    "frompyfunc": (lambda x: np.frompyfunc(abs, 1, 1)(x), "np.frompyfunc", "np.vectorize(f)"),
}


@pytest.mark.parametrize("case", UNSUPPORTED)
@pytest.mark.parametrize("transform", [fx.grad, fx.jit, under_vmap])
def test_unsupported_functions(case: str, transform: F) -> None:
    f, what, fix = UNSUPPORTED[case]
    assert_four_parts(
        raised(lambda: transform(f)(ones), fx.UnsupportedError),
        what=[what, "is not supported"],
        line=f'"{case}": (lambda x:',
        why=".",
        fix=fix,
    )


plain, square, where = np.zeros(3), np.zeros((2, 2)), np.array([True, False, True])


def add_to(buffer: Any, v: Any) -> None:
    buffer += v


def multiplied(buffer: Any, v: Any) -> None:
    buffer *= v


def accumulate(x: Any) -> Any:
    total = np.zeros(3)
    total[:] = 1.0
    total += x  # a plain array
    return total.sum()


WRITES: dict[str, tuple[F, str, str, str]] = {
    "iadd": (lambda x: add_to(plain, x), "np.add", "buffer += v", "a = a + v"),
    "imul": (lambda x: multiplied(plain, x), "np.multiply", "buffer *= v", "a = a + v"),
    "local": (accumulate, "np.add", "total += x  # a plain array", "np.zeros_like(x, shape=n)"),
    "out": (lambda x: np.add(plain, x, out=plain), "np.add(", '"out"', "a = a + v"),
    "out of one": (lambda x: np.sin(x, out=plain), "np.sin(", '"out of one"', "y = np.sin(...)"),
    "positional out": (lambda x: np.sin(x, plain), "np.sin(", '"positional out"', "y = np.sin(...)"),
    "sum": (lambda x: np.sum(x, out=plain[0:1]), "np.sum(", '"sum"', "y = np.sum(...)"),
    "clip": (lambda x: np.clip(x, 0, 1, out=plain), "np.clip(", '"clip"', "y = np.clip(...)"),
    "matmul": (lambda x: np.matmul(x, x, out=plain[0]), "np.matmul(", '"matmul"', "y = np.matmul(...)"),
    "concatenate": (lambda x: np.concatenate([x], out=plain), "np.concatenate(", '"concatenate"', "y = np.concatenate(...)"),
    "add.at": (lambda x: np.add.at(plain, [0, 1, 2], x), "np.add.at", '"add.at"', ".at[i].add(v)"),
    "copyto": (lambda x: np.copyto(plain, x), "np.copyto", '"copyto"', "np.where(mask, v, a)"),
    "full_like": (lambda x: np.full_like(plain, x), "np.full_like", '"full_like"', "np.full_like(x, v)"),
    "full": (lambda x: np.full(3, x, dtype=float), "np.full", '"full"', "np.full(shape, v) of fxgrad.numpy"),
    "nan_to_num": (lambda x: np.nan_to_num(plain, nan=x), "np.nan_to_num", '"nan_to_num"', "np.where"),
    "put": (lambda x: np.put(plain, [0], x), "np.put", '"put"', ".at[i].set(v)"),
    "place": (lambda x: np.place(plain, where, x), "np.place", '"place"', "np.where(mask, v, a)"),
    "putmask": (lambda x: np.putmask(plain, where, x), "np.putmask", '"putmask"', "np.where(mask, v, a)"),
    "put_along_axis": (lambda x: np.put_along_axis(plain, np.array([0]), x, 0), "np.put_along_axis", "put_along_axis", ".at["),
}  # fmt: skip


@pytest.mark.parametrize("case", WRITES)
@pytest.mark.parametrize("transform", [fx.grad, fx.jit, under_jvp, under_vmap])
def test_writes_into_plain_arrays(case: str, transform: F) -> None:
    f, what, line, fix = WRITES[case]
    assert_four_parts(
        raised(lambda: transform(f)(ones), fx.MutationError), what=what, line=line, why="would lose the connection", fix=fix
    )
    assert not plain.any() and not square.any()


ASSIGNMENTS: dict[str, F] = {
    "element": lambda x: plain.__setitem__(0, x[0]),
    "slice": lambda x: plain.__setitem__(slice(None), x),
    "fill": lambda x: plain.fill(x[0]),
    "fill_diagonal": lambda x: np.fill_diagonal(square, x[0]),
    "put": lambda x: plain.put([0], x[0]),
    "array": lambda x: np.array([x[0], x[1]]),
    "asarray": lambda x: np.asarray(x),
    "mean of a list": lambda x: np.mean([x, x]),
}


@pytest.mark.parametrize("case", ASSIGNMENTS)
@pytest.mark.parametrize("transform", [fx.grad, fx.jit])
def test_where_numpy_does_not_dispatch(case: str, transform: F) -> None:
    """An assignment, a list of traced values: NumPy asks the tracer for numbers, and that is where we can speak."""
    writes = case in ("element", "slice", "fill", "fill_diagonal", "put")
    error = raised(lambda: transform(ASSIGNMENTS[case])(ones), fx.MutationError if writes else fx.errors.FxTypeError)
    what = "would write a traced value into a plain NumPy array" if writes else "cannot turn"
    assert_four_parts(error, what=what, line=f'"{case}": lambda x:', why="", fix=".at[i].set(")
    assert not plain.any() and not square.any()


def test_index_of_a_plain_table() -> None:
    """Integers carry no derivative: where they are known they may index, as int() of one may."""

    def f(x: Any) -> Any:
        return np.sum(x * table[x.astype(int)])

    table = np.arange(4.0)
    assert_four_parts(
        raised(lambda: fx.jit(f)(ones), fx.errors.FxTypeError),
        what="cannot",
        line="table[x.astype(int)]",
        why="",
        fix="fx.asarray",
    )
    np.testing.assert_array_equal(fx.grad(f)(ones), ones)


IN_PLACE: dict[str, F] = {
    "item": lambda x: x.__setitem__(0, 1.0),
    "view": lambda x: x[1:].__setitem__(0, 1.0),
    "iadd": lambda x: x.__iadd__(1.0),
    "isub": lambda x: x.__isub__(1.0),
    "imul": lambda x: x.__imul__(2.0),
    "idiv": lambda x: x.__itruediv__(2.0),
    "ipow": lambda x: x.__ipow__(2),
    "imatmul": lambda x: x.__imatmul__(np.eye(3)),
    "sort": lambda x: x.sort(),
    "fill": lambda x: x.fill(0.0),
    "out=": lambda x: np.sin(ones, out=x),
    "put": lambda x: np.put(x, 0, 1.0),
    "add.at": lambda x: np.add.at(x, 0, 1.0),
}


@pytest.mark.parametrize("case", IN_PLACE)
@pytest.mark.parametrize("transform", [fx.grad, fx.jit, under_vmap, under_jvp, fx.checkpoint])
def test_in_place_on_arguments(case: str, transform: F) -> None:
    assert_four_parts(
        raised(lambda: transform(IN_PLACE[case])(ones), fx.MutationError),
        what=[f"cannot change a traced f64[{2 if case == 'view' else 3}] in place", "an argument of the transformed function"],
        line=f'"{case}": lambda x:',
        why="NumPy would change the caller's array",
        fix=["x = x.copy()", "x.at[i].set(v)"],
    )


def test_scalars_are_rebound() -> None:
    def scalar(x: Any) -> Any:
        y = x.sum()
        z = y
        y += 1.0  # rebinds, as it does for NumPy's scalars
        return y * z

    np.testing.assert_array_equal(fx.grad(scalar)(ones), 7 * ones)


# ---- custom rules, vmap, jit ---------------------------------------------------------------------------------------------------


def custom(fwd: F | None, bwd: F | None) -> Any:
    h = fx.custom_vjp(lambda x: x * 2.0)
    if fwd is not None and bwd is not None:
        h.defvjp(fwd, bwd)
    return h


CUSTOM: dict[str, tuple[Any, type[Exception], str]] = {
    "no rule": (custom(None, None), fx.NonDifferentiableError, "has no derivative rule"),
    "no tuple": (custom(lambda x: (x, None), lambda r, g: g), fx.errors.FxTypeError, "must return a tuple"),
    "count": (custom(lambda x: (x, None), lambda r, g: (g, g)), fx.TreeMismatchError, "returned 2 cotangents for 1 arguments"),
    "shape": (custom(lambda x: (x, None), lambda r, g: (g[:2],)), ValueError, "output 0 has shape (2,), argument has shape (3,)"),
    "dtype": (custom(lambda x: (x, None), lambda r, g: (np.float32(ones),)), TypeError, "output 0 has dtype float32, argument"),
    "fwd": (custom(lambda x: x, lambda r, g: (g,)), fx.errors.FxTypeError, "must return a pair (out, residuals)"),
    "fwd shape": (custom(lambda x: (x[:2], None), lambda r, g: (g,)), fx.errors.FxValueError, "has shape (2,)"),
}  # fmt: skip


@pytest.mark.parametrize("case", CUSTOM)
@pytest.mark.parametrize("transform", [fx.grad, lambda f: fx.jit(fx.grad(f)), lambda f: fx.grad(fx.jit(f))])
def test_wrong_custom_rules(case: str, transform: F) -> None:
    h, kind, what = CUSTOM[case]

    def loss(x: Any) -> Any:
        return np.sum(h(x))

    error = raised(lambda: transform(loss)(ones), kind)
    assert_four_parts(error, what=["custom_vjp", what], line="np.sum(h(x))", why="", fix="")


def test_forward_mode_of_custom_vjp() -> None:
    h = custom(lambda x: (x, None), lambda r, g: (g,))
    error = raised(lambda: fx.jvp(lambda x: h(x), (ones,), (ones,)), fx.NonDifferentiableError)
    assert_four_parts(error, what="custom_vjp", line="fx.jvp(lambda x: h(x), (ones,), (ones,))", why="", fix="custom_jvp")


VMAP: dict[str, tuple[Callable[[], Any], str, str]] = {
    "sizes": (lambda: fx.vmap(np.add)(np.ones(2), np.ones(3)), "different batch sizes", "in_axes=None"),
    "no axis": (lambda: fx.vmap(np.sin)(1.0), "has no axis 0", "in_axes=None"),
    "axis": (lambda: fx.vmap(np.sin, in_axes=2)(np.ones((2, 2))), "has no axis 2", "in_axes=None"),
    "nothing": (lambda: fx.vmap(np.sin, in_axes=None)(ones), "has no batched argument", "in_axes"),
    "count": (lambda: fx.vmap(np.sin, in_axes=(0, 0))(ones), "in_axes for 2 arguments", ""),
    "prefix": (lambda: fx.vmap(lambda x: x, in_axes=({"a": 0},))({"b": ones}), "is not a prefix of", "in_axes"),
    "unbatched out": (lambda: fx.vmap(np.sin, out_axes=None)(ones), "out_axes=None for a result that depends", "out_axes=0"),
    "out axis": (lambda: fx.vmap(np.sin, out_axes=3)(ones), "out_axes=3 is out of range", ""),
}


@pytest.mark.parametrize("case", VMAP)
def test_wrong_axes_of_vmap(case: str) -> None:
    call, what, fix = VMAP[case]
    assert_four_parts(raised(call, ValueError), what=["vmap", what], line=f'"{case}": (lambda:', why="", fix=fix)


def test_wrong_settings_of_jit() -> None:
    def f(x: Any, n: Any = 1) -> Any:
        return x * n

    not_hashable = raised(lambda: fx.jit(f, static_argnums=1)(ones, [1]), fx.errors.FxTypeError)
    assert_four_parts(not_hashable, what="is not hashable", line="(ones, [1])", why="", fix="tuples")
    unknown = raised(lambda: fx.jit(f, static_argnames="m"), fx.errors.FxValueError)
    assert_four_parts(unknown, what="no parameter 'm'", line='static_argnames="m"', why="", fix="x, n")
    no_function = raised(lambda: fx.jit(3), fx.errors.FxTypeError)
    assert_four_parts(no_function, what="jit takes a function, got int", line="fx.jit(3)", why="", fix="fx.jit(f)")


def test_errors_pickle() -> None:
    import copy
    import pickle

    error = raised(lambda: fx.grad(lambda x: x)(ones), fx.NonDifferentiableError)
    for other in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(other) is type(error) and str(other) == str(error)


def test_helper_notices_a_missing_part() -> None:
    good = raised(lambda: fx.grad(lambda x: x)(ones), fx.NonDifferentiableError)
    with pytest.raises(AssertionError):
        assert_four_parts(good, what="scalar", line="another line", why="", fix="")
    with pytest.raises(AssertionError):
        assert_four_parts(fx.errors.FxTypeError("only one part"), what="only", line="", why="", fix="")


def test_numpy_is_no_users_file_whoever_is_imported_first() -> None:
    """Lines of NumPy are never blamed, also when fxgrad is the first to import it."""
    code = "import fxgrad.errors, numpy; print(fxgrad.errors.is_internal(numpy.full.__code__))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "True\n"


@pytest.mark.parametrize("part", ["api", "numpy", "primitives", "runtime", "scipy", "trace", "."])
def test_messages_say_why_and_what_to_do(part: str) -> None:
    """Every error that is raised as `errors.Kind(...)` gives both; what failed and where come by themselves."""
    package = pathlib.Path(fx.__file__).parent
    incomplete = []
    for path in sorted((package / part).glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr.endswith("Error"):
                given = {k.arg for k in node.keywords}
                if ast.unparse(node.func.value) == "errors" and not {"why", "fix"} <= given:
                    incomplete.append(f"{path.name}:{node.lineno}")
    assert not incomplete
