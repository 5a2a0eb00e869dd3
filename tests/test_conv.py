"""Convolutions: PyTorch's numbers, the fixed sum, one answer in every mode, memory, errors."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import fxgrad as fx
from fxgrad import lax, nn
from fxgrad.testing.bits import assert_same_bits
from tests.four_parts import assert_four_parts, raised
from tests.naive_windows import naive_conv
from tests.test_matmul import reference
from tests.works import check, work

F = torch.nn.functional
TORCH = {1: (F.conv1d, F.conv_transpose1d), 2: (F.conv2d, F.conv_transpose2d), 3: (F.conv3d, F.conv_transpose3d)}


def drawn(*shapes: tuple[int, ...], dtype: Any = np.float64, seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng([seed, len(shapes)])
    return [rng.standard_normal(s).astype(dtype) for s in shapes]


def first(x: np.ndarray) -> torch.Tensor:
    """Channels last to PyTorch's channels first."""
    return torch.tensor(np.moveaxis(x, -1, 1).copy(), requires_grad=True)


def kernel_first(w: np.ndarray) -> torch.Tensor:
    """(*window, in, out) to (out, in, *window)."""
    return torch.tensor(np.moveaxis(w, (-1, -2), (0, 1)).copy(), requires_grad=True)


def near(actual: np.ndarray, expected: torch.Tensor, back: Callable[[np.ndarray], np.ndarray]) -> None:
    """Within 1e-5 of the largest in float32, 1e-12 in float64."""
    wanted = back(expected.detach().numpy())
    assert actual.shape == wanted.shape and actual.dtype == wanted.dtype
    scale = np.abs(wanted).max(initial=1.0)
    assert np.abs(actual - wanted).max(initial=0.0) <= (1e-5 if actual.dtype == np.float32 else 1e-12) * scale


def last(y: np.ndarray) -> np.ndarray:
    return np.moveaxis(y, 1, -1)


def kernel_last(w: np.ndarray) -> np.ndarray:
    return np.moveaxis(w, (0, 1), (-1, -2))


# ---- PyTorch's numbers -----------------------------------------------------------------------------------------------------


SIZES = {1: (11,), 2: (9, 7), 3: (5, 4, 6)}
WINDOWS = {1: (4,), 2: (3, 2), 3: (2, 3, 2)}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_conv_is_torchs(count: int, dtype: Any) -> None:
    double = dtype == np.float64
    for stride, padding, (dilation, groups) in itertools.product(
        (1, 2, 3) if double else (2,), (0, 2) if double else (1,), ((1, 1), (2, 1), (1, 2))
    ):  # fmt: skip
        x, w, b = drawn((2, *SIZES[count], 4), (*WINDOWS[count], 4 // groups, 6), (6,), dtype=dtype)
        if any(n + 2 * padding < (k - 1) * dilation + 1 for n, k in zip(SIZES[count], WINDOWS[count], strict=True)):
            continue

        def f(x: Any, w: Any, b: Any, s: Any = stride, p: Any = padding, d: Any = dilation, g: Any = groups) -> Any:
            return nn.conv(x, w, b, s, p, d, g)

        xt, wt, bt = first(x), kernel_first(w), torch.tensor(b, requires_grad=True)
        yt = TORCH[count][0](xt, wt, bt, stride, padding, dilation, groups)
        y, pullback = fx.vjp(f, x, w, b)
        near(y, yt, last)
        (g,) = drawn(y.shape, dtype=dtype, seed=1)
        yt.backward(torch.tensor(np.moveaxis(g, -1, 1).copy()))
        gx, gw, gb = pullback(g)
        for actual, expected, back in ((gx, xt, last), (gw, wt, kernel_last), (gb, bt, np.asarray)):
            assert expected.grad is not None
            near(actual, expected.grad, back)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("count", [1, 2])
def test_conv_transpose_is_torchs(count: int, dtype: Any) -> None:
    for stride, padding in itertools.product((1, 2, 3), (0, 1)):
        x, w = drawn((2, *SIZES[count], 3), (*WINDOWS[count], 5, 3), dtype=dtype)
        pairs = [(k - 1 - padding, k - 1 - padding) for k in WINDOWS[count]]

        def f(x: Any, w: Any, s: Any = stride, p: Any = pairs) -> Any:
            return nn.conv_transpose(x, w, None, s, p, transpose_kernel=True)

        xt, wt = first(x), torch.tensor(np.moveaxis(w, (-1, -2), (0, 1)).copy(), requires_grad=True)
        yt = TORCH[count][1](xt, wt, None, stride, padding)
        y, pullback = fx.vjp(f, x, w)
        near(y, yt, last)
        (g,) = drawn(y.shape, dtype=dtype, seed=1)
        yt.backward(torch.tensor(np.moveaxis(g, -1, 1).copy()))
        for actual, expected, back in zip(pullback(g), (xt, wt), (last, kernel_last), strict=True):
            assert expected.grad is not None
            near(actual, expected.grad, back)


def test_same_padding_of_transposed_convolutions_multiplies_the_size() -> None:
    for k, s in itertools.product((1, 2, 3, 4), (1, 2, 3)):
        x, w = drawn((1, 5, 2), (k, 2, 3))
        assert nn.conv_transpose(x, w, stride=s).shape == (1, 5 * s, 3)
        assert nn.conv_transpose(x, w, stride=s, padding="VALID").shape == (1, 5 * s + max(k - s, 0), 3)


def test_second_derivatives_are_torchs() -> None:
    x, w = drawn((2, 6, 5, 2), (3, 2, 2, 3))

    def f(x: Any, w: Any) -> Any:
        return (nn.conv(x, w, stride=2, padding=1) ** 3).sum()

    def of_gradients(x: Any, w: Any) -> Any:
        gx, gw = fx.grad(f, (0, 1))(x, w)
        return (gx**2).sum() + (gw**2).sum()

    hx, hw = fx.grad(of_gradients, (0, 1))(x, w)
    xt, wt = first(x), kernel_first(w)
    gx, gw = torch.autograd.grad((F.conv2d(xt, wt, None, 2, 1) ** 3).sum(), (xt, wt), create_graph=True)
    ex, ew = torch.autograd.grad((gx**2).sum() + (gw**2).sum(), (xt, wt))
    near(hx, ex, last)
    near(hw, ew, kernel_last)


# ---- the fixed sum ---------------------------------------------------------------------------------------------------------


def patches(x: np.ndarray, window: tuple[int, int], pads: Any, stride: int) -> np.ndarray:
    """The matrix the kernels do not make: [batch and places, positions and channels]."""
    wide = np.pad(x, [(0, 0), *pads, (0, 0)])
    out = [(n - k) // stride + 1 for n, k in zip(wide.shape[1:3], window, strict=True)]
    rows = [wide[:, i * stride :, j * stride :][:, : window[0], : window[1]] for i in range(out[0]) for j in range(out[1])]
    return np.stack(rows, 1).reshape(x.shape[0] * out[0] * out[1], -1)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("channels, features", [(1, 3), (5, 16), (40, 17), (33, 70), (8, 160)])
def test_every_element_is_the_fixed_sum(dtype: Any, channels: int, features: int) -> None:
    x, w = drawn((2, 7, 6, channels), (3, 3, channels, features), dtype=dtype)
    for stride in (1, 2):
        pads = [(1, 1), (0, 2)]
        a, b = patches(x, (3, 3), pads, stride), w.reshape(-1, features)
        y, pullback = fx.vjp(lambda x, w, s=stride, p=pads: nn.conv(x, w, None, s, p), x, w)
        assert_same_bits(y.reshape(1, -1, features), reference(a[None], b[None]))
        (g,) = drawn(y.shape, dtype=dtype, seed=1)
        gw = pullback(g)[1]
        assert_same_bits(gw.reshape(1, -1, features), reference(a.T[None], g.reshape(-1, features)[None]))


def test_a_long_sum_has_several_blocks() -> None:
    x, w = drawn((3, 9, 90), (5, 90, 4), dtype=np.float32)
    rows = np.stack([np.pad(x, [(0, 0), (2, 2), (0, 0)])[:, i : i + 5] for i in range(9)], 1)
    assert_same_bits(nn.conv(x, w).reshape(1, -1, 4), reference(rows.reshape(1, 27, -1), w.reshape(1, -1, 4)))


def test_the_derivative_of_a_strided_convolution_leaves_holes_out() -> None:
    """Each class of places is a product with the positions of the kernel that it meets."""
    g, w = drawn((2, 4, 3), (3, 5, 3), dtype=np.float32)
    (gx,) = fx.vjp(lambda x: nn.conv(x, w, stride=2, padding=1), np.zeros((2, 8, 5), np.float32))[1](g)
    turned = w.transpose(0, 2, 1)  # place 2i meets position 1 of window i; 2i + 1 position 2 of window i, 0 of window i + 1
    assert_same_bits(gx[:, ::2].reshape(1, -1, 5), reference(g.reshape(1, -1, 3), turned[1][None]))
    following = np.concatenate([g[:, 1:], np.zeros_like(g[:, :1])], 1)
    pairs = np.concatenate([g, following], -1)
    assert_same_bits(
        gx[:, 1::2].reshape(1, -1, 5), reference(pairs.reshape(1, -1, 6), np.concatenate([turned[2], turned[0]])[None])
    )


def test_a_kernel_of_one_position_is_a_product() -> None:
    x, w = drawn((2, 5, 4, 100), (1, 1, 100, 7), dtype=np.float32)
    assert "dot" in str(fx.make_ir(nn.conv)(x, w)) and "conv" not in [e.prim.name for e in fx.make_ir(nn.conv)(x, w).eqns]
    assert_same_bits(nn.conv(x, w), fx.numpy.matmul(x, w[0, 0]))
    with_two = np.concatenate([np.zeros_like(w), w], 1)
    assert_same_bits(nn.conv(x, with_two, padding=[(0, 0), (1, 0)]), fx.numpy.matmul(x, w[0, 0]))


# ---- one answer ------------------------------------------------------------------------------------------------------------


def net(x: Any, v: Any, w: Any) -> Any:
    """Convolutions of every kind, pooling, and what runs with them."""
    y = nn.relu(nn.conv(x, v, np.linspace(-1, 1, 8).astype(x.dtype)))
    y = nn.max_pool(y, (2, 2), (2, 2))
    y = nn.silu(nn.conv(y, w, stride=2, dilation=2, padding=2, groups=2))
    return nn.avg_pool(y, (2, 2), 1, "SAME")


@pytest.mark.usefixtures("cut_finely")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_threads_fusion_and_eager_agree(dtype: Any, use_threads: Callable[[int], None]) -> None:
    x, v, w = drawn((3, 9, 8, 2), (3, 3, 2, 8), (3, 2, 4, 6), dtype=dtype)

    def loss(x: Any, v: Any, w: Any) -> Any:
        return (net(x, v, w) ** 2).sum()

    works = [work("net", net, x, v, w), work("gradients", fx.grad(loss, (0, 1, 2)), x, v, w)]
    wide = drawn((2, 20, 3), (300, 3, 3), dtype=dtype)
    works.append(work("long kernel", lambda x, w: nn.conv(x, w, padding=[(150, 150)]), *wide))
    works.append(work("many features", lambda x, w: nn.conv(x, w), *drawn((1, 9, 40), (3, 40, 300), dtype=dtype)))
    assert check(works, use_threads) >= 4
    assert_same_bits(fx.grad(loss, (0, 1, 2))(x, v, w), fx.jit(fx.grad(loss, (0, 1, 2)))(x, v, w))
    assert_same_bits(fx.grad(fx.checkpoint(loss), (0, 1, 2))(x, v, w), fx.grad(loss, (0, 1, 2))(x, v, w))


def test_images_do_not_depend_on_their_company() -> None:
    x, v, w = drawn((5, 9, 8, 2), (3, 3, 2, 8), (3, 2, 4, 6), dtype=np.float32)
    whole = fx.jit(net)(x, v, w)
    for lo, hi in ((0, 1), (1, 3), (2, 5)):
        assert_same_bits(fx.jit(net)(x[lo:hi], v, w), whole[lo:hi])
    lone = fx.vmap(lambda image: net(image[None], v, w)[0])(x)
    assert_same_bits(lone, whole)
    assert_same_bits(fx.jit(fx.vmap(lambda image: net(image[None], v, w)[0]))(x), whole)


def test_vmap_over_either_operand() -> None:
    x, w, xs, ws = drawn((2, 6, 5, 4), (3, 2, 2, 6), (3, 2, 6, 5, 4), (3, 3, 2, 2, 6), dtype=np.float32)

    def f(x: Any, w: Any) -> Any:
        return nn.conv(x, w, stride=2, groups=2)

    def g(x: Any, w: Any) -> Any:
        return fx.grad(lambda x, w: (f(x, w) ** 2).sum(), (0, 1))(x, w)

    for h in (f, g):
        for axes, arguments in (((0, None), (xs, w)), ((None, 0), (x, ws)), ((0, 0), (xs, ws))):
            pairs = [[a[i] if ax == 0 else a for a, ax in zip(arguments, axes, strict=True)] for i in range(3)]
            each = [h(*pair) for pair in pairs]
            looped = fx.tree.map(lambda *v: np.stack(v), *each)
            assert_same_bits(fx.vmap(h, axes)(*arguments), looped)
            assert_same_bits(fx.jit(fx.vmap(h, axes))(*arguments), looped)


def test_layouts_change_no_bit() -> None:
    x, w = drawn((2, 6, 5, 3), (3, 2, 3, 4), dtype=np.float32)
    usual = nn.conv(x, w, stride=2, padding="VALID")
    swap = lambda a, name, to: np.ascontiguousarray(a.transpose([name.index(c) for c in to]))  # noqa: E731
    for lhs, rhs, out in (("NCHW", "OIHW", "NCHW"), ("CWHN", "HOWI", "HNWC"), ("NHWC", "OHWI", "NCHW"), ("HWNC", "IHWO", "CHWN")):
        y = lax.conv_general_dilated(
            swap(x, "NHWC", lhs), swap(w, "HWIO", rhs), (2, 2), "VALID", dimension_numbers=(lhs, rhs, out)
        )  # fmt: skip
        assert_same_bits(swap(y, out, "NHWC"), usual)
        f = fx.jit(lambda a, b, n=(lhs, rhs, out): lax.conv_general_dilated(a, b, (2, 2), "VALID", dimension_numbers=n))
        assert_same_bits(f(swap(x, "NHWC", lhs), swap(w, "HWIO", rhs)), y)
    strided = np.zeros((2, 12, 5, 6), np.float32)[:, ::2, ::-1, 1::2]
    strided[...] = x
    for f in (nn.conv, fx.jit(nn.conv)):
        assert_same_bits(f(strided, w), nn.conv(x, w))
    sliced = fx.jit(lambda x, w: nn.conv(x[:, 1:5, :, :], w[:, :, ::-1]))
    assert_same_bits(sliced(x, w), nn.conv(x[:, 1:5], w[:, :, ::-1]))


def test_zeros_annihilate_in_derivatives() -> None:
    """A cotangent of 0 meets inf and NaN in the kernel and in the input: nothing comes of it. Padding is no such zero."""
    x, w = drawn((1, 6, 2), (3, 2, 20))
    x[0, 2, 0], w[0, 0, 3] = np.nan, np.inf
    g = np.zeros((1, 6, 20))
    g[0, 5, 4] = 1.0
    gx, gw = fx.vjp(lambda x, w: nn.conv(x, w), x, w)[1](g)
    assert np.isfinite(gx).all() and np.isfinite(gw).all()
    assert_same_bits(gx[0, 4:], np.stack([w[0, :, 4], w[1, :, 4]]))
    assert_same_bits(gw[..., 4], np.concatenate([x[0, 4:], np.zeros((1, 2))]))
    assert np.count_nonzero(gw[..., :4]) == np.count_nonzero(gx[0, :4]) == 0
    assert np.isnan(nn.conv(x, w)[0, 1:4]).all() and np.isnan(nn.conv(x, w)[0, 0, 3])
    tangent = fx.jvp(lambda x: nn.conv(x, w), (x,), (np.zeros_like(x),))[1]
    assert_same_bits(tangent, np.zeros_like(tangent))
    jitted = fx.jit(lambda x, w, g: fx.vjp(nn.conv, x, w)[1](g))(x, w, g)
    assert_same_bits(jitted, (gx, gw))


def test_dtypes() -> None:
    x, w = drawn((1, 6, 2), (3, 2, 3))
    half = nn.conv(x.astype(np.float16), w.astype(np.float16))
    wide = nn.conv(x.astype(np.float16).astype(np.float32), w.astype(np.float16).astype(np.float32))
    assert_same_bits(half, wide.astype(np.float16))
    assert_same_bits(fx.jit(nn.conv)(x.astype(np.float16), w.astype(np.float16)), half)
    for dtype in (np.int8, np.int32, np.int64, np.uint16):
        a, b = (100 * x).astype(dtype), (100 * w).astype(dtype)
        with np.errstate(over="ignore"):
            assert_same_bits(nn.conv(a, b), naive_conv(a, b, (1,), [(1, 1)]))
        assert_same_bits(fx.jit(nn.conv)(a, b), nn.conv(a, b))
    z, v = x + 1j * x[:, ::-1], w - 2j * w[::-1]
    np.testing.assert_allclose(nn.conv(z, v), naive_conv(z, v, (1,), [(1, 1)]), 1e-13)
    assert_same_bits(fx.jit(nn.conv)(z, v), nn.conv(z, v))
    assert nn.conv(x.astype(np.float32), w).dtype == np.float64


def test_sizes_of_nothing() -> None:
    for shape, kernel in (((0, 5, 2), (3, 2, 4)), ((2, 5, 0), (3, 0, 4)), ((2, 5, 2), (3, 2, 0)), ((2, 1, 2), (3, 2, 4))):
        x, w = np.ones(shape), np.ones(kernel)
        for f in (nn.conv, fx.jit(nn.conv)):
            y = f(x, w)
            assert y.shape == (*shape[:2], kernel[-1])
            if shape[2] == 0:
                assert_same_bits(y, np.zeros_like(y))
    assert nn.conv(np.ones((1, 2, 2)), np.ones((3, 2, 4)), padding="VALID").shape == (1, 0, 4)
    gx, gw = fx.grad(lambda x, w: nn.conv(x, w, padding="VALID").sum(), (0, 1))(np.ones((1, 2, 2)), np.ones((3, 2, 4)))
    assert_same_bits((gx, gw), (np.zeros((1, 2, 2)), np.zeros((3, 2, 4))))


# ---- jax.lax's arguments -----------------------------------------------------------------------------------------------------


def test_groups_of_the_batch() -> None:
    x, w = drawn((4, 6, 3), (3, 3, 4))
    numbers = ("NWC", "WIO", "NWC")
    y = lax.conv_general_dilated(x, w, (1,), "SAME", dimension_numbers=numbers, batch_group_count=2)
    assert_same_bits(y, np.concatenate([nn.conv(x[:2], w[..., :2]), nn.conv(x[2:], w[..., 2:])], -1))


def test_lax_names() -> None:
    x, w = drawn((2, 3, 8, 7), (4, 3, 3, 2))
    y = lax.conv_general_dilated(x, w, (1, 2), [(1, 1), (0, 1)])
    assert_same_bits(lax.conv(x, w, (1, 2), "SAME"), lax.conv_general_dilated(x, w, (1, 2), "SAME"))
    assert_same_bits(lax.conv_with_general_padding(x, w, (1, 2), [(1, 1), (0, 1)], None, None), y)
    numbers = lax.conv_dimension_numbers(x.shape, w.shape, None)
    assert numbers == ((0, 1, 2, 3),) * 3
    assert_same_bits(lax.conv_general_dilated(x, w, (1, 2), [(1, 1), (0, 1)], dimension_numbers=numbers), y)
    low = lax.conv_general_dilated(x, w, (1, 2), "SAME_LOWER")
    assert_same_bits(low, lax.conv_general_dilated(x, w, (1, 2), [(1, 1), (1, 0)]))
    single = lax.conv_general_dilated(x, w, (1, 2), "VALID", preferred_element_type=np.float32)
    assert single.dtype == np.float32


def test_leading_axes_are_batches() -> None:
    x, w = drawn((2, 3, 6, 2), (3, 2, 4))
    assert_same_bits(nn.conv(x, w), np.stack([nn.conv(a, w) for a in x]))
    assert_same_bits(nn.conv(x[0, 0], w), nn.conv(x, w)[0, 0])


# ---- memory and what is compiled -----------------------------------------------------------------------------------------------


def test_no_matrix_of_patches_is_made() -> None:
    x, w = drawn((4, 32, 32, 16), (5, 5, 16, 32), dtype=np.float32)
    step = fx.jit(fx.value_and_grad(lambda w, x: (nn.conv(x, w) ** 2).sum()))
    compiled = step.lower(w, x).compile()
    y = 4 * 32 * 32 * 32 * 4
    assert compiled.memory_analysis().temp_bytes < 3 * y < 25 * x.nbytes / 4
    flops = 2 * 2 * (y // 4) * w[..., 0].size
    assert flops <= compiled.cost_analysis()["flops"] < 1.1 * flops


def test_usual_layouts_are_read_where_they_lie() -> None:
    x, w = drawn((2, 8, 8, 4), (3, 3, 4, 8), dtype=np.float32)
    for groups in (1, 2):
        text = fx.jit(nn.conv, static_argnames="groups").lower(x, w[:, :, : 4 // groups], groups=groups).compile().as_text()
        assert text.count("kernel windows") == 1 and "kernel map" not in text


def test_a_new_size_compiles_nothing() -> None:
    f = fx.jit(lambda x, w: nn.conv(x, w, stride=1, padding=1))
    f(*drawn((1, 6, 5, 2), (3, 3, 2, 4), dtype=np.float32))
    texts = {
        f.lower(*drawn((n, 7, n, 3), (3, 5, 3, 6 * n), dtype=np.float32)).compile().as_text().split("\n\n")[0] for n in (4, 6)
    }
    assert len(texts) == 1


# ---- errors ----------------------------------------------------------------------------------------------------------------


def test_errors() -> None:
    x, w = np.ones((2, 8, 8, 4)), np.ones((3, 3, 4, 6))
    e = raised(lambda: nn.conv(x, np.ones((3, 3, 3, 6))), ValueError)  # channels
    assert_four_parts(
        e, what="4 input features in 1 groups, and a kernel for 3", line="# channels", why="of one group", fix="(3, 3, 4, 6)"
    )
    e = raised(lambda: nn.conv(x, w, groups=3), ValueError)  # groups
    assert_four_parts(e, what=["feature_group_count=3", "input features is 4"], line="# groups", why="its own", fix="=1")
    e = raised(lambda: nn.conv(x, w, stride=(1, 2, 3)), ValueError)  # stride
    assert_four_parts(e, what="stride=(1, 2, 3) does not fit 2", line="# stride", why=">= 1", fix="stride=(1, 1)")
    e = raised(lambda: nn.conv(x, w, dilation=0), ValueError)  # dilation
    assert_four_parts(e, what="dilation=0", line="# dilation", why=">= 1", fix="dilation=(1, 1)")
    e = raised(lambda: nn.conv(x, w, padding="FULL"), ValueError)  # name
    assert_four_parts(e, what="padding='FULL'", line="# name", why="'VALID'", fix="padding=[(0, 0), (0, 0)]")
    e = raised(lambda: nn.conv(x, w, padding=[(1, 1)]), ValueError)  # pairs
    assert_four_parts(e, what="padding=[(1, 1)]", line="# pairs", why="a pair (low, high)", fix="padding=[(0, 0), (0, 0)]")
    e = raised(lambda: nn.conv(x, np.ones((4, 6))), ValueError)  # rank
    assert_four_parts(e, what="w of shape (4, 6)", line="# rank", why="(*window, channels in", fix="lax.conv_general_dilated")
    general = lax.conv_general_dilated
    names = {"dimension_numbers": ("NHWC", "HWIO", "NHXC")}
    e = raised(lambda: general(x, w, (1, 1), "SAME", **names), ValueError)  # dn
    assert_four_parts(e, what="dimension_numbers=", line="# dn", why="a letter for each axis", fix='("NHWC", "HWIO", "NHWC")')
    names = {"dimension_numbers": ("NHWC", "HXIO", "NHWC")}
    e = raised(lambda: general(x, w, (1, 1), "SAME", **names), ValueError)  # spatial
    assert_four_parts(e, what="other spatial dimensions", line="# spatial", why="same letter", fix='("NHWC", "HWIO", "NHWC")')
    e = raised(lambda: general(x, w[0], (1, 1), "SAME"), ValueError)  # ranks
    assert_four_parts(e, what="a kernel of shape (3, 4, 6)", line="# ranks", why="two more", fix="np.expand_dims")
    e = raised(lambda: general(x, w, (1, 1), "SAME", (2, 2)), ValueError)  # dilated
    assert_four_parts(e, what="lhs_dilation=(2, 2)", line="# dilated", why="not clear", fix="lax.conv_transpose")
    e = raised(lambda: lax.conv(x, w.astype(np.float32), (1, 1), "SAME"), TypeError)  # dtypes
    assert_four_parts(e, what="float64 and float32", line="# dtypes", why="does not promote", fix="fx.nn.conv")
    many = np.ones((1, 2, 2, 2, 2, 1)), np.ones((1, 1, 1, 2, 1, 1))
    e = raised(lambda: nn.conv(*many), TypeError)  # dimensions
    assert_four_parts(e, what="over 4 spatial dimensions", line="# dimensions", why="at most 3", fix="as a sum")
    both = {"feature_group_count": 2, "batch_group_count": 2}
    e = raised(lambda: general(np.ones((2, 4, 8)), np.ones((2, 2, 3)), (1,), "SAME", **both), ValueError)  # both
    assert_four_parts(e, what="batch_group_count=2", line="# both", why="as in JAX", fix="at 1")


# ---- channel by channel ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("channels", [3, 16, 70])
def test_depthwise_convolutions_are_those_of_each_channel(dtype: Any, channels: int) -> None:
    """Their kernel has groups for lanes: the sums are those of one group after the other."""
    x, w = drawn((2, 19, 17, channels), (3, 2, 1, channels), dtype=dtype)

    def f(x: Any, w: Any) -> Any:
        return nn.conv(x, w, stride=2, dilation=2, padding=2, groups=w.shape[-1])

    y, pullback = fx.vjp(f, x, w)
    (g,) = drawn(y.shape, dtype=dtype, seed=1)
    gx, gw = pullback(g)
    each = [fx.vjp(f, x[..., i : i + 1], w[..., i : i + 1]) for i in range(channels)]
    assert_same_bits(y, np.concatenate([e[0] for e in each], -1))
    grads = [e[1](g[..., i : i + 1]) for i, e in enumerate(each)]
    assert_same_bits((gx, gw), tuple(np.concatenate(part, -1) for part in zip(*grads, strict=True)))
    jitted = fx.jit(lambda x, w, g: fx.vjp(f, x, w)[1](g))
    assert_same_bits(jitted(x, w, g), (gx, gw))
    assert "windows of channels" in jitted.lower(x, w, g).compile().as_text()


@pytest.mark.usefixtures("cut_finely")
def test_depthwise_modes(use_threads: Callable[[int], None]) -> None:
    x, w, long = drawn((2, 30, 40), (5, 1, 40), (300, 1, 40), dtype=np.float32)

    def f(x: Any, w: Any) -> Any:
        return nn.conv(x, w, padding=(w.shape[0] // 2,), groups=40)

    def g(x: Any, w: Any) -> Any:
        return fx.grad(lambda x, w: (f(x, w) ** 2).sum(), (0, 1))(x, w)

    works = [work("depthwise", f, x, w), work("gradients", g, x, w), work("two blocks of k", g, x, long)]
    assert check(works, use_threads) >= 4
    assert_same_bits(f(x, long)[0, :, 7], nn.conv(x[..., 7:8], long[..., 7:8], padding=150)[0, :, 0])
    integers = (10 * x).astype(np.int32), (10 * w).astype(np.int32)
    assert_same_bits(f(*integers), naive_conv(*integers, (1,), [(2, 2)], groups=40))


def test_zeros_annihilate_channel_by_channel() -> None:
    x, w = drawn((1, 6, 3), (3, 1, 3))
    x[0, 2, 0], w[0, 0, 1] = np.nan, np.inf
    g = np.zeros((1, 6, 3))
    g[0, 5, 2] = 1.0
    for run in (lambda f: f, fx.jit):
        gx, gw = run(lambda x, w, g: fx.vjp(lambda x, w: nn.conv(x, w, groups=3), x, w)[1](g))(x, w, g)
        assert np.isfinite(gx).all() and np.isfinite(gw).all() and np.count_nonzero(gx) == np.count_nonzero(gw) == 2
    y = nn.conv(x, w, groups=3)
    assert np.isnan(y[0, 1:4, 0]).all() and np.isnan(y[0, 0, 1]) and np.isfinite(y[0, :, 2]).all()
