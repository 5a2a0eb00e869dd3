"""Random numbers: known answers, the same bits in every mode, the distributions asked for, independence, errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.stats as st

import fxgrad as fx
import fxgrad.numpy as fnp
from fxgrad.kernels.threefry import threefry2x32
from fxgrad.primitives import random as draws
from fxgrad.testing.bits import assert_same_bits
from tests import random_reference as ref
from tests.four_parts import raised

R = fx.random
KEY = R.key(2026)
N = 20_000
KAT = [  # kat_vectors of Random123 1.14: key, counter, block
    ((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
    ((0xFFFFFFFF, 0xFFFFFFFF), (0xFFFFFFFF, 0xFFFFFFFF), (0x1CB996FC, 0xBB002BE7)),
    ((0x13198A2E, 0x03707344), (0x243F6A88, 0x85A308D3), (0xC4923A9C, 0x483DF7A0)),
]
# samplers, with the distribution each follows
PLAIN = {
    "uniform": st.uniform,
    "normal": st.norm,
    "exponential": st.expon,
    "gumbel": st.gumbel_r,
    "laplace": st.laplace,
    "logistic": st.logistic,
    "cauchy": st.cauchy,
}
WITH_PARAMETERS: list[tuple[str, tuple, Any]] = [
    ("gamma", (0.2,), st.gamma(0.2)),
    ("gamma", (1.0,), st.gamma(1.0)),
    ("gamma", (37.5,), st.gamma(37.5)),
    ("beta", (0.4, 2.5), st.beta(0.4, 2.5)),
    ("beta", (8.0, 3.0), st.beta(8, 3)),
    ("chisquare", (3.0,), st.chi2(3)),
    ("t", (2.5,), st.t(2.5)),
    ("truncated_normal", (-1.0, 2.0), st.truncnorm(-1, 2)),
    ("truncated_normal", (3.0, np.inf), st.truncnorm(3, np.inf)),
    ("truncated_normal", (-9.0, -8.0), st.truncnorm(-9, -8)),
]
COUNTS: list[tuple[str, tuple, Any]] = [
    ("poisson", (0.3,), st.poisson(0.3)),
    ("poisson", (9.9,), st.poisson(9.9)),
    ("poisson", (10.0,), st.poisson(10)),
    ("poisson", (3000.0,), st.poisson(3000)),
    ("binomial", (10, 0.9), st.binom(10, 0.9)),
    ("binomial", (50, 0.4), st.binom(50, 0.4)),
    ("binomial", (100_000, 0.7), st.binom(100_000, 0.7)),
]


def ks(x: Any, distribution: Any) -> float:
    return float(st.kstest(np.asarray(x, np.float64).ravel(), distribution.cdf).pvalue)


# ---- bits --------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key, counter, block", KAT)
def test_known_answers(key: tuple, counter: tuple, block: tuple) -> None:
    """The compiled kernel, its NumPy evaluation and the reference of the tests, against the published vectors."""
    words = [np.full(3, w, np.uint32) for w in (*key, *counter)]
    for found in (
        threefry2x32(*words),
        [draws.threefry2x32(*words, take=t) for t in ("first", "second")],
        ref.threefry(np.array(key, np.uint32), *counter),
    ):
        assert tuple(int(np.ravel(x)[0]) for x in found) == block
    both, xor = (draws.threefry2x32(*words, take=t) for t in ("both", "xor"))
    assert int(both[0]) == block[0] << 32 | block[1] and int(xor[0]) == block[0] ^ block[1]


def test_streams_are_as_documented() -> None:
    """These numbers may not change between versions: they are the stream."""
    key = R.key(0)
    assert [int(x) for x in R.bits(key, (3,))] == [4070199207, 4202968722, 1427181096]
    assert R.split(key, 3)[0].tolist() == [1829400328, 293482607]
    assert R.fold_in(key, 5).tolist() == [3880229891, 3454140570]
    assert_same_bits(R.uniform(key, (100,)), ref.uniform((100,), key))
    assert_same_bits(R.bits(key, (7, 11)), ref.bits32((7, 11), key))


@pytest.mark.parametrize(
    "shape", [(), (0,), (5,), (3, 0, 2), (2, 3, 4), (70, 80), (1 << 20,), ((1 << 20) + 7,), (3, (1 << 20) + 64)]
)
def test_elements_are_counted_in_c_order(shape: tuple) -> None:
    """Whatever the shape, the bits are those of the flat array."""
    n = int(np.prod(shape))
    assert_same_bits(np.ravel(R.bits(KEY, shape)), R.bits(KEY, (n,)) if shape else np.ravel(ref.bits32((), KEY)))
    assert_same_bits(np.ravel(R.bits(KEY, shape))[:50], ref.bits32((min(n, 50),), KEY))


def test_dtypes_of_bits() -> None:
    wide = R.bits(KEY, (9,), np.uint64)
    assert_same_bits(wide, ref.bits64((9,), KEY))
    for dtype in (np.uint8, np.uint16):
        assert_same_bits(R.bits(KEY, (9,), dtype), R.bits(KEY, (9,)).astype(dtype))


# ---- keys --------------------------------------------------------------------------------------------------------------------


def test_keys_from_seeds() -> None:
    assert R.key(1).tolist() == [0, 1] and R.key(-1).tolist() == [0xFFFFFFFF] * 2
    assert R.key(1 << 40 | 3).tolist() == [1 << 8, 3] and R.key((1 << 64) - 2).tolist() == [0xFFFFFFFF, 0xFFFFFFFE]
    for seed in (np.int32(-5), np.int64(1 << 40), np.uint64(1 << 63), np.uint8(200)):
        assert_same_bits(fx.jit(R.key)(np.asarray(seed)), R.key(int(seed)))
    assert R.PRNGKey is R.key
    assert_same_bits(R.wrap_key_data(R.key_data(KEY)), KEY)


def test_split_and_fold_in() -> None:
    assert R.split(KEY).shape == (2, 2) and R.split(KEY, (3, 4)).shape == (3, 4, 2)
    assert_same_bits(R.split(KEY, 5)[:2], R.split(KEY))
    assert_same_bits(np.reshape(R.split(KEY, (3, 4)), (12, 2)), R.split(KEY, 12))
    a, b = R.split(KEY)
    assert a.dtype == np.uint32 and a.tolist() != b.tolist()
    assert_same_bits(fx.jit(R.fold_in)(KEY, np.int32(3)), R.fold_in(KEY, 3))
    assert_same_bits(R.fold_in(KEY, -1), R.fold_in(KEY, 0xFFFFFFFF))


def test_streams_do_not_overlap() -> None:
    """Blocks of draws, split keys and folded keys of one key, and of keys made from it, are all different."""
    words: list[np.ndarray] = []
    for key in (KEY, R.key(0), R.key(1), *R.split(KEY, 3), R.fold_in(KEY, 0)):
        words.append(R.bits(key, (4000,), np.uint64))
        words += [
            np.ascontiguousarray(x).view(np.uint64)[:, 0]
            for x in (R.split(key, 500), fx.vmap(lambda i, k=key: R.fold_in(k, i))(np.arange(500)))
        ]
    every = np.concatenate(words)
    assert np.unique(every).size == every.size


def _children(key: np.ndarray) -> list[np.ndarray]:
    return [R.split(key, 500), fx.vmap(lambda i: R.fold_in(key, i))(np.arange(500))]


def test_split_streams_are_independent() -> None:
    """Correlations of 200 streams, of neighbouring seeds, and of a stream with itself shifted are those of chance."""
    streams = np.stack([R.normal(k, (2000,)) for k in (*R.split(KEY, 100), *[R.key(i) for i in range(100)])])
    c = np.corrcoef(streams)[np.triu_indices(200, 1)] * np.sqrt(2000)
    assert np.abs(c).max() < 5.2 and abs(c.std() - 1) < 0.02 and abs(c.mean()) < 0.03
    x = R.normal(KEY, (N,))
    assert max(abs(float(np.mean(x[k:] * x[:-k]))) for k in range(1, 20)) < 4 / np.sqrt(N)
    starts = np.stack([R.uniform(k) for k in R.split(KEY, N)])  # the first number of every stream
    assert ks(starts, st.uniform) > 0.01


def test_every_bit_is_fair() -> None:
    x = R.bits(KEY, (1 << 16,))
    ones = np.array([np.count_nonzero(x >> np.uint32(i) & np.uint32(1)) for i in range(32)])
    assert np.abs(ones - (1 << 15)).max() < 4 * np.sqrt(1 << 14)
    together = [np.mean((x >> np.uint32(i) ^ x >> np.uint32(j)) & np.uint32(1)) for i in range(32) for j in range(i)]
    assert np.abs(np.array(together) - 0.5).max() < 4.5 / 512


# ---- modes -------------------------------------------------------------------------------------------------------------------

SAMPLERS: dict[str, Any] = {
    "bits": lambda k: R.bits(k, (40,)),
    "split": lambda k: R.split(k, 3),
    "uniform": lambda k: R.uniform(k, (3, 7), minval=-1.0, maxval=2.0),
    "normal": lambda k: R.normal(k, (33,), np.float32),
    "half": lambda k: R.normal(k, (5,), np.float16),
    "randint": lambda k: R.randint(k, (20,), -5, 1 << 40),
    "bernoulli": lambda k: R.bernoulli(k, 0.3, (20,)),
    "categorical": lambda k: R.categorical(k, np.log(np.array([0.1, 0.6, 0.3])), shape=(9,)),
    "permutation": lambda k: R.permutation(k, 12),
    "choice": lambda k: R.choice(k, 10, (4,), replace=False, p=np.arange(10) / 45),
    "gamma": lambda k: R.gamma(k, np.array([0.1, 1.0, 30.0])),
    "dirichlet": lambda k: R.dirichlet(k, np.ones(3), (4,)),
    "poisson": lambda k: R.poisson(k, np.array([0.5, 8.0, 20.0, 1e6])),
    "truncated_normal": lambda k: R.truncated_normal(k, -1.0, 0.5, (9,)),
}


@pytest.mark.parametrize("name", SAMPLERS)
def test_same_bits_in_every_mode(name: str) -> None:
    """eager == jit == op by op == vmap over keys == checkpointed; rank 0 too."""
    draw = SAMPLERS[name]
    expected = draw(KEY)
    assert_same_bits(fx.jit(draw)(KEY), expected)
    with fx.disable_jit():
        assert_same_bits(draw(KEY), expected)
    keys = R.split(KEY, 4)
    looped = np.stack([draw(k) for k in keys])
    assert_same_bits(fx.vmap(draw)(keys), looped)
    assert_same_bits(fx.jit(fx.vmap(draw))(keys), looped)
    if expected.dtype.kind == "f":
        assert_same_bits(fx.checkpoint(draw)(KEY), expected)


def test_same_bits_with_threads() -> None:
    def draw(k: Any) -> Any:
        return R.normal(k, (1 << 17,), np.float32), R.gamma(k, 2.5, (1 << 14,))

    threads = fx.get_num_threads()
    try:
        fx.set_num_threads(1)
        alone = fx.jit(draw)(KEY)
        fx.set_num_threads(3)
        assert_same_bits(fx.jit(draw)(KEY), alone)
    finally:
        fx.set_num_threads(threads)


def test_draws_are_part_of_the_program() -> None:
    """Under jit the key is an argument: other keys, other numbers, no new trace; a gradient sees the numbers of its key."""
    f = fx.jit(lambda k, x: fnp.sum(R.normal(k, x.shape) * x))
    x = np.arange(1.0, 5.0)
    values = {float(f(R.key(i), x)) for i in range(5)}
    assert len(values) == 5 and f.cache_info().misses == 1
    g = fx.grad(lambda x, k: fnp.sum(R.normal(k, x.shape) * x))(x, KEY)
    assert_same_bits(g, R.normal(KEY, (4,)))


def test_drawing_fuses() -> None:
    """The draw, its counters and what follows are one kernel."""
    text = fx.jit(lambda k, x: x + 0.5 * R.normal(k, x.shape)).lower(KEY, np.zeros((64, 100))).compile().as_text()
    assert text.count("\nkernel:") == 1 and "threefry2x32" in text and "host" not in text


# ---- distributions -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", PLAIN)
def test_plain_distributions(name: str, dtype: type) -> None:
    x = getattr(R, name)(KEY, (N,), dtype)
    assert x.dtype == dtype and np.isfinite(x).all()
    assert ks(x, PLAIN[name]) > 0.01
    d = PLAIN[name]
    if np.isfinite(d.var()):
        assert abs(float(x.mean(dtype=np.float64)) - d.mean()) < 4 * d.std() / np.sqrt(N)
        assert abs(float(x.var(dtype=np.float64)) / d.var() - 1) < 0.06


@pytest.mark.parametrize("name, parameters, distribution", WITH_PARAMETERS)
def test_distributions_with_parameters(name: str, parameters: tuple, distribution: Any) -> None:
    for dtype in (np.float64, np.float32):
        assert ks(getattr(R, name)(KEY, *parameters, (N,), dtype), distribution) > 0.01


@pytest.mark.parametrize("name, parameters, distribution", COUNTS)
def test_counts(name: str, parameters: tuple, distribution: Any) -> None:
    x = getattr(R, name)(KEY, *parameters, (N,))
    edges = np.unique(distribution.ppf(np.linspace(0.02, 0.98, 25)))
    edges = edges[distribution.sf(edges) > 0]
    share = np.diff(distribution.cdf(edges), prepend=0, append=1)
    found = np.bincount(np.searchsorted(edges, x), minlength=share.size)
    assert st.chisquare(found, share * N).pvalue > 0.005
    assert x.dtype == np.int64 and (x >= 0).all()


def test_uniform_is_below_one_and_uses_every_bit() -> None:
    for dtype, width in ((np.float32, 24), (np.float64, 53)):
        x = R.uniform(KEY, (1 << 16,), dtype)
        whole = np.ldexp(x.astype(np.float64), width)
        assert x.max() < 1 and (whole == np.floor(whole)).all() and (whole % 2 == 1).any()
    top = np.array([0xFFFFFFFF], np.uint32), np.array([(1 << 64) - 1], np.uint64)
    from fxgrad.random.draws import open_unit, unit

    for bits in top:
        assert float(unit(bits)[0]) < 1 and float(open_unit(bits)[0]) < 1
        assert np.isfinite(draws.normal_of_bits(bits)).all() and np.isfinite(draws.normal_of_bits(bits * 0)).all()
    x = R.uniform(KEY, (1 << 16,), np.float32, 1.0, 1.0 + 2.0**-22)  # four numbers wide: rounding would reach the end
    assert x.max() < np.float32(1.0 + 2.0**-22) and np.unique(x).size == 2
    assert R.uniform(KEY, (1000,), np.float16).max() < 1


def test_normal_tails() -> None:
    """The smallest 31 bits are 6 standard deviations out, and each tail has as many as it should."""
    far = draws.normal_of_bits(np.array([0, 1], np.uint32))
    assert abs(float(far[0]) - float(-st.norm.ppf(2.0**-33))) < 1e-5 and float(far[1]) == -float(far[0])
    x = R.normal(KEY, (1 << 20,), np.float32)
    for z in (3.0, 4.0):
        assert abs(np.count_nonzero(np.abs(x) > z) - 2 * st.norm.sf(z) * 2**20) < 4 * np.sqrt(2 * st.norm.sf(z) * 2**20)


@pytest.mark.parametrize("bounds", [(0, 10), (-3, 4), (0, 3 << 30), (0, 1 << 32), (0, 3 << 40), (-(1 << 62), 1 << 62)])
def test_randint(bounds: tuple[int, int]) -> None:
    low, high = bounds
    x = R.randint(KEY, (N,), low, high)
    assert x.dtype == np.int64 and x.min() >= low and x.max() < high
    found = np.bincount(((x.astype(object) - low) * 7 // (high - low)).astype(np.int64), minlength=7)
    edges = [-(-(high - low) * i // 7) for i in range(8)]
    share = np.diff(np.array(edges, object)) / (high - low)
    assert st.chisquare(found, share.astype(float) * N).pvalue > 0.005


def test_randint_whole_ranges() -> None:
    for dtype in (np.uint64, np.int64, np.uint32, np.int32, np.int8):
        info = np.iinfo(dtype)
        x = R.randint(KEY, (N,), int(info.min), int(info.max) + 1, dtype)
        assert x.dtype == dtype and abs(np.count_nonzero(x > info.max // 2 + info.min // 2) - N / 2) < 4 * np.sqrt(N) / 2
    x = fx.jit(lambda k, n: R.randint(k, (50,), 0, n))(KEY, np.int64(6))
    assert_same_bits(x, fx.vmap(lambda n: R.randint(KEY, (50,), 0, n))(np.array([6]))[0])
    assert set(x.tolist()) == set(range(6))


def test_choices() -> None:
    x = R.choice(KEY, 5, (N,), p=np.array([0.1, 0.0, 0.4, 0.2, 0.3]))
    found = np.bincount(x, minlength=5)
    assert found[1] == 0 and st.chisquare(np.delete(found, 1), np.array([0.1, 0.4, 0.2, 0.3]) * N).pvalue > 0.01
    a = np.arange(12.0).reshape(3, 4)
    assert R.choice(KEY, a, (6,), axis=1).shape == (3, 6) and R.choice(KEY, a, replace=True).shape == (4,)
    assert sorted(R.choice(KEY, 6, (2, 3), replace=False).ravel().tolist()) == list(range(6))
    firsts = np.stack([R.choice(k, 4, (2,), replace=False, p=np.array([0.7, 0.1, 0.1, 0.1])) for k in R.split(KEY, 400)])
    assert (firsts[:, 0] != firsts[:, 1]).all() and abs(np.mean(firsts[:, 0] == 0) - 0.7) < 0.1
    logits = np.log(
        np.array([[0.5, 0.25, 0.25], [0.0, 1.0, 0.0]]) + 0.0, where=[[1, 1, 1], [0, 1, 0]], out=np.full((2, 3), -np.inf)
    )
    x = R.categorical(KEY, logits, shape=(5000, 2))
    assert (x[:, 1] == 1).all() and abs(np.mean(x[:, 0] == 0) - 0.5) < 0.04
    assert R.categorical(KEY, logits.T, axis=0).shape == (2,)
    assert abs(float(R.bernoulli(KEY, np.float32(0.2), (N,)).mean()) - 0.2) < 0.012


def test_permutations() -> None:
    orders = np.stack([R.permutation(k, 3) for k in R.split(KEY, 1200)])
    found = np.unique(orders @ np.array([9, 3, 1]), return_counts=True)[1]
    assert found.size == 6 and st.chisquare(found).pvalue > 0.01
    a = np.arange(12.0).reshape(4, 3)
    rows = R.permutation(KEY, a)
    assert sorted(map(tuple, rows.tolist())) == sorted(map(tuple, a.tolist()))
    alone = R.permutation(KEY, a, axis=0, independent=True)
    assert (np.sort(alone, axis=0) == a).all() and np.unique(alone // 3, axis=1).shape[1] > 1


def test_vectors() -> None:
    x = R.dirichlet(KEY, np.array([0.5, 2.0, 4.0]), (5000,))
    assert np.allclose(x.sum(-1), 1) and np.abs(x.mean(0) - np.array([0.5, 2, 4]) / 6.5).max() < 0.02
    assert ks(x[:, 0], st.beta(0.5, 6.0)) > 0.01
    assert set(R.rademacher(KEY, (100,), np.float32).tolist()) == {-1.0, 1.0}
    small = R.loggamma(KEY, 1e-4, (1000,))
    assert np.isfinite(small).all() and ks(-small * 1e-4, st.expon) > 0.01  # -a log(x) is nearly exponential


def test_multivariate_normal() -> None:
    mean, cov = np.array([1.0, -2.0]), np.array([[2.0, 1.2], [1.2, 1.5]])
    x = R.multivariate_normal(KEY, mean, cov, (N,))
    assert np.abs(x.mean(0) - mean).max() < 0.04 and np.abs(np.cov(x.T) - cov).max() < 0.08
    assert R.multivariate_normal(KEY, mean, cov, dtype=np.float32).dtype == np.float32
    by_mean = fx.jacfwd(lambda m: R.multivariate_normal(KEY, m, cov))(mean)
    assert np.allclose(by_mean, np.eye(2))


# ---- derivatives -------------------------------------------------------------------------------------------------------------


def test_gradients_by_reparametrisation() -> None:
    low, high = np.float64(-1.0), np.float64(2.0)
    u = R.uniform(KEY, (5,), minval=low, maxval=high)
    by_low, by_high = fx.jacfwd(lambda a, b: R.uniform(KEY, (5,), minval=a, maxval=b), argnums=(0, 1))(low, high)
    assert np.allclose(by_low, (high - u) / 3) and np.allclose(by_high, (u - low) / 3)
    fx_grad = fx.grad(lambda a, b: fnp.sum(R.truncated_normal(KEY, a, b, (50,))), argnums=(0, 1))(low, high)
    h = 1e-5
    for i, g in enumerate(fx_grad):
        bounds = [[low, high], [low, high]]
        bounds[0][i] += h
        bounds[1][i] -= h
        up, down = (R.truncated_normal(KEY, *b, (50,)).sum() for b in bounds)
        assert abs(g - (up - down) / (2 * h)) < 1e-5


@pytest.mark.parametrize("a", [0.3, 1.7, 25.0, 4000.0])
def test_gamma_gradient_is_that_of_the_distribution(a: float) -> None:
    """E[dx/da] = dE[x]/da = 1 and E[2 x dx/da] = dE[x^2]/da = 2 a + 1."""
    x, dx = fx.jvp(lambda s: R.gamma(KEY, s, (N,)), (a,), (1.0,))
    assert abs(dx.mean() - 1) < 5 * dx.std() / np.sqrt(N)
    second = 2 * x * dx
    assert abs(second.mean() - (2 * a + 1)) < 5 * second.std() / np.sqrt(N)


def test_gamma_draw_slope() -> None:
    """At constant probability: P(a, x) stays what it is."""
    import scipy.special

    a, x, h = np.array([1.0, 2.5, 8.0, 30.0, 500.0]), np.array([0.3, 4.0, 8.5, 21.0, 530.0]), 1e-4
    slope = draws.gamma_draw_slope(a, x)
    p = [scipy.special.gammainc(a + k * h, x + k * h * slope) for k in (-1, 1)]
    assert np.abs(p[1] - p[0]).max() < 1e-7 * h / 1e-4 + 1e-9
    assert (slope > 0).all()
    with pytest.raises(fx.NonDifferentiableError, match="twice by its shape"):
        fx.grad(fx.grad(lambda s: R.gamma(KEY, s)))(2.0)


# ---- errors ------------------------------------------------------------------------------------------------------------------


def test_errors_have_four_parts() -> None:
    cases: list[tuple[Any, type, str, str, str]] = [
        (
            lambda: R.normal(0, (3,)),
            TypeError,
            "a key is a uint32 array of shape (2,), got int",
            "function of a key",
            "fx.random.key(seed)",
        ),
        (lambda: R.normal(np.zeros(2), (3,)), TypeError, "got float64[2]", "function of a key", "fx.random.key(seed)"),
        (lambda: R.normal(R.split(KEY, 3)), ValueError, "got uint32[3, 2]", "batch of keys", "fx.vmap(f)(keys)"),
        (lambda: R.key(1.5), TypeError, "a seed is an integer, got float", "rounding", "fx.random.key(0)"),
        (lambda: R.key(np.array([1, 2])), ValueError, "a seed is a scalar", "One seed", "fx.vmap(fx.random.key)"),
        (lambda: R.key(1 << 64), OverflowError, "the seed", "64", "uint64"),
        (lambda: R.fold_in(KEY, 0.5), TypeError, "fold_in takes an integer scalar", "different keys", "fold_in(key, step)"),
        (lambda: R.normal(KEY, (2,), np.int32), TypeError, "got dtype int32", "real", "randint"),
        (lambda: R.bits(KEY, (2,), np.int32), TypeError, "unsigned", "sign", "np.uint32"),
        (lambda: R.randint(KEY, (2,), 3, 3), ValueError, "no integers from 3 up to 3", "larger than minval", "minval < maxval"),
        (lambda: R.randint(KEY, (2,), 0, 300, np.int8), ValueError, "not within int8", "holds", "wider dtype"),
        (lambda: R.randint(KEY, (2,), 0.0, 1), TypeError, "integers", "floats", "uniform"),
        (lambda: R.bernoulli(KEY, 1.5), ValueError, "not between 0 and 1", "NaN", "np.clip"),
        (lambda: R.choice(KEY, 3, (4,), replace=False), ValueError, "4 of 3", "not as many", "replace=True"),
        (lambda: R.choice(KEY, 3, p=np.array([0.5, 0.1, 0.1])), ValueError, "sums to 0.7", "sum to 1", "p / p.sum()"),
        (lambda: R.choice(KEY, 3, p=np.ones(2) / 2), ValueError, "p has shape (2,)", "one probability", "as many"),
        (lambda: R.gamma(KEY, np.ones(3), (2,)), ValueError, "do not broadcast", "its parameters", "Leave shape out"),
        (lambda: R.categorical(KEY, np.zeros((2, 3)), shape=(5,)), ValueError, "does not end in (2,)", "Each row", "shape=(n"),
        (lambda: R.dirichlet(KEY, 1.0), ValueError, "got a scalar", "coordinates", "np.ones(n)"),
        (lambda: R.multivariate_normal(KEY, np.zeros(2), np.eye(3)), ValueError, "got (2,) and (3, 3)", "row", "np.diag"),
        (lambda: R.permutation(KEY, 2.5), TypeError, "got a scalar", "no length", "Python int"),
        (lambda: R.bits(KEY, (1 << 17, 1 << 17)), ValueError, "at most 2**32", "32 bits", "fx.random.split(key, parts)"),
        (lambda: R.rademacher(KEY, (2,), np.uint8), TypeError, "does not hold", "sign", "signed"),
    ]  # fmt: skip
    for call, kind, what, why, fix in cases:
        parts = str(raised(call, kind)).split("\n  ")
        assert len(parts) == 4 and parts[1].startswith("at test_random.py:"), parts
        assert what in parts[0] and why in parts[2] and fix in parts[3], parts
