"""The gradient checks: every kind of planted fault is caught and named, nothing right is accused, for all libraries."""

from __future__ import annotations

import json
import math
import pickle
import subprocess
import sys
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

import fxgrad as fx
import fxgrad.numpy as fnp
from fxgrad.testing import GradientError, assert_gradients, check_grads, check_jvp, check_vjp, gradient_error_curve
from fxgrad.testing.__main__ import main
from tests.cases import CASES, Case
from tests.four_parts import assert_four_parts, raised

pytest_plugins = ("pytester",)
F = Callable[..., Any]
ROOT = Path(__file__).resolve().parent.parent
RNG = np.random.default_rng(5)
X, W, SQUARE, A = RNG.normal(size=(3, 4)), RNG.normal(size=4), RNG.normal(size=(5, 5)), RNG.normal(size=(5, 5))
BIG = RNG.normal(size=(100, 100))


def caught(call: Callable[[], Any]) -> GradientError:
    with pytest.raises(GradientError) as found:
        call()
    assert isinstance(found.value, AssertionError)
    return found.value


QR = next(c for c in CASES if c.name == "qr_q").arrays(((2, 4),), "float32")[0]


# ---- planted faults --------------------------------------------------------------------------------------------------------


def one_entry_off(x: np.ndarray) -> np.ndarray:
    g = 2 * x
    g[41, 7] *= 1 + 1e-6
    return g


PLANTED: dict[str, tuple[F, np.ndarray, F, str]] = {
    "missing factor": (lambda x: np.sum(x * x), X, lambda x: x, "it is 1/2"),
    "mean as sum": (lambda x: np.mean(x * x), X, lambda x: 2 * x, "it is 12 times"),
    "other factor": (lambda x: np.sum(np.exp(x)), X, lambda x: 1.1 * np.exp(x), "constant factor 1.1"),
    "sign": (lambda x: np.sum(np.cos(x)), X, np.sin, "the sign is wrong"),
    "transposed": (lambda x: np.sum(x * A), SQUARE, lambda x: A.T, "transposed"),
    "reversed": (lambda x: np.sum(x * A), SQUARE, lambda x: A[:, ::-1], "reversed along the last axis"),
    "missing broadcast sum": (lambda b: np.sum((SQUARE + b) ** 2), A[0], lambda b: 2 * (SQUARE + b), "missing sum over axes [0]"),
    "broadcast, one row": (lambda b: np.sum(np.ones((6, 1)) * b), W, np.ones_like, "1/6 of what it should be"),
    "missing accumulation": (lambda x: np.sum(x + x + x), W, np.ones_like, "1/3 of what it should be: a missing accumulation"),
    "accumulated again": (lambda x: np.sum(np.sin(x)), W, lambda x: 4 * np.cos(x), "it is 4 times"),
    "one entry of 10,000": (lambda x: np.sum(x * x), BIG, one_entry_off, "only 1 of 40 entries"),
    "no flow": (lambda x: np.sum(x * x), W, np.zeros_like, "no gradient flows"),
    "constant": (lambda x: 3.0 + 0 * np.sum(x), W, np.ones_like, "does not change with this argument"),
    "branch not taken": (
        lambda x: np.sum(np.where(x > 0, np.sqrt(np.abs(x)), 0.0)),
        np.array([1.0, -2.0]),
        lambda x: 0.5 / np.sqrt(x),
        "NaN where the function is smooth",
    ),
    "kink": (
        lambda x: np.sum(np.maximum(x, 0)),
        np.array([1.0, 0.0, -1.0]),
        lambda x: (x > 0) * 1.0,
        "the slope from the left is 0, from the right 1; the computed value is the one from the left",
    ),
    "one sign of many": (lambda x: np.sum(np.abs(x)), W, np.ones_like, "the sign is wrong"),
}


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")  # of the planted rule
@pytest.mark.parametrize("name", PLANTED)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_planted(name: str, dtype: str) -> None:
    f, x, grad, hint = PLANTED[name]
    x = x.astype(dtype)
    error = caught(lambda: check_grads(f, (x,), grad=grad))
    assert hint in str(error), str(error)
    if name == "one entry of 10,000":
        assert error.findings[0].index == (41, 7)
        assert error.findings[0].ulps > 1e5


def test_right_gradients_of_the_same_functions_pass() -> None:
    for f, x, _, hint in PLANTED.values():
        if "slope" not in hint:
            check_grads(f, (x,), order=1)


def test_message_has_four_parts() -> None:
    def cube(w: dict) -> Any:
        return np.sum(w["layers"][1] ** 3)

    w = {"layers": [np.ones(2), np.arange(1.0, 7.0).reshape(2, 3)], "n": 3}
    error = raised(lambda: check_grads(cube, (w,), grad=lambda w: {"layers": [None, w["layers"][1] ** 2]}), AssertionError)
    assert_four_parts(
        error,
        what="the derivative of 'cube' is wrong: reverse mode, argument 'w'['layers'][1][1, 2]",
        line="check_grads(cube",
        why="computed 36, measured 108 +- ",
        fix="it is 1/3",
    )
    finding = error.findings[0]  # type: ignore[attr-defined]
    assert (finding.path, finding.index, finding.computed) == ("argument 'w'['layers'][1]", (1, 2), 36.0)
    assert abs(finding.measured - 108) <= 10 * finding.bar < 1e-8


def custom(rule: F) -> F:
    f = fx.custom_vjp(lambda x: x**3)
    f.defvjp(lambda x: (x**3, x), lambda x, g: (rule(x, g),))
    return f


def test_the_error_can_be_sent_to_another_process() -> None:
    error = caught(lambda: check_grads(lambda x: np.sum(x), (W,), grad=lambda x: 2 + 0 * x))
    again = pickle.loads(pickle.dumps(error))
    assert str(again) == str(error) and again.findings == error.findings


def test_second_order() -> None:
    """The first derivative is right, the derivative of it is not."""
    wrong = fx.custom_jvp(lambda x: 3 * x**2)
    wrong.defjvp(lambda p, t: (3 * p[0] ** 2, 5 * p[0] * t[0]))
    f = fx.custom_jvp(lambda x: x**3)
    f.defjvp(lambda p, t: (f(p[0]), wrong(p[0]) * t[0]))
    assert check_grads(f, (W,), order=1).order == 1
    error = caught(lambda: check_grads(f, (W,)))
    assert "forward over forward" in str(error) and "0.833333" in str(error)
    assert len(error.findings) == 2 and error.findings[1].mode == "reverse over forward"


def test_a_long_program_is_traced_a_few_times_only() -> None:
    """Derivatives of derivatives are measured at many points, but made once, unless the function needs values."""
    calls, x = [], np.array([1.3, 0.4])

    def f(x: Any) -> Any:
        calls.append(type(x))
        y = np.abs(x[0])
        for _ in range(5):
            y = y + 0.1 * np.sin(y) * x[1]
        return y

    def with_values(x: Any) -> Any:
        return f(x) if x[0] > 0 else -f(x)

    check = check_grads(f, (x,))
    few = sum(kind is not np.ndarray for kind in calls)
    calls.clear()
    assert str(check_grads(with_values, (x,))) == str(check).replace("'f'", "'with_values'")
    assert few < 40 < sum(kind is not np.ndarray for kind in calls)


def test_modes_are_told_apart() -> None:
    f = fx.custom_jvp(lambda x: fnp.sin(x))
    f.defjvp(lambda p, t: (fnp.sin(p[0]), fnp.cos(p[0]) * t[0]))
    found = check_grads(f, (X,), order=2, modes="rev")
    assert found.modes == ["reverse mode", "reverse over reverse"]
    error = caught(lambda: check_grads(custom(lambda x, g: g * x), (X,), modes="rev", order=1))
    assert [each.mode for each in error.findings] == ["reverse mode"] and "the sum of 12 results" in str(error)


# ---- nothing right is accused ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", [c for c in CASES if c.differentiable and c.name != "custom_vjp_call"][::14], ids=str)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_operations(case: Case, dtype: str) -> None:
    if dtype in case.dtypes:
        args = case.arrays(case.shapes[min(2, len(case.shapes) - 1)], dtype)
        check_grads(case.f, tuple(args), order=2 if case.smooth and dtype == "float64" else 1)


HARD: dict[str, tuple[F, tuple]] = {
    "zero of third order": (lambda x: np.sum(x**3), (np.zeros(3),)),
    "scales apart": (lambda x: np.sum(np.log(x)), (np.array([1e-8, 1.0, 1e8]),)),
    "kink next to the point": (lambda x: np.sum(np.maximum(x, 0) ** 2 + np.abs(x)), (np.array([1e-5, -1e-3, 0.5]),)),
    "large values": (lambda x: 1e6 + np.sum(np.sin(x)), (W,)),
    "fast": (lambda x: np.sum(np.sin(100 * x)), (W,)),
    "period that steps could fit": (lambda x: np.sum(np.sin(2 * np.pi * x)), (np.array([1.0, 2.0, 0.25]),)),
    "narrow": (lambda x: np.sum(np.exp(-((x / 1e-3) ** 2))), (np.array([1e-3, 1.0]),)),
    "cancellation": (lambda x: np.sum((1e4 + x) ** 2 - 1e8 - 2e4 * x), (W,)),
    "edge of the domain": (lambda x: np.sum(np.arcsin(x)), (np.array([0.999999, -0.5]),)),
    "Python number": (lambda x: x * 2.0 + 1.0, (3.0,)),
    "broadcast": (lambda x, y: x * y + x / (2 + y**2), (X[:, :1], W)),
    "complex": (lambda z: z * fnp.conj(z) + z**2, (X[0] + 1j * X[1],)),
    "parts": (lambda z: fnp.sum(z.real**3 * z.imag), (X[0] + 1j * X[1],)),
    "nothing": (lambda x: np.sum(x) * 0 + 1.0, (np.zeros((0, 3)),)),
    "zero by cancellation": (lambda x: fnp.linalg.qr(x)[0], (QR,)),
    "half": (lambda x: fnp.sum(fnp.tanh(x) * x), (X.astype(np.float16),)),
}


@pytest.mark.parametrize("name", HARD)
def test_hard_but_right(name: str) -> None:
    f, args = HARD[name]
    found = check_grads(f, args, order=1)
    assert found.comparisons > 0 or name == "nothing"
    if args[0] is W or name in ("narrow", "scales apart"):  # and a fault of one in ten million is seen there
        grad = fx.grad(f)
        caught(lambda: check_grads(f, args, grad=lambda x: grad(x) * (1 + 1e-4)))


RANGE: dict[str, tuple[F, np.ndarray, F]] = {
    "large arguments": (lambda x: np.sum(np.sin(x / 1e200)), 1e200 * W, lambda x: np.cos(x / 1e200) / 1e200),
    "small arguments": (lambda x: np.sum(np.sin(x * 1e200)), 1e-200 * W, lambda x: np.cos(x * 1e200) * 1e200),
    "large derivatives": (lambda x: 1e200 * np.sum(np.sin(x)), W, lambda x: 1e200 * np.cos(x)),
    "overflow a step away": (lambda x: np.sum(np.exp(x)), np.array([700.0, 1.0]), np.exp),
    "growing": (lambda x: np.sum(np.exp(x)), np.array([100.0]), np.exp),
    "growing faster": (lambda x: np.sum(np.cosh(x * x)), np.array([25.0]), lambda x: 2 * x * np.sinh(x * x)),
    "a power that overflows": (lambda x: np.sum(x**100), np.array([1100.0, 1.0]), lambda x: 100 * x**99),
    "the edge of float32": (lambda x: np.sum(np.exp(x)), np.array([85.0, 1.0], np.float32), np.exp),
}


@pytest.mark.parametrize("name", RANGE)
def test_numbers_near_the_ends_of_the_range(name: str) -> None:
    """Squares and long steps may overflow: right derivatives pass all the same, and wrong ones do not."""
    f, x, grad = RANGE[name]
    check_grads(f, (x,), order=1)
    check_grads(f, (x,), grad=grad)
    for factor in (1.5, 1.001):
        caught(lambda factor=factor: check_grads(f, (x,), grad=lambda x: grad(x) * x.dtype.type(factor)))


def test_rules_that_know_one_dtype() -> None:
    """Values are measured in double precision even where the derivative exists in float32 only."""

    def sine(factor: float) -> F:
        f = fx.custom_vjp(fnp.sin)
        f.defvjp(lambda x: (fnp.sin(x), x), lambda x, g: ((factor * g * fnp.cos(x)).astype(np.float32),))
        return f

    found = check_grads(sine(1.0), (W.astype("f"),), order=1, modes="rev")
    assert found.modes == ["reverse mode"] and found.comparisons > 0
    assert "no reverse mode in double precision: FxTypeError: bwd of custom_vjp" in str(found)
    caught(lambda: check_grads(sine(1.01), (W.astype("f"),), order=1, modes="rev"))
    with pytest.raises(TypeError, match="has dtype float32"):  # wrong in its own precision
        check_grads(sine(1.0), (W,), order=1, modes="rev")


def test_how_it_measures() -> None:
    assert check_grads(lambda x: np.sum(np.sin(x)), (W,), order=1).method == "the complex step, in double precision"
    assert check_grads(lambda x: np.sum(np.sin(x)), (W.astype("f"),), order=1).method == "the complex step, in double precision"
    found = check_grads(lambda x: np.sum(np.abs(x) ** 3), (W,), order=1)
    assert found.method == "extrapolated central differences, in double precision"
    single = check_grads(lambda x: fnp.sum(fnp.sin(x.astype(np.float32))), (W.astype("f"),), order=1)
    assert single.method == "extrapolated central differences, in float32"
    found = check_grads(lambda x: np.sum(np.sin(x)), (W,), eps=1e-4, order=1)
    assert found.method == "central differences with the step 0.0001, in double precision"
    caught(lambda: check_grads(lambda x: np.sum(np.sin(x)), (W,), grad=lambda x: 1.001 * np.cos(x), eps=1e-4))
    check_grads(lambda x: np.sum(np.sin(x)), (W,), grad=lambda x: 1.001 * np.cos(x), rtol=1e-2)
    check_grads(lambda x: np.sum(np.sin(x)), (W,), grad=lambda x: 1.001 * np.cos(x), atol=1e-2)


def test_cost_is_bounded() -> None:
    calls = 0

    def f(x: Any) -> Any:
        nonlocal calls
        calls += 1
        return np.sum(np.abs(x) ** 1.5)

    x = np.linspace(0.1, 1, 10_000)
    check_grads(f, (x,), grad=lambda x: 1.5 * x**0.5)
    assert calls < 200
    calls = 0
    error = caught(lambda: check_grads(f, (x,), grad=lambda x: 1.5 * x**0.5 + (x == x[77]), evaluations=200))
    assert calls < 600 and error.findings[0].index == (77,)


def test_what_is_not_differentiated_is_announced() -> None:
    found = check_grads(lambda x, n, flag: x**n if flag else x, (W, 3, True), order=1)
    assert "not differentiated: argument 'n' (int), argument 'flag' (bool)" in str(found)
    found = check_grads(lambda x: (np.sin(x), np.argmax(x)), (W,), order=1)
    assert found.modes == ["forward mode", "reverse mode"]
    assert "higher orders were not checked" in str(check_grads(lambda x: np.sum(x), (W,), grad=np.ones_like))


UNMEASURED: dict[str, tuple[F, np.ndarray, F, str]] = {
    "jump": (
        lambda x: np.sum(np.floor(x)),
        np.array([1.5, 2.0]),
        np.zeros_like,
        "no derivative could be measured by argument 'x'[1]",
    ),
    "edge": (
        lambda x: np.sum(np.sqrt(x)),
        np.array([1.5, 0.0]),
        lambda x: 0.5 / np.sqrt(x + (x == 0)),
        "no derivative could be measured by argument 'x'[1]",
    ),
    "not a number": (lambda x: np.sum(x) * np.nan, np.array([1.5, 0.0]), np.ones_like, "'<lambda>' is nan at the point itself"),
    "random": (lambda x: np.sum(x) * np.random.default_rng().normal(), np.ones(2), np.ones_like, "answer different values"),
    "raises": (lambda x: math.sqrt(np.sum(x)) * 1.0, np.array([0.0]), np.ones_like, "it raised ValueError: "),
}


@pytest.mark.parametrize("name", UNMEASURED)
def test_what_cannot_be_measured_is_not_passed(name: str) -> None:
    f, x, grad, text = UNMEASURED[name]
    error = caught(lambda: check_grads(f, (x,), grad=grad))
    assert "cannot be checked" in str(error) and text in str(error)
    assert error.findings[0].kind == "unmeasured"


def test_errors() -> None:
    error = raised(lambda: check_grads(np.sin, X), TypeError)  # type: ignore[arg-type]
    assert_four_parts(error, what="are a ndarray, not a tuple", line="check_grads(np.sin, X)", why="f(*args)", fix="Pass (x,)")
    error = raised(lambda: check_grads(np.sin, (3,)), TypeError)
    assert_four_parts(error, what="no floating-point argument", line="(3,)", why="It was given int", fix="3.0 for 3")
    error = raised(lambda: check_grads(lambda x: 3, (3.0,)), TypeError)
    assert_four_parts(error, what="no floating-point result", line="3, (3.0,)", why="answered int", fix="Return a float")
    error = raised(lambda: check_grads(np.sin, (X,), order=0), ValueError)
    assert_four_parts(error, what="order=0", line="order=0", why="Orders count from 1", fix="order=1")
    error = raised(lambda: check_grads(np.sin, (X,), modes=("forward",)), ValueError)
    assert_four_parts(error, what="modes=('forward',)", line='"forward"', why="forward and reverse", fix='modes=("fwd", "rev")')
    error = raised(lambda: check_grads(np.sin, (X,), library="numpy2"), ValueError)
    assert_four_parts(error, what="library='numpy2'", line="numpy2", why="in its own way", fix="'torch'")
    error = raised(lambda: check_grads(np.sin, (X,), grad=np.cos), ValueError)
    assert_four_parts(error, what="has 12 results", line="grad=np.cos", why="scalar function", fix="check_vjp")
    error = raised(lambda: check_grads(np.sin, (X,), evaluations=0), ValueError)
    assert_four_parts(error, what="evaluations=0", line="evaluations=0", why="about 14", fix="positive number")
    error = raised(lambda: gradient_error_curve(np.sin, (X,), steps=[0.0]), ValueError)
    assert_four_parts(error, what="steps=[0.0]", line="steps=[0.0]", why="x + h v", fix="numpy.logspace")
    error = raised(lambda: gradient_error_curve(lambda x: np.sum(np.floor(x)), (np.ones(3),)), ValueError)
    assert_four_parts(error, what="no derivative of", line="np.floor(x)", why="jumps", fix="inside the domain")


# ---- pullbacks and pushforwards --------------------------------------------------------------------------------------------


def test_vjp_and_jvp() -> None:
    def f(x: Any, w: Any) -> Any:
        return {"y": fnp.tanh(x @ w)}

    check_vjp(f, partial(fx.vjp, f), (X, W))
    check_jvp(f, partial(fx.jvp, f), (X, W))
    error = caught(lambda: check_jvp(f, lambda p, t: (f(*p), {"y": (t[0] @ p[1]) * 1.0}), (X, W)))
    assert "argument 'x'" in str(error) or "argument 'w'" in str(error)

    def pull(x: Any, w: Any) -> Any:
        y = f(x, w)
        return y, lambda g: (np.outer(g["y"] * (1 - y["y"] ** 2), w), None)

    error = caught(lambda: check_vjp(f, pull, (X, W)))
    assert "argument 'w'" in str(error) and "no gradient flows" in str(error)
    error = caught(lambda: check_vjp(f, lambda x, w: (f(x, 2 * w), fx.vjp(f, x, w)[1]), (X, W)))
    assert "computes another function" in str(error)
    error = caught(lambda: check_vjp(f, lambda x, w: (f(x, w), lambda g: g), (X, W)))
    assert "not a tuple of 2" in str(error)


# ---- other libraries -------------------------------------------------------------------------------------------------------


def test_torch() -> None:
    import torch

    class Cube(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x**3

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g * ctx.saved_tensors[0] ** 2

    x, w = torch.tensor(X), torch.tensor(W)
    assert check_grads(lambda x, w: torch.tanh(x @ w), (x, w)).library == "torch"
    check_grads(lambda p: torch.tanh(p["x"] @ p["w"]), ({"x": x.float(), "w": w.float()},), order=1)
    check_grads(lambda x: torch.sigmoid(x).sum(), (x.bfloat16(),), order=1)
    check_grads(lambda z: (z * z.conj()).real.sum() + (z**2).imag.sum(), (torch.complex(w, w**2),), order=1)
    layer = torch.nn.Linear(4, 3)
    assert "in float32" in check_grads(layer, (x.float(),), order=1).method  # its parameters do not become float64
    error = caught(lambda: check_grads(lambda x: Cube.apply(x).sum(), (x,), modes="rev"))
    assert "it is 1/3" in str(error) and "argument 'x'" in str(error)
    error = caught(lambda: check_grads(lambda x: (x.detach() * x).sum(), (x,), order=1))
    assert "it is 1/2" in str(error) and [f.mode for f in error.findings] == ["forward mode", "reverse mode"]
    unsupported = raised(lambda: check_grads(lambda x: Cube.apply(x).sum(), (x,)), TypeError)
    assert "no forward mode" in str(unsupported) and 'modes="rev"' in str(unsupported)


def test_autograd() -> None:
    import autograd.numpy as anp
    from autograd.extend import defvjp, primitive

    assert check_grads(lambda x, w: anp.tanh(anp.dot(x, w)), (X, W)).library == "autograd"
    cube = primitive(lambda x: x**3)
    defvjp(cube, lambda y, x: lambda g: g * x**2)
    error = caught(lambda: check_grads(cube, (W,), modes="rev", order=1, library="autograd"))
    assert "1/3" in str(error)


def test_nothing_is_imported_for_it() -> None:
    """(numba, which compiles the executor once for a machine, imports SciPy.)"""
    code = (
        "import sys, fxgrad as fx; loaded = set(sys.modules); assert 'fxgrad.testing.check' not in loaded;"
        "import numpy as np; fx.testing.check_grads(np.sin, (np.ones(2),), order=1);"
        "assert not {'torch', 'jax', 'autograd', 'pytest', 'matplotlib'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, timeout=60)


# ---- error curves ----------------------------------------------------------------------------------------------------------


def test_curve_has_its_least_error_where_it_is_derived(tmp_path: Path) -> None:
    found = gradient_error_curve(lambda x: np.sum(np.exp(x)), (np.linspace(0.5, 1.0, 5),))
    assert list(found.curves) == ["float32", "float64"]
    for name, power in (("float32", 2.0**-24), ("float64", 2.0**-53)):
        curve = found.curves[name]
        assert power ** (1 / 3) / 5 < curve.optimum < power ** (1 / 3) * 5
        assert curve.optimum / 30 < curve.best < curve.optimum * 30
        assert curve.floor < power**0.5 and curve.errors[-1] > 10 * curve.floor < curve.errors[0]
        large = curve.steps > 5 * curve.optimum  # there truncation rules, and is what was derived
        np.testing.assert_allclose(curve.errors[large], curve.model[large], rtol=0.3)
    svg = found.to_svg(tmp_path / "curve.svg")
    assert (tmp_path / "curve.svg").read_text() == svg + "\n"
    assert len(ElementTree.fromstring(svg).findall(".//{*}polyline")) == 4
    assert json.loads(json.dumps(found.as_dict(), allow_nan=False))["curves"]["float64"]["best"] == found.curves["float64"].best
    assert str(found).count("\n") == 52


def test_curve_of_a_line_has_no_optimum() -> None:
    found = gradient_error_curve(lambda x: np.sum(3 * x), (W,), steps=[1e-6, 1e-3])
    assert math.isnan(found.curves["float64"].optimum) and found.as_dict()["curves"]["float64"]["optimum"] is None


# ---- the command line and pytest -------------------------------------------------------------------------------------------

MODULE = """
import numpy as np
def right(x, w): return np.sum(np.tanh(x @ w))
def power(x, n): return np.sum(x ** n)
def cube(x): return np.sum(x ** 3)
def wrong(x): return x ** 2
class Inner:
    @staticmethod
    def square(x): return x * x
"""


@pytest.fixture
def module(tmp_path: Path) -> str:
    path = tmp_path / "functions.py"
    path.write_text(MODULE)
    return str(path)


def test_command_line(module: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    picture = tmp_path / "curve.svg"
    assert main([f"{module}:right", "--shapes", "3,4", "f32", "4", "f32", "--order", "1", "--picture", str(picture)]) == 0
    out = capsys.readouterr().out
    assert "are right: forward mode, reverse mode" in out and "derived optimum" in out and picture.exists()
    assert main([f"{module}:Inner.square", "--args", "np.ones((2, 2)) * 1j", "--order", "1"]) == 0
    assert main([f"{module}:power", "--shapes", "4", "-", "i64", "--domain", "1", "2", "--order", "1"]) == 0
    assert "argument 'n' (int64)" in capsys.readouterr().out
    assert main([f"{module}:cube", "--args", "np.ones(2)", "--grad", f"{module}:wrong"]) == 1
    assert "it is 1/3" in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments, text",
    [
        (["{}:absent", "--args", "1.0"], "has no absent"),
        (["{}", "--args", "1.0"], "names no function"),
        (["nothing.py:f", "--args", "1.0"], "no file nothing.py"),
        (["no_such_module:f", "--args", "1.0"], "No module named"),
        (["{}:cube", "--shapes", "f32"], "begins with a dtype"),
        (["{}:cube", "--shapes", "3x4"], "neither a shape nor a dtype"),
        (["{}:cube", "--args", "3"], "no floating-point argument"),
        (["{}:cube", "--args", "np.one(3)"], "has no attribute 'one'"),
        (["{}:cube", "--args", "(1.0"], "SyntaxError"),
        (["{}:right", "--shapes", "3", "4"], "matmul"),
    ],
)
def test_command_line_says_what_is_wrong(
    arguments: list[str], text: str, module: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([a.format(module) for a in arguments]) == 2
    assert text in capsys.readouterr().err


def test_as_a_process(module: str) -> None:
    """As users call it: a module in the current directory, and the exit code."""
    command = [sys.executable, "-m", "fxgrad.testing", f"{module}:cube", "--args", "np.ones(2)", "--order", "1"]
    found = subprocess.run(
        [*command, "--grad", f"{module}:wrong"], cwd=ROOT, capture_output=True, text=True, check=False, timeout=60
    )
    assert found.returncode == 1 and "it is 1/3" in found.stdout and not found.stderr


def test_plugin(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        test_it="""
        import numpy as np
        def f(x): return np.sum(np.sin(x))
        def test_right(assert_gradients):
            assert_gradients(f, np.ones(3), order=1)
            assert_gradients(f, np.zeros(3), order=1)
        def test_wrong(assert_gradients):
            x = np.ones(3)
            assert_gradients(f, x, grad=lambda x: -np.cos(x))
        """
    )
    result = pytester.runpytest_inprocess("-p", "fxgrad.testing.plugin", "--gradient-curves", "curves")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines([
        ">*assert_gradients(f, x, grad=lambda x: -np.cos(x))",
        "E*the derivative of 'f' is wrong: reverse mode, argument 'x'*",
        "E*the sign is wrong*",
        "*test_it_py_test_wrong.svg",
        "*float64: least * derived optimum *",
        "gradients: 2 checks passed, the closest with * (test_it.py::test_right)",
    ])  # fmt: skip
    text = result.stdout.str()
    assert "check.py" not in text and "diagnosis.py" not in text  # the traceback ends at the test's line
    ElementTree.parse(pytester.path / "curves" / "test_it_py_test_wrong.svg")


def test_assert_gradients_without_the_fixture() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert assert_gradients(np.sin, W, order=1).order == 1
    caught(lambda: assert_gradients(lambda x: np.sum(x), W, grad=lambda x: 0 * x))
