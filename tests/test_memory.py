"""Where values lie: nothing aliases what the caller sees, work space is shared without harm, memory comes back, donation."""

from __future__ import annotations

import gc
import os
import pickle
import threading

import numpy as np
import pytest

import fxgrad as fx
from fxgrad import errors
from fxgrad.compile import lower, source
from fxgrad.ir.types import aval_of
from fxgrad.primitives import elementwise as E
from fxgrad.primitives import reduce as R
from fxgrad.primitives import shape as S
from fxgrad.primitives import transcendental as T
from fxgrad.runtime import buffers
from fxgrad.runtime.eager import run_program
from fxgrad.testing.bits import assert_same_bits
from fxgrad.trace.tracing import build
from tests.four_parts import assert_four_parts, raised
from tests.programs import random_inputs, random_program

EXAMPLES = int(os.environ.get("FXGRAD_FUZZ_EXAMPLES", "24"))
LARGE = buffers.POOLED // 4  # float32 elements of the smallest pooled array


@pytest.fixture
def clean_pool():
    gc.collect()
    buffers.forget_buffers()
    yield
    buffers.set_idle_limit(None)
    buffers.forget_buffers()


@pytest.fixture
def poisoned(monkeypatch):
    """Every array that is allocated for a result or as work space begins as NaN patterns."""
    allocator, new_arena = buffers.allocator, source.Source.new_arena

    def poison(x):
        x.reshape(-1).view(np.uint8)[...] = 0xFF
        return x

    def poisoned_allocator(shape, dtype, passing=False):
        make = allocator(shape, dtype, passing)
        return lambda: poison(make())

    class Arenas(list):
        def append(self, x):
            super().append(poison(x))

    init = source.Source.__init__

    def poisoned_init(self, *args):
        init(self, *args)
        self._arenas = Arenas()

    monkeypatch.setattr(source.Source, "__init__", poisoned_init)
    monkeypatch.setattr(buffers, "allocator", poisoned_allocator)
    monkeypatch.setattr(source.Source, "new_arena", lambda self: poison(new_arena(self)))
    monkeypatch.setattr(buffers, "POOLED", 0)


def floats(*shape, dtype="f4", seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def empty(shape, dtype):
    return buffers.allocator(shape, np.dtype(dtype))()


def traced(f, *arrays):
    return build([aval_of(x) for x in arrays], f)


# ---- random programs ---------------------------------------------------------------------------------------------------


def check_liveness(executable):
    """Values alive together lie apart, but for chains: the next begins in the step in which the last one ends."""
    memory = executable.memory
    inside = [(v, *memory.lives[v], p.offset) for v, p in memory.places.items() if p.space == "arena"]
    for i, (v, birth, death, offset) in enumerate(inside):
        assert offset % 64 == 0 and offset + v.aval.nbytes <= memory.arena
        for w, birth2, death2, offset2 in inside[:i]:
            together = birth <= death2 and birth2 <= death
            chained = offset == offset2 and (birth, death) == (birth2, death2)
            assert not together or chained or offset + v.aval.nbytes <= offset2 or offset2 + w.aval.nbytes <= offset


@pytest.mark.fuzz
@pytest.mark.parametrize("batch", range(4))
def test_random_programs_in_reused_and_in_poisoned_memory(batch, poisoned):
    for seed in range(1000 + batch, 1000 + EXAMPLES, 4):
        program = random_program(seed)
        arrays = random_inputs(program, seed)
        want = run_program(program, arrays)
        kept = [np.array(x) for x in arrays]
        for fusion, reuse in ((True, True), (True, False), (False, True)):
            executable = lower._compile(program, fusion, reuse=reuse)
            check_liveness(executable)
            for _ in range(2):
                assert_same_bits(executable(*arrays), want, f"program {seed}, fusion {fusion}, reuse {reuse}")
        for x, before in zip(arrays, kept, strict=True):
            assert np.asarray(x).tobytes() == before.tobytes(), "an argument was written"


@pytest.mark.fuzz
@pytest.mark.parametrize("batch", range(4))
def test_random_programs_with_donated_arguments(batch, poisoned):
    for seed in range(2000 + batch, 2000 + EXAMPLES, 4):
        program = random_program(seed)
        arrays = [np.array(x, order="C", dtype=np.asarray(x).dtype.newbyteorder("=")) for x in random_inputs(program, seed)]
        want = run_program(program, arrays)
        donated = tuple(range(len(arrays)))
        results = lower._compile(program, True, donated)(*arrays)
        assert_same_bits(results, want, f"program {seed}")


# ---- chains ------------------------------------------------------------------------------------------------------------


def places(f, *arrays, fusion=False):
    executable = lower._compile(traced(f, *arrays), fusion)
    assert_same_bits(executable(*arrays), run_program(executable.flat, arrays))
    return executable


def test_a_chain_of_maps_lies_in_its_result():
    x = floats(100, 30)
    e = places(lambda x: [T.exp(T.tanh(E.neg(T.sin(x))))], x)
    assert len(e.steps) == 4 and e.memory.arena == 0


def test_two_temporaries_are_enough_for_a_chain_of_reductions():
    x = floats(64, 64)

    def f(x):
        for _ in range(6):
            x = E.sub(x, R.spread(R.max_(x, axes=(1,)), x.shape, (1,)))
        return [R.sum_(x, axes=(0, 1))]

    e = places(f, x)
    assert e.memory.arena == x.nbytes + 256
    apart = lower._compile(traced(f, x), False, reuse=False)
    assert apart.memory.arena == 6 * (x.nbytes + 256)


def test_what_is_read_otherwise_is_not_overwritten():
    """Transposed, broadcast, twice in different ways, of another size, and needed later."""
    x = floats(30, 30)
    square = lambda t, u: E.add(t, u)  # noqa: E731

    def transposed(x):
        t = T.exp(x)
        return [square(t, fx.primitives.shape.transpose(t, perm=(1, 0)))]

    def later(x):
        t = T.exp(x)
        u = T.sin(t)
        return [E.mul(u, R.spread(R.sum_(t, axes=(1,)), x.shape, (1,)))]

    def wider(x):
        return [E.convert(T.exp(x), dtype=np.dtype("f8"))]

    for f in (transposed, later, wider):
        e = places(f, x)
        assert e.memory.arena >= x.nbytes


def test_plan_text_and_memory_analysis():
    x = floats(100, 50)
    f = fx.jit(lambda x: (np.exp(x - np.max(x, axis=1, keepdims=True)).T, np.sum(x)))
    e = f.lower(x).compile()
    found = e.memory_analysis()
    assert found.argument_bytes == x.nbytes and found.output_bytes == x.nbytes + 4 and found.alias_bytes == 0
    assert found.temp_bytes >= 400 and found.peak_bytes == 2 * x.nbytes + 4 + found.temp_bytes + found.host_bytes
    text = e.plan_text()
    assert text.startswith("program(a0: f32[100,50]) {") and f"work space: {found.temp_bytes} bytes" in text
    assert all(step.title in text for step in e.steps) and "-> y1" in text
    times = e.measure_steps([x], repeat=2)
    assert len(times) == len(e.steps) and all(0 < t < 1 for t in times)


def test_steps_of_programs_with_library_calls_are_measured():
    x = floats(40)
    f = fx.jit(lambda x: np.cumsum(np.exp(np.sort(np.tanh(x)))) * 2)
    e = f.lower(x).compile()
    assert {"host", "kernel"} <= {s.kind for s in e.steps}
    times = e.measure_steps([x])
    assert len(times) == len(e.steps) and all(0 < t < 1 for t in times)
    assert e.memory_analysis().host_bytes >= x.nbytes


# ---- results -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [10, LARGE + 1])
def test_results_alias_nothing_and_stay(n):
    x = floats(n)
    f = fx.jit(lambda x: (x, np.exp(x), x, x[::-1], np.zeros_like(x), np.sum(x)))
    kept, copies = [], []
    for k in range(6):
        out = f(x + k)
        for i, a in enumerate(out[:5]):
            assert a.flags.writeable and a.flags.c_contiguous and not np.shares_memory(a, x)
            assert not any(np.shares_memory(a, b) for b in [*kept, *out[:i]])
        kept += out[:5]
        copies += [a.copy() for a in out[:5]]
    for a, b in zip(kept, copies, strict=True):
        assert np.array_equal(a, b)


def test_a_view_that_a_library_call_answers_survives_the_work_space(monkeypatch):
    """Here a concatenation of one array answers a view of it, whose memory is used again before the view is read."""

    def f(x):
        s = S.concatenate(T.exp(x), axis=0)
        for _ in range(3):
            x = E.sub(T.tanh(x), R.spread(R.max_(x, axes=(0,)), x.shape, (0,)))
        return [E.mul(s, R.spread(R.sum_(x, axes=(0,)), x.shape, (0,)))]

    x = np.sort(floats(1000))
    want = run_program(traced(f, x), [x])
    monkeypatch.setattr(source, "operation", lambda prim, avals, params: lambda x: x[:])
    executable = lower._compile(traced(f, x), False)
    assert executable.memory.arena
    for _ in range(2):
        assert_same_bits(executable(x), want)


def test_concurrent_calls_have_their_own_work_space():
    x = [floats(200, 300, seed=i) for i in range(4)]
    f = fx.jit(lambda x: np.sum(np.exp(x - np.max(x, axis=1, keepdims=True)), axis=0))
    want = [f(a) for a in x]
    assert f.lower(x[0]).compile().memory.arena
    wrong = []

    def call(i):
        wrong.extend(not np.array_equal(f(x[i]), want[i]) for _ in range(200))

    threads = [threading.Thread(target=call, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert wrong and not any(wrong)


# ---- the pool ----------------------------------------------------------------------------------------------------------


def test_memory_comes_back_when_the_last_view_goes(clean_pool):
    f = fx.jit(lambda x: x * 2)
    x = floats(LARGE)
    y = f(x)
    address = y.ctypes.data
    assert buffers.idle_bytes() == 0 and address % 64 == 0
    view = y[10:].reshape(-1)[::2]
    del y
    assert buffers.idle_bytes() == 0
    z = f(x)
    assert not np.shares_memory(view, z)
    del view
    gc.collect()
    assert buffers.idle_bytes() >= x.nbytes
    again = f(x)
    assert again.ctypes.data == address and buffers.idle_bytes() == 0
    assert_same_bits(again, z)


def test_near_sizes_share_memory_and_small_results_do_not_use_the_pool(clean_pool):
    a = empty((LARGE * 4 + 5, 1), "f4")
    address = a.ctypes.data
    del a
    assert empty((LARGE * 2 + 6,), "f8").ctypes.data == address
    assert fx.jit(lambda x: x + 1)(floats(10)).base is None
    for dtype in "?bhilqBHILQfdFD":
        x = empty((3, buffers.POOLED), dtype)
        assert x.dtype is np.dtype(dtype) and x.shape == (3, buffers.POOLED) and x.flags.c_contiguous


def test_work_space_is_lent_to_other_programs_and_takes_nothing_from_results(clean_pool):
    def space(mebibytes):
        return buffers.allocator((mebibytes << 20,), np.dtype(np.uint8), passing=True)()

    a = space(17)
    address = a.ctypes.data
    del a
    for size in (25, 32, 5, 17):  # more of what was mapped, or less
        b = space(size)
        assert b.ctypes.data == address and b.nbytes == size << 20
        del b
    for size in (33, 2, 1, 257):  # too large, far too small, small, huge
        assert space(size).ctypes.data != address
    held = space(17)
    assert held.ctypes.data == address
    assert not np.shares_memory(held, space(17))
    del held
    forgotten = buffers.idle_bytes()
    result = empty((4, 1 << 20), "f8")  # a power of two: work space of that much room does not take it, nor it that
    assert buffers.idle_bytes() == forgotten and not 0 <= result.ctypes.data - address < 32 << 20
    del result
    assert buffers.idle_bytes() == forgotten + (32 << 20)


def test_programs_of_other_sizes_run_in_the_same_work_space(clean_pool):
    def f(x, w):
        return np.sum(np.tanh(x @ w) @ w)

    w = floats(256, 256)
    step = fx.jit(fx.grad(f, 1))
    for n in (6000, 8000, 5000, 7000):
        x = floats(n, 256)
        assert 1 << 21 < step.lower(x, w).compile().memory_analysis().temp_bytes < 1 << 28
        assert_same_bits(step(x, w), fx.grad(f, 1)(x, w))
    assert len([n for n, waiting in buffers._idle.items() if waiting and n & 4096]) == 1


def test_idle_memory_is_bounded(clean_pool):
    size = buffers._size_class(LARGE * 4)
    buffers.set_idle_limit(3 * size)
    arrays = [empty((LARGE,), "f4") for _ in range(10)]
    arrays.clear()
    assert buffers.idle_bytes() == 3 * size
    big = empty((LARGE * 2,), "f4")
    del big
    assert buffers.idle_bytes() <= 3 * size
    huge = empty((LARGE * 10,), "f4")
    del huge
    assert buffers.idle_bytes() <= 3 * size
    fx.runtime.buffers.forget_buffers()
    assert buffers.idle_bytes() == 0
    buffers.set_idle_limit(0)
    x = empty((LARGE,), "f4")
    del x
    assert buffers.idle_bytes() == 0


def test_the_pool_among_threads_and_collections(clean_pool):
    """Blocks in reference cycles come back from within other calls."""
    f, x = fx.jit(lambda x: x + 1), floats(LARGE)
    want, wrong = x + 1, []

    def call(seed):
        kept = []
        for k in range(200):
            y = f(x)
            cycle = [y]
            cycle.append(cycle)
            kept.append(y)
            if k % 7 == seed:
                kept.clear()
                gc.collect(0)
            wrong.append(not np.array_equal(y, want))

    threads = [threading.Thread(target=call, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert wrong and not any(wrong)


def test_pooled_results_are_like_other_arrays():
    x = floats(LARGE)
    y = fx.jit(lambda x: x + 1)(x)
    assert type(y) is np.ndarray and np.array_equal(pickle.loads(pickle.dumps(y)), y)
    y[:] = 0
    y += 1
    assert y.sum() == LARGE
    assert fx.jit(lambda y: y * 2)(y)[0] == 2
    g = fx.grad(fx.jit(lambda x: np.sum(x * x)))(x)  # an inner call's result is handed on, not copied
    assert_same_bits(g, 2 * x)


# ---- donation ----------------------------------------------------------------------------------------------------------


def sgd(params, grads, rate):
    return {k: params[k] - rate * grads[k] for k in params}


def test_donated_memory_becomes_results():
    f, plain = fx.jit(sgd, donate_argnums=0), fx.jit(sgd)
    params = {"w": floats(300, 200), "b": floats(200)}
    grads = {"w": floats(300, 200, seed=1), "b": floats(200, seed=1)}
    for _ in range(3):
        want = plain(params, grads, 0.1)
        addresses = {k: v.ctypes.data for k, v in params.items()}
        new = f(params, grads, 0.1)
        assert_same_bits([*new.values()], [*want.values()])
        assert {k: v.ctypes.data for k, v in new.items()} == addresses
        assert all(not v.flags.writeable for v in params.values()) and all(v.flags.writeable for v in new.values())
        old, params = params, new
    found = f.lower(params, grads, 0.1).compile().memory_analysis()
    assert found.alias_bytes == 300 * 200 * 4 + 800 and found.output_bytes == found.alias_bytes
    error = raised(lambda: f(old, grads, 0.1), errors.FxValueError)
    assert_four_parts(error, what="donated to an earlier call", line="f(old, grads", why="belongs to a result", fix=".copy()")


def test_a_result_of_another_kind_takes_donated_memory():
    """Not element by element: the argument must be dead before the result is begun."""
    f = fx.jit(lambda x: np.tanh(x - np.max(x, axis=0)).T.copy() * 2, donate_argnums=(0,))
    for x in (floats(64, 64), floats(40, 70)):
        want = fx.jit(f.__wrapped__)(x)
        assert_same_bits(f(x), want)


def test_a_view_of_a_result_in_donated_memory_is_no_owner():
    f = fx.jit(lambda x: x + 1, donate_argnums=0)
    y = f(floats(50))
    view, before = y[:20], y.copy()
    assert_same_bits(f(view), before[:20] + 1)
    assert_same_bits(y, before)


def test_donation_never_corrupts():
    """An array that others can see is left as it is: overlapping, passed twice, captured, a view, read-only, not contiguous."""
    captured = floats(50, seed=3)
    step = fx.jit(lambda a, b: a * 2 + b, donate_argnums=0)
    with_capture = fx.jit(lambda a: a * 2 + captured, donate_argnums=0)
    base = floats(120)
    frozen = floats(50)
    frozen.flags.writeable = False
    same = floats(50)
    cases = [
        (step, (same, same)),
        (step, (same, same[::-1])),
        (step, (same, np.frombuffer(same, np.float32))),
        (step, (base[:50], base[20:70])),
        (step, (base[:50], base[60:110])),
        (step, (base[::2][:50], floats(50))),
        (step, (frozen, floats(50))),
        (with_capture, (captured,)),
    ]
    for f, args in cases:
        before = [a.copy() for a in args]
        want = f.__wrapped__(*before)
        for _ in range(2):
            assert_same_bits(f(*args), want)
            assert_same_bits(list(args), before)
            assert args[0].flags.writeable == (args[0] is not frozen)


def test_arguments_that_cannot_be_donated_are_errors():
    f = lambda x, n: x * n  # noqa: E731
    for wrong in (2, -3, (0, 5)):
        error = raised(lambda: fx.jit(f, donate_argnums=wrong), errors.FxValueError)  # type: ignore[arg-type]
        assert_four_parts(error, what="not there", line="fx.jit(f, donate", why="positional", fix="from 0 to 1")
    error = raised(lambda: fx.jit(f, static_argnums=1, donate_argnums=1), errors.FxValueError)
    assert_four_parts(error, what="static", line="fx.jit(f, static", why="positional", fix="not static")
    assert_same_bits(fx.jit(f, static_argnums=0, donate_argnums=-1)(2.0, np.ones(3)), 2 * np.ones(3))


def test_donating_functions_are_transformed_and_copied_like_others():
    f = fx.jit(lambda x: np.sum(x * x), donate_argnums=0)
    x = floats(10)
    assert_same_bits(fx.grad(f)(x), 2 * x)
    assert x.flags.writeable
    x = floats(LARGE)
    f = fx.jit(lambda x: x + 1, donate_argnums=0)
    y = f(f(f(x)))  # pooled and donated in turn
    assert_same_bits(y, floats(LARGE) + 1 + 1 + 1)


def test_a_donating_call_is_found_again_and_notices_what_is_new():
    """From the third call on a call goes a short way, which everything but the same kinds of arguments leaves."""
    factor = [2.0]
    f = fx.jit(lambda p, x: {"w": p["w"] * factor[0] + x}, donate_argnums=0)

    def check(p, x, n):
        misses = f.cache_info().misses
        want = p["w"] * factor[0] + x
        assert_same_bits(f(p, x)["w"], want)
        assert f.cache_info().misses == misses + n

    for new in (1, 0, 0, 0):
        check({"w": floats(6)}, floats(6, seed=1), new)
    check({"w": floats(5)}, floats(5, seed=1), 1)  # another shape
    check({"w": floats(6).astype(np.float64)}, floats(6, seed=1), 1)  # another dtype
    check({"w": floats(6)}, 2.0, 1)  # a number
    check({"w": floats(6)[::-1]}, floats(6, seed=1), 0)  # strides are none of the key
    for new in (0, 0):
        check({"w": floats(6)}, floats(6, seed=1), new)
    factor[0] = 3.0
    check({"w": floats(6)}, floats(6, seed=1), 1)
    with fx.disable_jit():
        check({"w": floats(6)}, floats(6, seed=1), 0)
    assert_same_bits(fx.grad(lambda w: np.sum(f({"w": w}, 1.0)["w"]))(floats(3)), np.full(3, 3.0, np.float32))
