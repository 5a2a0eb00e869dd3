"""Row kernels: what is merged, and that fused and unfused programs have the same bits."""

from __future__ import annotations

import ctypes
import itertools

import numpy as np
import pytest

import fxgrad as fx
import fxgrad.numpy as fnp
from fxgrad.compile import lower
from fxgrad.compile.cache import kernel_addresses
from fxgrad.compile.fuse import partition
from fxgrad.compile.inline import flatten
from fxgrad.compile.kernelize import launches
from fxgrad.ir.types import aval_of
from fxgrad.runtime.eager import run_program
from fxgrad.testing.bits import assert_same_bits
from fxgrad.trace.tracing import build
from fxgrad.tree import leaves


def cross_entropy(x, t):
    shifted = x - fnp.max(x, axis=-1, keepdims=True)
    logs = shifted - fnp.log(fnp.sum(fnp.exp(shifted), axis=-1, keepdims=True))
    return -fnp.mean(fnp.sum(t * logs, axis=-1))


def weighted(f):
    return lambda x, w: fnp.sum(f(x) * w)


def norm_loss(x, w):
    return fnp.sum(fx.nn.layer_norm(x, w[0], w[-1]) * w)


def rms_loss(x, w):
    return fnp.sum(fx.nn.rms_norm(x, w[0]) * w)


def log_sum(x):
    return fx.nn.logsumexp(x, axis=-1)


PROGRAMS = {
    "softmax": lambda x, w: fx.nn.softmax(x),
    "softmax gradient": fx.grad(weighted(fx.nn.softmax)),
    "log_softmax": lambda x, w: fx.nn.log_softmax(x),
    "log_softmax gradient": fx.grad(weighted(fx.nn.log_softmax)),
    "layer_norm": lambda x, w: fx.nn.layer_norm(x, w[0], w[-1]),
    "layer_norm gradient": fx.value_and_grad(norm_loss, argnums=(0, 1)),
    "rms_norm": lambda x, w: fx.nn.rms_norm(x, w[0]),
    "rms_norm gradient": fx.grad(rms_loss, argnums=(0, 1)),
    "logsumexp": lambda x, w: log_sum(x),
    "logsumexp gradient": fx.grad(lambda x, w: fnp.sum(log_sum(x) * w[:, 0])),
    "cross_entropy": cross_entropy,
    "cross_entropy gradient": fx.value_and_grad(cross_entropy, argnums=(0, 1)),
    "moments": lambda x, w: (fnp.mean(x, -1), fnp.mean(x * x, -1), fnp.var(w, -1), fnp.max(x * w, -1)),
    "centred": lambda x, w: (x - fnp.mean(x, -1, keepdims=True), fnp.exp(x) / fnp.sum(fnp.exp(x), -1, keepdims=True) + w),
}
ONE_KERNEL = [
    "softmax", "softmax gradient", "log_softmax", "log_softmax gradient", "layer_norm", "rms_norm", "logsumexp",
    "logsumexp gradient",
]  # fmt: skip


def flat(f, *arrays):
    return build([aval_of(x) for x in arrays], lambda *a: leaves(f(*a)))


def same_bits_either_way(f, *arrays):
    program = flat(f, *arrays)
    with np.errstate(all="ignore"):
        eager = run_program(program, arrays)
    fused = lower._compile(program, True)
    assert_same_bits(eager, fused(*arrays))
    assert_same_bits(eager, lower._compile(program, False)(*arrays))
    return fused


def sample(*shape, dtype="f4", seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_fused_is_unfused(name, dtype):
    for rows, n in ((3, 1), (5, 15), (5, 16), (4, 17), (2, 100), (1, 333), (3, 1024), (1, 1)):
        same_bits_either_way(PROGRAMS[name], sample(rows, n, dtype=dtype), sample(rows, n, dtype=dtype, seed=1))


@pytest.mark.parametrize("name", ["softmax gradient", "layer_norm gradient", "cross_entropy gradient", "moments"])
def test_rows_about_a_block(name):
    for n in (4095, 4096, 4097, 8191, 8192, 8193, 20000):
        same_bits_either_way(PROGRAMS[name], sample(2, n), sample(2, n, seed=1))


@pytest.mark.parametrize("name", PROGRAMS)
def test_no_rows(name):
    same_bits_either_way(PROGRAMS[name], np.zeros((0, 20), np.float32), sample(1, 20))


@pytest.mark.parametrize("name", PROGRAMS)
def test_special_values(name):
    x, w = sample(12, 40), sample(12, 40, seed=1)
    for i, v in enumerate((np.nan, np.inf, -np.inf, 0.0, -0.0)):
        x[i, i] = x[i, 30] = w[i + 5, 7] = v
    x[5], x[6], x[7], x[8] = -np.inf, np.inf, np.nan, -0.0
    same_bits_either_way(PROGRAMS[name], x, w)


@pytest.mark.parametrize("name", ONE_KERNEL)
def test_one_pass_over_memory(name):
    x, w = sample(6, 50), sample(6, 50, seed=1)
    (step,) = same_bits_either_way(PROGRAMS[name], x, w).steps
    assert step.launch.kernel.form == "row"


def test_dtypes_meet_in_a_row():
    def f(x, y, m):
        n = fnp.sum(m, axis=-1, keepdims=True)
        mean = fnp.sum(fnp.where(m, x, np.float32(0)), axis=-1, keepdims=True) / fnp.astype(n, np.float32)
        wide = fnp.astype(x - mean, np.float64) * y
        return (
            wide, fnp.sum(wide, axis=-1), fnp.any(m & (x > mean), axis=-1), fnp.all(m, axis=-1), n[:, 0],
            fnp.max(fnp.astype(x * np.float32(10), np.int32), axis=-1), fnp.sum(x > mean, axis=-1), m & (y > wide),
        )  # fmt: skip

    x, y = sample(7, 90), sample(7, 90, dtype="f8", seed=1)
    fused = same_bits_either_way(f, x, y, sample(7, 90, seed=2) > 0)
    assert len(fused.steps) == 1


def test_integers_and_booleans():
    x = np.random.default_rng(0).integers(-50, 50, (9, 77)).astype(np.int64)
    same_bits_either_way(lambda x: (x - fnp.max(x, -1, keepdims=True), fnp.sum(x * x, -1), fnp.prod(x[:, :5] % 3 + 1, -1)), x)
    same_bits_either_way(lambda x: (fnp.any(x > 40, -1), fnp.all(x < 49, -1, keepdims=True) & (x > 0)), x)


def test_rows_of_several_axes_and_shapes():
    def f(x, g):
        y = fnp.exp(x - fnp.max(x, axis=(2, 3), keepdims=True))
        z = fnp.reshape(y, (6, 20)) / fnp.sum(y, axis=(2, 3)).reshape(6, 1)
        return z, fnp.sum(z * g, axis=-1)

    fused = same_bits_either_way(f, sample(2, 3, 4, 5), sample(20, 6, seed=1).T)
    assert len(fused.steps) <= 2
    same_bits_either_way(lambda x: fx.nn.softmax(fnp.transpose(x, (2, 0, 1))), sample(30, 4, 5))
    same_bits_either_way(lambda x: fx.nn.softmax(x[::-1, ::2]), sample(30, 41))
    same_bits_either_way(lambda x: fx.nn.softmax(x, axis=0), sample(30, 41))
    same_bits_either_way(lambda x: fx.nn.softmax(x, axis=(0, 2)), sample(3, 20, 4))


def test_a_value_of_another_row_is_not_fused():
    def f(x):
        s = fnp.sum(x, axis=-1, keepdims=True)
        return x + s[::-1], fnp.sum(x, axis=0) + s[0]

    same_bits_either_way(f, sample(40, 40))

    def shifted(x):
        y = x - fnp.max(x, -1, keepdims=True)
        return fnp.sum(y[:, ::-1] * y, axis=-1), fnp.sum(y.T * y, axis=-1)

    same_bits_either_way(shifted, sample(40, 40))


def test_no_cycle_through_other_steps():
    def f(x, w):
        y = fx.nn.softmax(x)
        z = y @ w
        return fnp.sum(x * fnp.sort(y, axis=-1), axis=-1), z - fnp.max(x, -1, keepdims=True), fnp.sum(y * z, -1)

    same_bits_either_way(f, sample(32, 32), sample(32, 32, seed=1))


def activation_backward(x, g, w, v):
    """The gradient of tanh and the activation again, which only the product after it needs."""
    t = fnp.tanh(x)
    return g @ w * (1 - t * t) + x, fnp.swapaxes(t * x, 0, 1) @ v


def test_what_is_computed_again_is_not_stored_for_another_map():
    x, g, w, v = sample(40, 24), sample(40, 30, seed=1), sample(30, 24, seed=2), sample(40, 20, seed=3)
    steps = same_bits_either_way(activation_backward, x, g, w, v).steps
    (both,) = [launch for s in steps for launch in s.launches if "tanh" in launch.kernel.title]
    assert len(both.writes) == 2 and len(both.reads) == 2


def test_maps_stay_apart_if_something_has_to_run_between_them_or_reads_would_be_added():
    def circle(x, w):
        t = fnp.tanh(x)
        return (t * x) @ w * t + x

    def turned(x, w):
        t = fnp.tanh(x)
        return (x @ w) * (t * fnp.swapaxes(t, 0, 1)) + x, fnp.swapaxes(t * x, 0, 1) @ w

    def more_to_read(x, w):
        t = fnp.tanh(x + w)
        return (x @ w) * t * t, t @ w, t

    x, w = sample(30, 30), sample(30, 30, seed=1)
    for f in (circle, turned, more_to_read):
        kernels = [launch.kernel for s in same_bits_either_way(f, x, w).steps for launch in s.launches]
        assert sum(k.form == "map" for k in kernels) == 2, f.__name__


def test_long_rows_are_read_in_blocks():
    """A vector's reductions are split so that a team can share them, and share a pass; the bits are the tree's."""
    for n in (100_000, 8192 * 4, 8192 * 4 + 1):
        x = sample(n)
        fused = same_bits_either_way(lambda x: (fnp.mean(x), fnp.mean(x * x), fnp.max(x)), x)
        assert [s.launch.plan[0] for s in fused.steps] == [-(-n // 8192), 1]
    big = sample(600_000)
    same_bits_either_way(fx.nn.softmax, big)
    same_bits_either_way(lambda x: fnp.var(x, axis=-1), np.stack([big, big[::-1]]))
    same_bits_either_way(lambda x: (fnp.exp(x), fnp.sum(fnp.exp(x))), big)


def test_any_split_of_rows_and_blocks():
    """Ranges of units one after the other, in any cut, write what one range does."""
    call = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
    x, w = sample(37, 100), sample(37, 100, seed=1)
    for f, arrays in ((PROGRAMS["softmax gradient"], (x, w)), (lambda x: (fnp.sum(x), fnp.max(x)), (sample(50_000),))):
        program = flat(f, *arrays)
        a, tasks = partition(flatten(program))
        steps = [s._replace(plan=s.kernel.bind(s.plan)) for t in tasks for s in launches(a, t)]
        addresses = kernel_addresses([s.kernel for s in steps])
        want = run_program(program, arrays)
        for cuts in ((), (1,), (3, 4)):
            env = dict(zip(a.program.inputs, arrays, strict=True))
            for s, address in zip(steps, addresses, strict=True):
                env.update({v: np.zeros(v.aval.shape, v.aval.dtype) for v in s.writes})
                operands = [env[v] for v in (*s.reads, *s.writes)]
                pointers = (ctypes.c_void_p * len(operands))(*[o.ctypes.data for o in operands])
                bounds = [0, *(c for c in cuts if c < s.plan[0]), int(s.plan[0])]
                for lo, hi in itertools.pairwise(bounds):
                    call(address)(ctypes.addressof(pointers), s.plan.ctypes.data, lo, hi)
            assert_same_bits(want, [env[o][()] for o in a.program.outputs])


def test_rows_too_long_for_the_cache_stay_apart():
    x = sample(2, 400_000)
    steps = same_bits_either_way(fx.nn.softmax, x).steps
    assert len(steps) > 1 and not any(sum(s.passes for s in t.launch.kernel.stages) > 1 for t in steps)


def test_why_says_why():
    def f(x, w):
        y = fx.nn.softmax(x)
        return y @ w, y

    fused = same_bits_either_way(f, sample(8, 32), sample(32, 8, seed=1))
    assert fused.steps[0].why == ["output of the program"]


def test_large_results_go_past_the_caches():
    """Whatever the alignment of a row, what is stored is the same; small results are stored as usual."""
    x = sample(2900, 3002)[:, :3001]
    for a, streams in ((x[:3], 0), (x, 1)):
        program = flat(lambda x, y: -x[:, ::-1] + y, a, a[0])
        compiled = lower._compile(program, True)
        (step,) = compiled.steps
        plan = step.launch.plan
        assert plan[6 + plan[3] + 2 * (3 + plan[3]) + 2] == streams
        assert_same_bits([a[0] - a[:, ::-1]], compiled(np.ascontiguousarray(a), a[0]))


# ---- arrays in pieces --------------------------------------------------------------------------------------------------------


def pads(x, y):
    padded = fnp.pad(x * 2, ((1, 2), (0, 3)), constant_values=-0.0)
    return padded, fnp.pad(x, ((3, 0), (3, 0))) + padded * padded


def joins(x, y):
    joined = fnp.concatenate([fnp.exp(x), y, x * y], axis=1)
    return joined, joined * 2 - fnp.concatenate([y, x, y], axis=1), fnp.stack([x, y.T.T, x], axis=0) + y


def stencil(x, y):
    s = fnp.pad(x, 1)
    return s[2:, 1:-1] + s[:-2, 1:-1] + s[1:-1, 2:] + s[1:-1, :-2] - 4 * x


def reduced(x, y):
    s = fnp.concatenate([x, fnp.pad(y, ((0, 1), (0, 0)))], axis=0)
    return fnp.sum(s * s, axis=-1), fx.nn.softmax(s), fnp.max(s), fnp.sum(s, axis=0)


def parts_meet(x, y):
    n = x.shape[1] // 2
    return fx.grad(lambda x: fnp.sum(x[:, :n] * x[:, n : 2 * n] + fnp.exp(x[:, n : 2 * n])))(x), fnp.roll(x, 2, 1) + y


def nothing_added(x, y):
    return fnp.concatenate([x, y[:0]], axis=0) + y, fnp.pad(x, 0) * y, fnp.concatenate([x[:0], y[:0]], axis=0)


@pytest.mark.parametrize("dtype", ["f4", "f8", "i4"])
@pytest.mark.parametrize("f", [pads, joins, stencil, reduced, parts_meet, nothing_added])
def test_arrays_in_pieces(f, dtype):
    f = f if dtype != "i4" or f in (pads, stencil, nothing_added) else stencil
    x, y = ((10 * sample(5, 18, seed=s)).astype(dtype) for s in (0, 1))
    x[0, 0] = x[2, 3] = -0.0
    same_bits_either_way(f, x, y)


def test_pieces_are_written_into_their_place():
    x, y = sample(6, 8), sample(3, 8, seed=1)
    fused = same_bits_either_way(lambda x, y: fnp.pad(fnp.concatenate([x, y], 0), 1) * 2, x, y)
    assert {s.kind for s in fused.steps} == {"kernel"}
    fused = same_bits_either_way(lambda x, y: fnp.concatenate([x, y], 0) * np.float32(2), x, y)
    assert [(s.bytes_read, s.bytes_written) for s in fused.steps] == [(192, 192), (96, 96)]
    assert fused.steps[1].why == ["one piece after the other"]
    halves = same_bits_either_way(fx.grad(lambda x: fnp.sum(x[:3] * x[3:])), x)
    assert [s.title for s in halves.steps] == ["add", "add"]


# ---- columns -------------------------------------------------------------------------------------------------------------------

COLUMNS = {
    "softmax": lambda x, w: fx.nn.softmax(x, axis=0),
    "softmax gradient": fx.grad(weighted(lambda x: fx.nn.softmax(x, axis=0))),
    "standardize": lambda x, w: fx.nn.standardize(x, axis=0) * w[0] + w[1],
    "standardize gradient": fx.grad(lambda x, w: fnp.sum(fx.nn.standardize(x, axis=0) * w)),
    "sums": lambda x, w: (fnp.sum(x * w, axis=0), fnp.max(w, axis=0), fnp.mean(x, axis=0), fnp.any(x > w, axis=0)),
    "both ways": lambda x, w: (fnp.sum(x, axis=0), fnp.sum(x, axis=1), x / fnp.sum(x, axis=0), x - fnp.max(x, 1, keepdims=True)),
}


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("name", COLUMNS)
def test_columns(name, dtype):
    for shape in ((2, 16), (40, 16), (33, 100), (300, 17), (9000, 18), (3, 5000)):
        same_bits_either_way(COLUMNS[name], sample(*shape, dtype=dtype), sample(*shape, dtype=dtype, seed=1))


def test_columns_in_one_kernel():
    x, w = sample(50, 40), sample(50, 40, seed=1)
    for name in ("softmax", "softmax gradient", "standardize", "standardize gradient", "sums"):
        (step,) = same_bits_either_way(COLUMNS[name], x, w).steps
        assert step.launch.kernel.form == "cols"
    x = sample(4, 30, 20)
    (step,) = same_bits_either_way(lambda x: fx.nn.softmax(x, axis=1), x).steps
    assert step.launch.kernel.form == "cols"
    (step,) = same_bits_either_way(lambda x: fx.nn.softmax(x.T), sample(64, 500)).steps
    same_bits_either_way(lambda x: fx.nn.softmax(x, axis=0), sample(100_000, 16))
    large = same_bits_either_way(COLUMNS["softmax"], sample(500, 400), sample(500, 400, seed=1))  # leaves the cache
    assert [s.launch.kernel.form for s in large.steps] == ["cols", "map", "cols", "map"]
    assert len(same_bits_either_way(COLUMNS["sums"], sample(500, 400), sample(500, 400, seed=1)).steps) == 1
