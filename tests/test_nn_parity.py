"""Every layer, activation and loss of fx.nn beside PyTorch's, forward and gradient; and in every mode, to the bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

import fxgrad as fx
import fxgrad.numpy as fnp
from fxgrad import nn
from fxgrad.testing.bits import assert_same_bits

torch = pytest.importorskip("torch")
F = torch.nn.functional
torch.set_num_threads(1)

LIMITS = {"float32": 1e-5, "float64": 1e-11}


class Case(NamedTuple):
    """Ours and PyTorch's of the same arguments: shapes stand for normal numbers, which are differentiated; arrays are given."""

    ours: Callable[..., Any]
    theirs: Callable[..., Any]
    args: tuple[Any, ...]
    positive: bool = False


X = (3, 5, 8)
LABELS = np.random.default_rng(1).integers(0, 8, (3, 5))
ZERO_ONE = np.random.default_rng(2).integers(0, 2, X).astype(float)
SIGNS = 2 * ZERO_ONE - 1
SHARES = np.random.default_rng(3).dirichlet(np.ones(8), (3, 5))
ONE_HOT = np.eye(8)[LABELS]
ONE_HOT_ROWS = np.eye(8)[LABELS]
IDS = np.array([[0, 3, 3], [6, 0, 3]])
MASK = np.random.default_rng(4).random((2, 1, 4, 6)) < 0.6
MASK[0, 0, 1] = False  # a query that attends to nothing
BIAS = np.random.default_rng(5).standard_normal((4, 6))
QKV = ((2, 4, 4, 8), (2, 4, 6, 8), (2, 4, 6, 5))
GROUPED = ((2, 4, 4, 8), (2, 2, 6, 8), (2, 2, 6, 8))
IMAGE = (3, 4, 2, 6)
MEAN, VAR = np.linspace(-1, 1, 6), np.linspace(0.5, 2, 6)


def first(f: Callable[..., Any]) -> Callable[..., Any]:
    """x on its channels first, as PyTorch has them, and back."""
    return lambda x, *args: torch.movedim(f(torch.movedim(x, -1, 1), *args), 1, -1)


def torch_rotary(x: Any) -> Any:
    half = x.shape[-1] // 2
    angles = torch.arange(x.shape[-2])[:, None] * 10000.0 ** (-torch.arange(half, dtype=torch.float64) / half)
    cos, sin = torch.cos(angles).to(x.dtype), torch.sin(angles).to(x.dtype)
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


def torch_focal(logits: Any, labels: Any) -> Any:
    p = torch.sigmoid(logits)
    missed = p * (1 - labels) + (1 - p) * labels
    cross = F.binary_cross_entropy_with_logits(logits, labels, reduction="none")
    return (0.25 * labels + 0.75 * (1 - labels)) * missed**3 * cross


def torch_batch_statistics(x: Any, mean: Any, var: Any) -> Any:
    mean, var = mean.clone(), var.clone()
    F.batch_norm(torch.movedim(x, -1, 1).detach(), mean, var, training=True)
    return torch.cat([mean, var]) + 0 * x.sum()


def with_labels(f: Callable[..., Any], **kwargs: Any) -> Callable[..., Any]:
    return lambda x, y: f(x.reshape(15, 8), y.reshape(15), reduction="none", **kwargs).reshape(3, 5)


def unreduced(f: Callable[..., Any], **kwargs: Any) -> Callable[..., Any]:
    return lambda *args: f(*args, reduction="none", **kwargs)


sdpa = F.scaled_dot_product_attention
CASES = {
    # activations
    "celu": Case(lambda x: nn.celu(x, 2.0), lambda x: F.celu(x, 2.0), (X,)),  # PyTorch keeps 1/alpha in float32
    "elu": Case(lambda x: nn.elu(x, 0.7), lambda x: F.elu(x, 0.7), (X,)),
    "gelu": Case(nn.gelu, lambda x: F.gelu(x, approximate="tanh"), (X,)),
    "gelu exact": Case(lambda x: nn.gelu(x, approximate=False), F.gelu, (X,)),
    "glu": Case(nn.glu, F.glu, (X,)),
    "glu along 2nd": Case(lambda x: nn.glu(x, axis=0), lambda x: F.glu(x, 0), ((4, 3),)),
    "hard_sigmoid": Case(nn.hard_sigmoid, lambda x: F.relu6(x + 3) / 6, (X,)),  # F.hardsigmoid keeps 1/6 in float32
    "hard_silu": Case(nn.hard_silu, F.hardswish, (X,)),
    "hard_tanh": Case(nn.hard_tanh, F.hardtanh, (X,)),
    "identity": Case(nn.identity, lambda x: x, (X,)),
    "leaky_relu": Case(nn.leaky_relu, F.leaky_relu, (X,)),
    "leaky_relu learned": Case(nn.leaky_relu, lambda x, a: F.prelu(x.reshape(15, 8), a).reshape(X), (X, (8,))),
    "log1mexp": Case(nn.log1mexp, lambda x: torch.log(-torch.expm1(-x)), (X,), positive=True),
    "log_sigmoid": Case(nn.log_sigmoid, F.logsigmoid, (X,)),
    "log_softmax": Case(nn.log_softmax, lambda x: F.log_softmax(x, -1), (X,)),
    "log_softmax along 1": Case(lambda x: nn.log_softmax(x, 1), lambda x: F.log_softmax(x, 1), (X,)),
    "logmeanexp": Case(lambda x: nn.logmeanexp(x, (0, 2)), lambda x: torch.logsumexp(x, (0, 2)) - np.log(24), (X,)),
    "logsumexp": Case(lambda x: nn.logsumexp(x, -1), lambda x: torch.logsumexp(x, -1), (X,)),
    "mish": Case(nn.mish, F.mish, (X,)),
    "relu": Case(nn.relu, F.relu, (X,)),
    "relu6": Case(nn.relu6, F.relu6, (X,)),
    "selu": Case(nn.selu, F.selu, (X,)),
    "sigmoid": Case(nn.sigmoid, torch.sigmoid, (X,)),
    "silu": Case(nn.silu, F.silu, (X,)),
    "soft_sign": Case(nn.soft_sign, F.softsign, (X,)),
    "softmax": Case(nn.softmax, lambda x: F.softmax(x, -1), (X,)),
    "softmax along 1": Case(lambda x: nn.softmax(x, 1), lambda x: F.softmax(x, 1), (X,)),
    "softplus": Case(nn.softplus, F.softplus, (X,)),
    "sparse_plus": Case(
        nn.sparse_plus, lambda x: torch.where(x > 1, x, torch.where(x < -1, 0.0, (x.clip(-1, 1) + 1) ** 2 / 4)), (X,)
    ),
    "sparse_sigmoid": Case(nn.sparse_sigmoid, lambda x: torch.clip((x + 1) / 2, 0, 1), (X,)),
    "squareplus": Case(lambda x: nn.squareplus(x, 2.0), lambda x: (x + torch.sqrt(x * x + 2)) / 2, (X,)),
    "tanh": Case(nn.tanh, torch.tanh, (X,)),
    # normalisation
    "batch_norm": Case(
        lambda x, a, b: nn.batch_norm(x, MEAN, VAR, a, b, training=True)[0],
        first(lambda x, a, b: F.batch_norm(x, None, None, a, b, training=True)),
        (IMAGE, (6,), (6,)),
    ),
    "batch_norm statistics": Case(
        lambda x, m, v: fnp.concatenate(nn.batch_norm(fx.stop_gradient(x), m, v, training=True)[1]),
        torch_batch_statistics,
        (IMAGE, MEAN, VAR),
    ),
    "batch_norm running": Case(
        lambda x, m, v, a, b: nn.batch_norm(x, m, v, a, b)[0], first(F.batch_norm), (IMAGE, MEAN, VAR, (6,), (6,))
    ),
    "batch_norm channels first": Case(
        lambda x, a, b: nn.batch_norm(x, np.zeros(4), np.ones(4), a, b, training=True, axis=1)[0],
        lambda x, a, b: F.batch_norm(x, None, None, a, b, training=True),
        (IMAGE, (4,), (4,)),
    ),
    "group_norm": Case(
        lambda x, a, b: nn.group_norm(x, 3, a, b), first(lambda x, a, b: F.group_norm(x, 3, a, b)), (IMAGE, (6,), (6,))
    ),
    "instance_norm": Case(
        nn.instance_norm, first(lambda x, a, b: F.instance_norm(x, weight=a, bias=b)), (IMAGE, (6,), (6,))
    ),
    "layer_norm": Case(nn.layer_norm, lambda x, a, b: F.layer_norm(x, (8,), a, b), (X, (8,), (8,))),
    "layer_norm of matrices": Case(lambda x: nn.layer_norm(x, axis=(1, 2)), lambda x: F.layer_norm(x, (5, 8)), (X,)),
    "rms_norm": Case(nn.rms_norm, lambda x, a: F.rms_norm(x, (8,), a, 1e-6), (X, (8,))),
    "standardize": Case(nn.standardize, lambda x: F.layer_norm(x, (8,)), (X,)),
    # layers
    "dense": Case(nn.dense, lambda x, w, b: F.linear(x, w.T, b), (X, (8, 4), (4,))),
    "embed": Case(lambda table: nn.embed(IDS, table), lambda table: F.embedding(torch.from_numpy(IDS), table), ((7, 4),)),
    "attention": Case(nn.attention, sdpa, QKV),
    "attention one head": Case(nn.attention, sdpa, ((4, 8), (6, 8), (6, 8))),
    "attention causal": Case(
        lambda q, k, v: nn.attention(q, k, v, causal=True), lambda q, k, v: sdpa(q, k, v, is_causal=True), QKV
    ),
    "attention masked": Case(lambda q, k, v, m: nn.attention(q, k, v, mask=m), sdpa, (*QKV, MASK)),
    "attention biased": Case(
        lambda q, k, v, m: nn.attention(q, k, v, mask=m, scale=0.3), lambda *a: sdpa(*a, scale=0.3), (*QKV, (4, 6))
    ),
    "attention grouped": Case(
        lambda q, k, v, m: nn.attention(q, k, v, mask=m), lambda *a: sdpa(*a, enable_gqa=True), (*GROUPED, MASK)
    ),
    "rotary": Case(nn.rotary, torch_rotary, (X,)),
    # convolutions
    "conv": Case(
        nn.conv,
        first(lambda x, w, b: F.conv2d(x, w.permute(3, 2, 0, 1), b, padding="same")),
        (IMAGE, (3, 3, 6, 4), (4,)),
    ),
    "conv strided, dilated, in groups": Case(
        lambda x, w: nn.conv(x, w, stride=2, padding=2, dilation=(2, 1), groups=3),
        first(lambda x, w: F.conv2d(x, w.permute(3, 2, 0, 1), None, 2, 2, (2, 1), 3)),
        ((2, 7, 6, 6), (3, 2, 2, 9)),
    ),
    "conv of sequences": Case(
        lambda x, w: nn.conv(x, w, padding="VALID"), first(lambda x, w: F.conv1d(x, w.permute(2, 1, 0))), ((2, 9, 3), (4, 3, 5))
    ),
    "conv_transpose": Case(
        lambda x, w: nn.conv_transpose(x, w, stride=2, padding=((1, 1), (1, 1)), transpose_kernel=True),
        first(lambda x, w: F.conv_transpose2d(x, w.permute(3, 2, 0, 1), stride=2, padding=1)),
        (IMAGE, (3, 3, 5, 6)),
    ),
    "max_pool": Case(lambda x: nn.max_pool(x, (2, 2), (2, 2)), first(lambda x: F.max_pool2d(x, 2)), (IMAGE,)),
    "max_pool overlapping": Case(
        lambda x: nn.max_pool(x, (3, 3), (2, 1), ((1, 1), (1, 1))), first(lambda x: F.max_pool2d(x, 3, (2, 1), 1)), (IMAGE,)
    ),
    "min_pool": Case(lambda x: nn.min_pool(x, (2, 2), (2, 2)), first(lambda x: -F.max_pool2d(-x, 2)), (IMAGE,)),
    "avg_pool": Case(lambda x: nn.avg_pool(x, (2, 2), (1, 1)), first(lambda x: F.avg_pool2d(x, 2, 1)), (IMAGE,)),
    "avg_pool of what is there": Case(
        lambda x: nn.avg_pool(x, (3, 3), (1, 1), ((1, 1), (1, 1)), count_include_pad=False),
        first(lambda x: F.avg_pool2d(x, 3, 1, 1, count_include_pad=False)),
        (IMAGE,),
    ),
    # losses
    "absolute_error": Case(nn.absolute_error, unreduced(F.l1_loss), (X, X)),
    "cosine_distance": Case(nn.cosine_distance, lambda a, b: 1 - F.cosine_similarity(a, b, -1), (X, X)),
    "cosine_similarity": Case(nn.cosine_similarity, lambda a, b: F.cosine_similarity(a, b, -1), (X, X)),
    "hinge_loss": Case(nn.hinge_loss, lambda x, y: torch.relu(1 - x * y), (X, SIGNS)),
    "huber_loss": Case(lambda a, b: nn.huber_loss(a, b, 0.7), unreduced(F.huber_loss, delta=0.7), (X, X)),
    "kl_divergence": Case(
        lambda x, y: nn.kl_divergence(nn.log_softmax(x), y),
        lambda x, y: F.kl_div(F.log_softmax(x, -1), y, reduction="none").sum(-1),
        (X, SHARES),
    ),
    "kl_divergence one-hot": Case(nn.kl_divergence, lambda x, y: F.kl_div(x, y, reduction="none").sum(-1), (X, ONE_HOT)),
    "l2_loss": Case(nn.l2_loss, lambda a, b: F.mse_loss(a, b, reduction="none") / 2, (X, X)),
    "log_cosh": Case(nn.log_cosh, lambda a, b: torch.log(torch.cosh(a - b)), (X, X)),
    "mae": Case(nn.mae, F.l1_loss, (X, X)),
    "mse": Case(nn.mse, F.mse_loss, (X, X)),
    "nll_loss": Case(nn.nll_loss, with_labels(F.nll_loss), (X, LABELS)),
    "sigmoid_binary_cross_entropy": Case(
        nn.sigmoid_binary_cross_entropy, unreduced(F.binary_cross_entropy_with_logits), (X, ZERO_ONE)
    ),
    "sigmoid_focal_loss": Case(lambda x, y: nn.sigmoid_focal_loss(x, y, 0.25, 3.0), torch_focal, (X, ZERO_ONE)),
    "smooth_l1_loss": Case(lambda a, b: nn.smooth_l1_loss(a, b, 0.7), unreduced(F.smooth_l1_loss, beta=0.7), (X, X)),
    "smooth_labels": Case(lambda y: nn.smooth_labels(nn.softmax(y), 0.1), lambda y: 0.9 * F.softmax(y, -1) + 0.1 / 8, (X,)),
    "softmax_cross_entropy": Case(
        nn.softmax_cross_entropy, lambda x, y: F.cross_entropy(x.movedim(-1, 1), y.movedim(-1, 1), reduction="none"), (X, SHARES)
    ),
    "softmax_cross_entropy_with_integer_labels": Case(
        nn.softmax_cross_entropy_with_integer_labels, with_labels(F.cross_entropy), (X, LABELS)
    ),
    "softmax_cross_entropy_with_integer_labels along 1": Case(
        lambda x, y: nn.softmax_cross_entropy_with_integer_labels(x, y, axis=1), unreduced(F.cross_entropy), ((3, 8, 5), LABELS)
    ),
    "squared_error": Case(nn.squared_error, unreduced(F.mse_loss), (X, X)),
}  # fmt: skip

ELSEWHERE = {
    "dropout": "draws other numbers than PyTorch: test_nn.py",
    "one_hot": "has no gradient: test_one_hot below",
    "initializers": "draw other numbers than PyTorch: test_nn.py",
    "hard_swish": "is hard_silu",
    "swish": "is silu",
}


def arguments(case: Case, dtype: str) -> list[Any]:
    rng = np.random.default_rng(0)

    def drawn(shape: tuple[int, ...]) -> np.ndarray:
        x = 2 * rng.standard_normal(shape)
        return (np.abs(x) if case.positive else x).astype(dtype)

    fixed = [a.astype(dtype) if isinstance(a, np.ndarray) and a.dtype.kind == "f" else a for a in case.args]
    return [drawn(a) if isinstance(a, tuple) else a for a in fixed]


def moving(case: Case) -> tuple[int, ...]:
    """The arguments that are differentiated: those given by their shapes."""
    return tuple(i for i, a in enumerate(case.args) if isinstance(a, tuple))


def weighted(f: Callable[..., Any], where: Any) -> Callable[..., Any]:
    """A scalar of f whose cotangent is no constant, and f's result beside it."""

    def loss(*args: Any) -> Any:
        y = f(*args)
        return (y * where(y)).sum(), y

    return loss


def wave(y: Any) -> np.ndarray:
    return np.cos(np.arange(np.size(y))).reshape(np.shape(y)).astype(y.dtype)


def distance(mine: Any, other: np.ndarray) -> float:
    """The largest difference, relative to the largest element."""
    assert mine.shape == other.shape and mine.dtype == other.dtype
    return float(np.max(np.abs(mine - other), initial=0.0) / max(np.max(np.abs(other), initial=0.0), 1e-30))


@pytest.mark.parametrize("dtype", LIMITS)
@pytest.mark.parametrize("name", CASES)
def test_value_and_gradient_are_pytorchs(name: str, dtype: str) -> None:
    case = CASES[name]
    args, nums = arguments(case, dtype), moving(case)
    (_, y), gradients = fx.value_and_grad(weighted(case.ours, wave), nums, has_aux=True)(*args)
    tensors = [torch.from_numpy(a.copy()) for a in args]
    for i in nums:
        tensors[i].requires_grad_()
    loss, expected = weighted(case.theirs, lambda t: torch.from_numpy(np.asarray(wave(t.detach().numpy()))))(*tensors)
    loss.backward()
    assert distance(y, expected.detach().numpy()) < LIMITS[dtype]
    for i, g in zip(nums, gradients, strict=True):
        assert distance(g, tensors[i].grad.numpy()) < LIMITS[dtype], f"argument {i}"


@pytest.mark.parametrize("name", CASES)
def test_modes_have_the_same_bits(name: str) -> None:
    """Eager, compiled, checkpointed; vmap and the loop."""
    case = CASES[name]
    args, nums = arguments(case, "float32"), moving(case)
    step = fx.value_and_grad(weighted(case.ours, wave), nums, has_aux=True)
    want = step(*args)
    assert_same_bits(fx.jit(step)(*args), want)
    assert_same_bits(fx.value_and_grad(weighted(fx.checkpoint(case.ours), wave), nums, has_aux=True)(*args), want)
    several = [np.stack([a, a[..., ::-1], 2 * a]) if i in nums else a for i, a in enumerate(args)]
    axes = tuple(0 if i in nums else None for i in range(len(args)))
    batched = fx.vmap(step, in_axes=axes)(*several)
    for turn in range(3):
        one = step(*[a[turn] if i in nums else a for i, a in enumerate(several)])
        assert_same_bits(fx.tree.map(lambda v, turn=turn: v[turn], batched), one)


def test_every_public_name_is_compared() -> None:
    covered = {name.split()[0] for name in CASES} | set(ELSEWHERE)
    assert set(nn.__all__) <= covered, "add a case, or say in ELSEWHERE why there is none"
    assert all(getattr(nn, name) is not None for name in nn.__all__)


def test_a_planted_error_is_seen() -> None:
    case = CASES["gelu"]
    x = arguments(case, "float32")[0]
    wrong = nn.gelu(x, approximate=False)
    assert distance(wrong, F.gelu(torch.from_numpy(x), approximate="tanh").numpy()) > LIMITS["float32"]


def test_one_hot() -> None:
    assert_same_bits(nn.one_hot(LABELS, 8, dtype=np.int64), F.one_hot(torch.from_numpy(LABELS), 8).numpy())
    assert_same_bits(nn.one_hot(LABELS, 8, axis=0), np.moveaxis(np.eye(8)[LABELS], -1, 0))
