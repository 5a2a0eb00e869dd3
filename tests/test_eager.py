"""Eager evaluation: prepared calls, and hot programs that are compiled in the background, which nobody can tell."""

from __future__ import annotations

import gc
import logging
import os
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fxgrad as fx
import fxgrad.numpy as fnp
from fxgrad.ir.program import Program
from fxgrad.numpy import prepared
from fxgrad.runtime import background, eager
from fxgrad.testing.bits import assert_same_bits
from fxgrad.trace import function
from tests import laws
from tests.cases import CASES, Case
from tests.hot import heat, refuse_op_by_op

F = Callable[..., Any]
DIFFERENTIABLE = [c for c in CASES if c.differentiable]
x3 = np.array([0.5, -0.25, 0.75])  # sums and products of these with small integers are exact


def loss(x: Any) -> Any:
    return fnp.sum(fnp.sin(x) ** 2)


# ---- hot programs --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", DIFFERENTIABLE[::6], ids=lambda c: c.name)
def test_compiled_gradients_have_the_bits_of_op_by_op(case: Case, soon_hot: None, monkeypatch: pytest.MonkeyPatch) -> None:
    args = case.arrays(case.shapes[0])
    gradient = fx.value_and_grad(laws._loss(case.f, args), tuple(range(len(args))))
    monkeypatch.setattr(fx.config, "background_compile", False)
    slow = [gradient(*args) for _ in range(4)]
    monkeypatch.setattr(fx.config, "background_compile", True)
    heat(gradient, *args)
    refuse_op_by_op(monkeypatch)
    fast = gradient(*args)
    for found in slow:
        assert_same_bits(found, fast)


def test_every_transform_runs_compiled(soon_hot: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def all_of_them() -> list[Any]:
        y, pullback = fx.vjp(loss, x3)
        return [
            fx.grad(loss)(x3), fx.value_and_grad(loss)(x3), y, pullback(np.float64(2.0))[0], *fx.jvp(loss, (x3,), (x3,)),
            fx.vmap(loss)(np.stack([x3, x3])), fx.hessian(loss)(x3), fnp.mean(x3), fnp.logaddexp(x3, x3),
        ]  # fmt: skip

    cold = all_of_them()
    heat(all_of_them)
    refuse_op_by_op(monkeypatch)
    assert_same_bits(all_of_them(), cold)


def test_compiled_results_are_fresh(soon_hot: None) -> None:
    def f(x: Any, y: Any) -> Any:
        return fnp.sum(x * y)

    x, y = np.arange(4.0), np.ones(4)
    gradient = fx.grad(f, (0, 1))
    heat(gradient, x, y)
    gx, gy = gradient(x, y)
    assert_same_bits((gx, gy), (y, x))
    assert not any(np.shares_memory(a, b) for a, b in [(gx, y), (gy, x), (gx, gy)])
    gx[:] = 7
    assert_same_bits(gradient(x, y)[0], y)


def test_operands_of_any_layout_and_rank(soon_hot: None) -> None:
    gradient = fx.grad(lambda x, s: fnp.sum(fnp.exp(x) * s), (0, 1))
    big = np.linspace(0, 1, 24).reshape(2, 3, 4)
    layouts = [big[:, :, 0], np.ascontiguousarray(big[:, :, 0]), big.transpose(0, 2, 1)[:, 0], big[:, ::-1, 0][:, ::-1]]
    layouts.append(layouts[1].astype(">f8"))
    expected = gradient(layouts[1], 2.0)
    heat(gradient, layouts[1], 2.0)
    for x in layouts:
        for s in (2.0, np.float64(2.0), np.array(2.0)):
            assert_same_bits(gradient(x, s), expected)


def test_closures_are_seen_fresh(soon_hot: None) -> None:
    scale, shift = np.full(3, 2.0), [np.full(3, 1.0)]
    gradient = fx.grad(lambda x: fnp.sum(scale * x * x + shift[0] * x))
    heat(gradient, x3)
    for factor in (2.0, 3.0):
        scale = np.full(3, factor)
        shift[0] = np.full(3, -factor)
        assert_same_bits(gradient(x3), 2 * (factor * x3) - factor)
        scale *= 2  # the same array, other contents
        assert_same_bits(gradient(x3), 2 * (2 * factor * x3) - factor)


def test_structures_may_alternate(soon_hot: None) -> None:
    def f(x: Any, n: int) -> Any:
        for _ in range(n):
            x = fnp.sin(x) * x
        return fnp.sum(x)

    gradient = fx.grad(f)
    args = [(x3, 1), (x3, 2), (x3.astype(np.float32), 2), (np.ones((2, 2)), 3)]
    cold = [gradient(*a) for a in args]
    for a in args:
        heat(gradient, *a)
    for _ in range(3):
        assert_same_bits([gradient(*a) for a in args], cold)


def test_python_sees_values_of_compiled_gradients(soon_hot: None) -> None:
    """Control flow on known values goes on deciding anew at each call."""

    def f(x: Any) -> Any:
        y = fnp.exp(x)
        if y[0] > 1:
            return fnp.sum(y * 2)
        return fnp.sum(x * x)

    gradient = fx.grad(f)
    up, down = np.array([1.0, 2.0]), np.array([-1.0, 2.0])
    for x in (up, down):
        heat(gradient, x)
    for _ in range(2):
        assert_same_bits(gradient(up), np.exp(0.0) * fnp.exp(up) * 2)
        assert_same_bits(gradient(down), 2 * down)


def test_structures_that_never_recur_are_not_compiled_and_not_kept() -> None:
    calls = []

    def f(x: Any) -> Any:
        for _ in range(1 + len(calls)):
            x = x * 1.5
        calls.append(1)
        return fnp.sum(x)

    gradient = fx.grad(f)
    before = len(function._programs)
    for i in range(6):
        assert_same_bits(gradient(np.ones(2)), np.full(2, 1.5 ** (i + 1)))
    assert len(function._programs) <= before + 12
    assert background._thread is None
    for i in range(function.PROGRAMS_KEPT + 10):
        function.canonical(Program([], [], [], (), str(i)) if i == 0 else fx.make_ir(lambda x, i=i: x * float(i))(1.0))
    assert len(function._programs) <= function.PROGRAMS_KEPT


def test_time_makes_hot_too(soon_hot: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(eager, "HOT", 10**9)
    monkeypatch.setattr(eager, "HOT_SECONDS", 1e-9)
    heat(fx.grad(loss), x3)
    refuse_op_by_op(monkeypatch)
    fx.grad(loss)(x3)


def test_errors_in_user_code_leave_no_trace(soon_hot: None) -> None:
    broken = True

    def f(x: Any) -> Any:
        y = fnp.sin(x) * x
        if broken:
            raise KeyError("mine")
        return fnp.sum(y)

    gradient = fx.grad(f)
    for _ in range(4):
        with pytest.raises(KeyError, match="mine"):
            gradient(x3)
    broken = False
    expected = fx.jit(gradient)(x3)
    heat(gradient, x3)
    assert_same_bits(gradient(x3), expected)
    broken = True
    with pytest.raises(KeyError, match="mine"):
        gradient(x3)


def test_settings_are_respected(soon_hot: None, monkeypatch: pytest.MonkeyPatch) -> None:
    gradient = fx.grad(loss)
    runs: list[str] = []
    plain = eager.EagerPlan.run
    monkeypatch.setattr(eager.EagerPlan, "run", lambda self, arrays: runs.append(self.program.name) or plain(self, arrays))

    def op_by_op() -> bool:
        runs.clear()
        gradient(x3)
        return bool(runs)

    monkeypatch.setattr(fx.config, "background_compile", False)
    assert all([op_by_op() for _ in range(6)])
    monkeypatch.setattr(fx.config, "background_compile", True)
    heat(gradient, x3)
    for _ in range(8):  # attempts come at doubling distances
        heat(gradient, x3)
    assert not op_by_op()
    with fx.disable_jit():
        assert op_by_op()
    assert not op_by_op()
    monkeypatch.setattr(fx.config, "fusion", False)
    assert op_by_op()


def test_log_tells_what_is_compiled(soon_hot: None, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fx.config, "log", ("eager",))
    heat(fx.grad(loss), x3)
    assert "'loss' (6 operations) runs compiled from now on" in capsys.readouterr().err


def test_failure_to_compile_is_logged_and_harmless(
    soon_hot: None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from fxgrad.compile import lower

    def broken(program: Program) -> Any:
        raise MemoryError("no room")

    expected = fx.grad(loss)(x3)
    monkeypatch.setattr(lower, "compile_program", broken)
    with caplog.at_level(logging.ERROR, "fxgrad"):
        for _ in range(40):
            assert_same_bits(fx.grad(loss)(x3), expected)
            assert eager.wait_for_background()
    assert [r.getMessage() for r in caplog.records] == [
        "fxgrad could not compile 'loss' in the background; it goes on operation by operation"
    ]


def test_threads_differentiate_while_the_background_compiles(soon_hot: None) -> None:
    def work(i: int) -> None:
        f = lambda x: fnp.sum(fnp.tanh(x) * x ** (i % 3 + 2))  # noqa: E731
        x = np.linspace(-1, 1, 5 + i % 3)
        first = fx.value_and_grad(f)(x)
        for _ in range(60):
            assert_same_bits(fx.value_and_grad(f)(x), first)

    problems: list[BaseException] = []

    def guarded(i: int) -> None:
        try:
            work(i)
        except BaseException as problem:  # noqa: BLE001
            problems.append(problem)

    threads = [threading.Thread(target=guarded, args=(i,)) for i in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not problems


def test_no_cycle_keeps_arguments_alive() -> None:
    gc.collect()
    gc.disable()
    try:
        x = np.ones(1000)
        references = sys.getrefcount(x)
        for _ in range(20):
            fx.grad(loss)(x)
        assert sys.getrefcount(x) == references
    finally:
        gc.enable()


# ---- the queue -----------------------------------------------------------------------------------------------------------


def test_queue_is_bounded_and_takes_a_key_once() -> None:
    hold, done = threading.Event(), []
    assert background.submit("first", "first", lambda: hold.wait(30) and None)
    for i in range(background.MOST_JOBS - 1):
        assert background.submit(i, "job", lambda i=i: done.append(i))
    assert background.submit(0, "job", lambda: done.append("again"))
    assert not background.submit("one too many", "job", lambda: done.append("too many"))
    assert not background.wait(0.05)
    hold.set()
    assert background.wait()
    assert done == list(range(background.MOST_JOBS - 1))


def test_plans_live_as_long_as_what_uses_them() -> None:
    from fxgrad.runtime import launch

    address = launch.address_of(np.arange(3))
    plan = weakref.ref(address.array)
    assert plan() is not None and address == plan().ctypes.data
    del address
    assert plan() is None
    fnp.tanh(np.linspace(0, 1, 1013))
    plans = [weakref.ref(a.array) for a in gc.get_objects() if type(a) is launch.Address and 1013 in a.array]
    assert len(plans) >= 2  # of the kernel, and what arguments it expects
    eager.forget_operations()
    gc.collect()
    assert not any(plan() is not None for plan in plans)


def test_variants_for_layouts_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(eager, "_MOST_VARIANTS", 3)
    x = np.linspace(-1, 1, 4096)
    for _ in range(2):
        for step in range(2, 9):
            assert np.array_equal(fnp.tanh(x[::step][:509]), fnp.tanh(x[::step][:509].copy()))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_fork_while_the_background_compiles() -> None:
    """The child waits for no thread that it does not have, and compiles what it needs itself."""
    script = """
import os, sys, warnings
warnings.simplefilter("ignore")
import numpy as np, fxgrad as fx, fxgrad.numpy as fnp
from fxgrad.runtime import eager
x = np.linspace(0, 1, 7)
gradients = [fx.grad(lambda x, i=i: fnp.sum(fnp.tanh(x) * x ** i)) for i in range(2, 8)]
expected = [g(x) for g in gradients]
for _ in range(eager.HOT):
    for g in gradients: g(x)
child = os.fork()
for _ in range(3 * eager.HOT):
    for g, e in zip(gradients, expected):
        assert np.array_equal(g(x), e)
assert eager.wait_for_background()
if child == 0: os._exit(0)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    assert run_script(script).returncode == 0


def test_exit_while_the_background_compiles() -> None:
    script = """
import numpy as np, fxgrad as fx, fxgrad.numpy as fnp
from fxgrad.runtime import eager
x = np.linspace(0, 1, 7)
for i in range(2, 12):
    g = fx.grad(lambda x: fnp.sum(fnp.tanh(x) * fnp.exp(x) ** i))
    for _ in range(eager.HOT + 1): g(x)
print("last line")
"""
    start = time.perf_counter()
    done = run_script(script)
    assert (done.returncode, done.stdout, done.stderr) == (0, "last line\n", "")
    assert time.perf_counter() - start < 60


def run_script(script: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=300, check=False)


# ---- prepared calls ------------------------------------------------------------------------------------------------------


def repeated(f: F, *args: Any, times: int = prepared.RECORDED_PLAINLY + 3) -> list[Any]:
    return [f(*args) for _ in range(times)]


def test_prepared_calls_are_the_plain_ones() -> None:
    """Over operands of every kind: the first call, the prepared ones, and those inside a trace before and after preparation."""
    arrays = [np.array([1.5, -2.0, 0.0]), np.ones((2, 3), np.float32), np.array([[2], [3]], np.int32), np.array(2.0)]
    others = [*arrays, 2, 0.5, True, np.float32(3), np.int8(2), np.bool_(True), [1.0, 2.0, 3.0]]
    for f in (fnp.add, fnp.multiply, fnp.maximum, fnp.logaddexp, fnp.power, fnp.less, fnp.true_divide, fnp.copysign):
        for x in arrays:
            for y in others:
                for a, b in ((x, y), (y, x)):
                    if f is fnp.power and all(np.asarray(v).dtype.kind in "iub" for v in (a, b)):
                        continue
                    eager_results = repeated(f, a, b, times=3)
                    plain = f(a, b, dtype=None)  # with a keyword: the function's own way
                    for found in eager_results:
                        assert_same_bits(found, plain, f"{f.__name__} of {a!r} and {b!r}")
                        assert type(found) is type(plain)


@pytest.mark.parametrize("f", [lambda x, y: x + y, lambda x, y: fnp.logaddexp(x, 2.0) * y, lambda x, y: fnp.mean(x * y, axis=0)])
def test_traces_before_and_after_preparation_are_equal(f: F) -> None:
    x, y = np.ones((2, 3)), np.ones(3)
    programs = repeated(fx.make_ir(f), x, y)
    assert len({str(p) for p in programs}) == 1


def test_prepared_calls_blame_the_line_at_hand() -> None:
    def at_other_lines(x: Any) -> list[Any]:
        first = x * x
        second = x * x
        return [first, second]

    for _ in range(prepared.RECORDED_PLAINLY + 2):
        program = fx.make_ir(at_other_lines)(x3)
    offsets = [e.source[1] for e in program.eqns]
    assert program.eqns[0].source[0] is at_other_lines.__code__ and offsets[0] < offsets[1]


def test_prepared_calls_raise_as_plain_ones() -> None:
    for _ in range(prepared.RECORDED_PLAINLY + 3):
        with pytest.raises(ValueError, match="cannot be broadcast together"):
            fnp.add(np.ones(3), np.ones(4))
        with pytest.raises(OverflowError):
            fnp.add(np.ones(3, np.uint8), 300)
        assert_same_bits(fnp.add(np.ones(3, np.uint8), 200), np.full(3, 201, np.uint8))
        kept: list[Any] = []
        fx.grad(lambda x: kept.append(x) or fnp.sum(x))(x3)
        with pytest.raises(fx.errors.LeakedTracerError):
            fnp.sin(kept[0])


def test_prepared_calls_tell_parameters_apart() -> None:
    x = np.arange(6.0).reshape(2, 3)
    for _ in range(3):
        assert_same_bits(fnp.sum(x, 0), np.array([3.0, 5.0, 7.0]))
        assert_same_bits(fnp.sum(x, 1), np.array([3.0, 12.0]))
        assert_same_bits(fnp.sum(x, axis=1, keepdims=True), np.array([[3.0], [12.0]]))
        assert_same_bits(fnp.sum(x, (0, 1)), np.float64(15))
        assert_same_bits(fnp.sum(x, dtype=np.float32), np.float32(15))
        assert_same_bits(fnp.sum(x, where=x > 2), np.float64(12))
        assert_same_bits(fnp.power(np.array([2, 3]), 2), np.array([4, 9]))
        assert_same_bits(fnp.power(np.array([2, 3]), 2.0), np.array([4.0, 9.0]))


def test_eager_calls_warn_of_nothing_and_leave_numpys_settings_alone() -> None:
    with np.errstate(all="raise"):
        assert_same_bits(fnp.divide(np.ones(2), np.zeros(2)), np.full(2, np.inf))
        assert_same_bits(fnp.log(np.zeros(2)), np.full(2, -np.inf))
        assert np.geterr()["divide"] == "raise"
        with pytest.raises(FloatingPointError):
            np.divide(np.ones(2), np.zeros(2))


def test_clear_caches_forgets_prepared_calls() -> None:
    assert_same_bits(fnp.exp(np.zeros(2)), np.ones(2))
    eager.forget_operations()
    assert not any(eager.prepared_tables)
    assert_same_bits(fnp.exp(np.zeros(2)), np.ones(2))
