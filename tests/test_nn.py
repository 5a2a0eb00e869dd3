"""fx.nn beyond parity: what is at infinity, masks, randomness, statistics, and every error message."""

from __future__ import annotations

import numpy as np
import pytest

import fxgrad as fx
import fxgrad.numpy as fnp
from fxgrad import nn
from fxgrad.testing.bits import assert_same_bits
from tests.four_parts import assert_four_parts

init = nn.initializers
KEY = fx.random.key(0)
rng = np.random.default_rng(0)


# ---- edges of activations --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "f, at_minus_infinity",
    [(nn.silu, 0), (nn.mish, 0), (nn.hard_silu, 0), (nn.sparse_plus, 0), (nn.sparse_sigmoid, 0), (nn.celu, -1), (nn.elu, -1)],
)
def test_infinities_and_nan(f, at_minus_infinity):
    x = np.array([-np.inf, np.nan, np.inf])
    y = f(x)
    assert y[0] == at_minus_infinity and np.isnan(y[1]) and y[2] == (1 if f is nn.sparse_sigmoid else np.inf)
    g = fx.grad(lambda x: fnp.sum(f(x)))(x)
    assert g[0] == 0
    if f not in (nn.silu, nn.mish):  # products with a sigmoid, whose slope 0 meets inf there
        assert g[2] == (0 if f is nn.sparse_sigmoid else 1)


def test_log1mexp_keeps_its_digits():
    x = np.array([1e-30, 1e-3, 0.5, 0.7, 1.0, 40.0, 800.0])
    import mpmath

    with mpmath.workdps(60):
        exact = [float(mpmath.log(1 - mpmath.exp(-mpmath.mpf(float(v))))) for v in x]
    np.testing.assert_allclose(nn.log1mexp(x), exact, rtol=4e-16)
    assert nn.log1mexp(0.0) == -np.inf and np.isnan(nn.log1mexp(-1.0)) and nn.log1mexp(np.inf) == 0


@pytest.mark.parametrize("name", ["hard_sigmoid", "hard_silu", "mish", "squareplus", "log1mexp", "sparse_plus", "celu", "selu"])
def test_dtypes(name):
    f = getattr(nn, name)
    for dtype in (np.float16, np.float32, np.float64):
        assert f(np.array([0.5, 2.0], dtype)).dtype == dtype
    assert f(np.array([1, 2])).dtype == np.float64 and isinstance(f(1.0), np.float64)


def test_masked_means():
    a = np.log(np.array([[1.0, 3.0, 100.0], [2.0, 5.0, 8.0]]))
    where = np.array([[True, True, False], [True, True, True]])
    np.testing.assert_allclose(nn.logmeanexp(a, -1, where), np.log([2.0, 5.0]))
    assert nn.logmeanexp(a, (0, 1), keepdims=True).shape == (1, 1)


# ---- attention -------------------------------------------------------------------------------------------------------------


def test_a_query_without_keys_gets_zeros_and_no_gradient():
    q, k, v = (rng.standard_normal((3, 4)).astype(np.float32) for _ in range(3))
    mask = np.array([[True, False, False], [False, False, False], [True, True, True]])
    y, gradients = fx.value_and_grad(lambda *a: fnp.sum(nn.attention(*a, mask=mask) ** 2), (0, 1, 2))(q, k, v)
    assert not nn.attention(q, k, v, mask=mask)[1].any() and np.isfinite(y)
    assert all(np.isfinite(g).all() for g in gradients) and not gradients[0][1].any()


def test_causal_and_mask_together():
    q, k, v = (rng.standard_normal((2, 4, 4)) for _ in range(3))
    mask = np.array([True, True, False, True])
    both = nn.attention(q, k, v, causal=True, mask=mask)
    assert_same_bits(both, nn.attention(q, k, v, mask=np.tril(np.ones((4, 4), bool)) & mask))
    changed = k.copy()
    changed[:, 2] = 7
    assert_same_bits(both, nn.attention(q, changed, v, causal=True, mask=mask))


def test_shared_heads_are_repeated_heads():
    q, k, v = (rng.standard_normal((2, h, 5, 4)).astype(np.float32) for h in (6, 2, 2))
    mask = rng.random((2, 6, 5, 5)) < 0.7
    repeated = [np.repeat(x, 3, axis=1) for x in (k, v)]
    assert_same_bits(nn.attention(q, k, v, mask=mask), nn.attention(q, *repeated, mask=mask))
    assert_same_bits(nn.attention(q, k[:, :1], v[:, :1]), nn.attention(q, *[np.repeat(x[:, :1], 6, 1) for x in (k, v)]))


def test_rotary_products_depend_on_distances():
    q, k = rng.standard_normal((2, 1, 8))
    near = [nn.rotary(np.repeat(x, 1, 0), positions=np.array([p])) for x, p in ((q, 3), (k, 5))]
    far = [nn.rotary(x, positions=np.array([p])) for x, p in ((q, 103), (k, 105))]
    np.testing.assert_allclose((near[0] @ near[1].T), far[0] @ far[1].T, rtol=1e-9)
    assert nn.rotary(q.astype(np.float16)).dtype == np.float16


def test_attention_messages():
    x = np.zeros((2, 3, 4))
    with pytest.raises(ValueError, match="shapes") as caught:
        nn.attention(x, x[..., :3], x)  # lengths differ
    assert_four_parts(
        caught.value, what="attention got q, k, v of shapes (2, 3, 4), (2, 3, 3), (2, 3, 4)", line="lengths differ",
        why="one length D", fix="np.swapaxes(x, -3, -2)",
    )  # fmt: skip
    with pytest.raises(ValueError, match="heads") as caught:
        nn.attention(np.zeros((4, 3, 4)), np.zeros((3, 3, 4)), np.zeros((3, 3, 4)))  # 4 and 3
    assert_four_parts(
        caught.value, what="4 heads of queries and 3 of keys", line="4 and 3", why="serves as many", fix="a multiple of"
    )
    with pytest.raises(TypeError, match="mask") as caught:
        nn.attention(x, x, x, mask=np.ones((3, 3), int))  # of integers
    assert_four_parts(caught.value, what="mask of dtype int64", line="of integers", why="bools", fix="mask.astype(bool)")
    with pytest.raises(ValueError, match="rotary") as caught:
        nn.rotary(np.zeros((3, 5)))  # odd
    assert_four_parts(caught.value, what="rotary got x of shape (3, 5)", line="odd", why="pairs", fix="even number")


# ---- layers ----------------------------------------------------------------------------------------------------------------


def test_dropout():
    x = rng.standard_normal((50, 40)).astype(np.float32)
    y = nn.dropout(KEY, x, 0.25)
    kept = y != 0
    assert 0.7 < kept.mean() < 0.8 and y.dtype == np.float32
    assert_same_bits(y, np.where(kept, x * np.float32(1 / 0.75), np.float32(0)))
    assert_same_bits(fx.jit(lambda k, x: nn.dropout(k, x, 0.25))(KEY, x), y)
    assert_same_bits(fx.grad(lambda x: fnp.sum(nn.dropout(KEY, x, 0.25)))(x), np.where(kept, np.float32(1 / 0.75), np.float32(0)))
    keys = fx.random.split(KEY, 3)
    batched = fx.vmap(lambda k: nn.dropout(k, x, 0.25))(keys)
    assert_same_bits(batched, np.stack([nn.dropout(k, x, 0.25) for k in keys]))
    assert (batched[0] != batched[1]).any()
    assert_same_bits(nn.dropout(None, x, 0.5, deterministic=True), x)
    assert_same_bits(nn.dropout(None, x, 0.0), x)
    assert not nn.dropout(KEY, x, 1).any()
    whole = nn.dropout(KEY, np.ones((8, 5, 16)), 0.5, broadcast_axes=(1,))
    assert (whole == whole[:, :1]).all() and 0.3 < (whole[:, 0] != 0).mean() < 0.7
    poisoned = np.where(kept, x, np.float32(np.nan))  # what is dropped matters in no way
    assert_same_bits(nn.dropout(KEY, poisoned, 0.25), y)


def test_embed_adds_in_order_and_checks_bounds():
    table = rng.standard_normal((5, 3)).astype(np.float32)
    ids = np.array([[4, 0], [4, 4]])
    assert_same_bits(nn.embed(ids, table), table[ids])
    g = fx.grad(lambda t: fnp.sum(nn.embed(ids, t) * np.arange(12, dtype=np.float32).reshape(2, 2, 3)))(table)
    assert_same_bits(g[4], np.array([0 + 6 + 9, 1 + 7 + 10, 2 + 8 + 11], np.float32))
    for f in (nn.embed, fx.jit(nn.embed)):
        with pytest.raises(IndexError, match="5 is out of bounds for axis 0 with size 5"):
            f(np.array([5]), table)
    with pytest.raises(TypeError, match="embed") as caught:
        nn.embed(table, ids)  # turned around
    assert_four_parts(
        caught.value, what="ids of dtype float32", line="turned around", why="number of a row", fix="the table second"
    )


@pytest.mark.parametrize("rate", [-0.1, 1.5, float("nan"), "a", None])
def test_dropout_rate_message(rate):
    with pytest.raises(ValueError, match="rate") as caught:
        nn.dropout(KEY, np.ones(3), rate)  # no rate
    assert_four_parts(caught.value, what=f"rate={rate!r}", line="no rate", why="probability", fix="from 0 to 1")


# ---- normalisation -----------------------------------------------------------------------------------------------------------


def test_batch_norm_statistics_come_out_and_others_stay():
    x = rng.standard_normal((6, 3, 4)).astype(np.float32)
    mean, var = np.zeros(4, np.float32), np.ones(4, np.float32)
    y, (new_mean, new_var) = nn.batch_norm(x, mean, var, training=True, momentum=0.25)
    np.testing.assert_allclose(new_mean, 0.25 * x.mean((0, 1)), rtol=1e-5)
    np.testing.assert_allclose(new_var, 0.75 + 0.25 * x.var((0, 1), ddof=1), rtol=1e-5)
    assert not mean.any() and (var == 1).all() and y.dtype == new_mean.dtype == np.float32
    same = nn.batch_norm(x, mean, var)[1]
    assert_same_bits(same, (mean, var))
    step = fx.jit(lambda x, m, v: nn.batch_norm(x, m, v, training=True, momentum=0.25))
    assert_same_bits(step(x, mean, var), (y, (new_mean, new_var)))
    assert nn.batch_norm(x.astype(np.float16), mean, var)[0].dtype == np.float16


def test_normalisation_messages():
    with pytest.raises(ValueError, match="batch_norm") as caught:
        nn.batch_norm(np.ones((1, 3)), np.zeros(3), np.ones(3), training=True)  # one
    assert_four_parts(caught.value, what="1 values a channel", line="one", why="standard deviation", fix="group_norm")
    with pytest.raises(ValueError, match="batch_norm") as caught:
        nn.batch_norm(np.ones(3), np.zeros(3), np.ones(3))  # vector
    assert_four_parts(caught.value, what="x of shape (3,)", line="vector", why="channels last", fix="x[None]")
    with pytest.raises(ValueError, match="group_norm") as caught:
        nn.group_norm(np.ones((2, 5, 6)), 4)  # of six
    assert_four_parts(caught.value, what="num_groups=4 for 6 channels", line="of six", why="divides C", fix="a divisor of 6")
    with pytest.raises(ValueError, match="instance_norm") as caught:
        nn.instance_norm(np.ones((2, 5)))  # no space
    assert_four_parts(caught.value, what="(2, 5)", line="no space", why="*spatial", fix="x[None]")


# ---- losses ------------------------------------------------------------------------------------------------------------------


def test_cross_entropy_at_infinities():
    logits = np.array([[0.0, -np.inf, 0.0], [1e4, -1e4, 0.0]])
    y, g = fx.value_and_grad(lambda z: fnp.sum(nn.softmax_cross_entropy_with_integer_labels(z, np.array([0, 1]))))(logits)
    np.testing.assert_allclose(y, np.log(2) + 2e4)
    assert_same_bits(g, np.array([[-0.5, 0.0, 0.5], [1.0, -1.0, 0.0]]))
    assert nn.softmax_cross_entropy_with_integer_labels(logits, np.array([1, 0]))[0] == np.inf
    spread = nn.softmax_cross_entropy(logits, np.array([[0.5, 0.0, 0.5], [1.0, 0.0, 0.0]]))
    np.testing.assert_allclose(spread, [np.log(2), 0.0])
    assert np.isfinite(fx.grad(lambda z: fnp.sum(nn.softmax_cross_entropy(z, np.eye(3)[[0, 1]])))(logits)).all()


def test_cross_entropy_is_one_kernel_of_rows():
    """Forward and backward in one pass over the logits: nothing of their size is stored but the gradient."""
    logits, labels = rng.standard_normal((512, 256)).astype(np.float32), rng.integers(0, 256, 512)
    step = fx.jit(fx.value_and_grad(lambda z, y: fnp.mean(nn.softmax_cross_entropy_with_integer_labels(z, y))))
    compiled = step.lower(logits, labels).compile()
    assert sum("exp" in s.title for s in compiled.steps) == 1 and not any("scatter" in s.title for s in compiled.steps)
    assert compiled.memory_analysis().temp_bytes < logits.nbytes // 4


@pytest.mark.parametrize("label", [-1, 3])
def test_labels_out_of_range(label):
    logits, labels = np.zeros((2, 3)), np.array([0, label])
    with pytest.raises(ValueError, match="label") as caught:
        nn.softmax_cross_entropy_with_integer_labels(logits, labels)  # wild
    assert_four_parts(
        caught.value, what=f"with_integer_labels: label {label} is not one of 3", line="wild", why="less than", fix="np.clip"
    )
    with pytest.raises(ValueError, match=f"label {label} is not one of 3"):
        fx.jit(nn.softmax_cross_entropy_with_integer_labels)(logits, labels)


def test_loss_messages():
    with pytest.raises(ValueError, match="mse") as caught:
        nn.mse(np.zeros((3, 1)), np.zeros(3))  # column
    assert_four_parts(
        caught.value, what="mse got operands of shapes (3, 1) and (3,)", line="column", why="hides", fix="y[:, None]"
    )
    with pytest.raises(ValueError, match="nll_loss") as caught:
        nn.nll_loss(np.zeros((3, 4)), np.zeros((3, 1), int))  # extra axis
    assert_four_parts(caught.value, what="labels of shape (3, 1)", line="extra axis", why="one label for each", fix="np.argmax")
    with pytest.raises(TypeError, match="nll_loss") as caught:
        nn.nll_loss(np.zeros((3, 4)), np.zeros(3))  # floats
    assert_four_parts(caught.value, what="labels of dtype float64", line="floats", why="number of a class", fix="softmax_cross")
    for f, name in ((nn.huber_loss, "delta"), (nn.smooth_l1_loss, "beta")):
        with pytest.raises(ValueError, match=name) as caught:
            f(np.zeros(3), np.zeros(3), 0.0)  # nothing
        assert_four_parts(caught.value, what=f"{name}=0.0", line="nothing", why="becomes a line", fix="absolute_error")


# ---- initializers --------------------------------------------------------------------------------------------------------------


def test_every_initializer_has_the_moments_it_says():
    shape = (3, 3, 40, 80)
    fan_in, fan_out = 9 * 40, 9 * 80
    variances = {
        "glorot": 2 / (fan_in + fan_out), "xavier": 2 / (fan_in + fan_out), "he": 2 / fan_in, "kaiming": 2 / fan_in,
        "lecun": 1 / fan_in,
    }  # fmt: skip
    for name, variance in variances.items():
        for kind in ("uniform", "normal"):
            x = getattr(init, f"{name}_{kind}")()(KEY, shape)
            assert x.shape == shape and x.dtype == np.float32
            assert abs(x.mean()) < 4 * np.sqrt(variance / x.size) and abs(x.var() / variance - 1) < 0.03
            limit = np.sqrt(3 * variance) if kind == "uniform" else 2 * np.sqrt(variance) / 0.8796
            assert 0.98 * limit < abs(x).max() < 1.001 * limit
    assert abs(init.normal(0.3)(KEY, shape, np.float64).std() - 0.3) < 0.01
    assert abs(init.uniform(2.0)(KEY, shape).mean() - 1) < 0.02
    assert abs(init.truncated_normal(0.5, -1.0, 2.0)(KEY, shape)).max() <= 1.0
    assert_same_bits(init.constant(np.arange(3.0))(None, (2, 3)), np.tile(np.arange(3, dtype=np.float32), (2, 1)))
    assert init.zeros(None, (2,), np.float64).dtype == np.float64 and init.ones(KEY, [2, 3]).all()


def test_fans_of_stacked_layers_and_other_axes():
    one = init.lecun_normal()(KEY, (64, 32))
    assert_same_bits(init.lecun_normal(batch_axis=0)(KEY, (1, 64, 32))[0], one)
    assert_same_bits(init.variance_scaling(1.0, "fan_in", "truncated_normal", (0, 1), 2)(KEY, (8, 8, 32)), one.reshape(8, 8, 32))
    torch_like = init.he_uniform(in_axis=1, out_axis=0)(KEY, (10, 600))
    assert abs(torch_like.var() * 600 / 2 - 1) < 0.1


@pytest.mark.parametrize("shape, axis", [((6, 4), -1), ((4, 6), -1), ((2, 3, 8), 0), ((5, 5), -1)])
def test_orthogonal(shape, axis):
    x = init.orthogonal(2.0, axis)(KEY, shape, np.float64)
    assert x.shape == shape
    m = np.moveaxis(x, axis, -1).reshape(-1, shape[axis])
    m = m if m.shape[0] >= m.shape[1] else m.T
    np.testing.assert_allclose(m.T @ m, 4 * np.eye(m.shape[1]), atol=1e-12)


def test_initializers_under_transforms():
    make = init.he_normal()
    assert_same_bits(fx.jit(lambda k: make(k, (6, 5)))(KEY), make(KEY, (6, 5)))
    keys = fx.random.split(KEY, 3)
    assert_same_bits(fx.vmap(lambda k: make(k, (6, 5)))(keys), np.stack([make(k, (6, 5)) for k in keys]))


def test_initializer_messages():
    with pytest.raises(ValueError, match="shape") as caught:
        init.he_normal()(KEY, (5,))  # vector
    assert_four_parts(caught.value, what="got shape (5,)", line="vector", why="inputs and outputs", fix="zeros")
    with pytest.raises(ValueError, match="mode") as caught:
        init.variance_scaling(1.0, "fan", "normal")  # no mode
    assert_four_parts(caught.value, what="mode='fan'", line="no mode", why="a name it knows", fix="fan_in, fan_out, fan_avg")
    with pytest.raises(ValueError, match="orthogonal") as caught:
        init.orthogonal()(KEY, (5,))  # a vector
    assert_four_parts(caught.value, what="orthogonal got shape (5,)", line="a vector", why="both", fix="zeros")
