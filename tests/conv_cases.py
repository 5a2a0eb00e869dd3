"""Cases of convolutions and of reductions over windows, for the shared table."""

from __future__ import annotations

from typing import Any

import numpy as np

from fxgrad import lax, nn
from fxgrad.primitives import windows
from tests.cases import Case
from tests.naive_windows import naive_conv, naive_pool

LAST = ("NHWC", "HWIO", "NHWC")


def _conv(
    name: str, shapes: Any, stride: Any, pads: Any, x_dilation: Any = None, dilation: Any = None, groups: int = 1
) -> Case:  # fmt: skip
    middle = "HW" if len(stride) == 2 else "DHW"[-len(stride) :] if len(stride) == 3 else "W"
    numbers = (f"N{middle}C", f"{middle}IO", f"N{middle}C")

    def f(x: Any, w: Any) -> Any:
        return lax.conv_general_dilated(x, w, stride, pads, x_dilation, dilation, numbers, groups)

    def oracle(x: np.ndarray, w: np.ndarray) -> np.ndarray:
        return naive_conv(x, w, stride, pads, x_dilation, dilation, groups)

    x, w = shapes
    larger = [((5, *(3 * n for n in x[1:-1]), x[-1]), w)]
    return Case(name, f, oracle, [shapes], [(-1, 1), (-1, 1)], rtol=64, extra={"larger": larger})


def _pool(name: str, f: Any, oracle: Any, shape: Any, larger: Any = None, **more: Any) -> Case:
    """`larger`: a shape with work for several threads, if there is one."""
    return Case(name, f, oracle, [(shape,)], [(-2, 2)], rtol=16, extra={"larger": [(larger or shape,)]}, **more)


NONE, WINDOW = {"low": (0, 0), "high": (0, 0)}, {"window": (2, 2), "stride": (2, 1), "dilation": (1, 2)}
PLACES = np.array([[1, 0], [3, 2]], np.uint8)


def _put_oracle(g: np.ndarray) -> np.ndarray:
    x = np.zeros((4, 4), g.dtype)
    for i, j in np.ndindex(2, 2):
        t, u = divmod(int(PLACES[i, j]), 2)
        x[2 * i + t, j + 2 * u] += g[i, j]
    return x


def _take_oracle(x: np.ndarray) -> np.ndarray:
    return np.array([[x[2 * i + PLACES[i, j] // 2, j + 2 * (PLACES[i, j] % 2)] for j in range(2)] for i in range(2)], x.dtype)


CONV = [
    _conv("conv", ((2, 5, 4, 3), (3, 2, 3, 2)), (1, 1), [(1, 1), (0, 1)]),
    _conv("conv_strided", ((1, 7, 6, 2), (3, 3, 2, 3)), (2, 3), [(1, 0), (2, 2)], None, (1, 2)),
    _conv("conv_grouped", ((2, 4, 4), (2, 2, 6)), (1,), [(1, 0)], groups=2),
    _conv("conv_depthwise", ((2, 5, 3), (2, 1, 3)), (1,), [(1, 0)], groups=3),
    _conv("conv_of_dilated", ((2, 4, 3, 2), (3, 2, 2, 2)), (1, 2), [(2, 1), (1, 1)], (2, 3), (1, 2)),
    _conv("conv_cropped", ((1, 6, 2), (2, 2, 2)), (1,), [(-1, -2)]),
    _conv("conv_deep", ((1, 4, 100), (3, 100, 2)), (1,), [(1, 1)]),
    _conv("conv_3d", ((1, 3, 3, 4, 2), (2, 2, 3, 2, 2)), (1, 2, 1), [(0, 1), (1, 1), (1, 1)]),
    _conv("conv_one_by_one", ((2, 3, 3, 2), (1, 1, 2, 3)), (1, 1), [(0, 0), (0, 0)]),
    _pool(
        "max_pool",
        lambda x: nn.max_pool(x, (2, 2), (2, 2)),
        lambda x: naive_pool(x, (2, 2), (2, 2), [(0, 0), (0, 0)], -np.inf, np.max),
        (2, 4, 5, 3),
        larger=(5, 16, 15, 7),
        distinct=True,
    ),
    _pool(
        "min_pool",
        lambda x: nn.min_pool(x, (3, 2), (2, 1), ((1, 1), (0, 1))),
        lambda x: naive_pool(x, (3, 2), (2, 1), [(1, 1), (0, 1)], np.inf, np.min),
        (2, 5, 4, 2),
        larger=(5, 16, 15, 7),
        distinct=True,
    ),
    _pool(
        "avg_pool",
        lambda x: nn.avg_pool(x, (3, 3), (2, 1), "SAME"),
        lambda x: naive_pool(x, (3, 3), (2, 1), [(1, 1), (1, 1)], 0.0, np.mean),
        (1, 5, 4, 2),
        larger=(5, 16, 15, 7),
    ),
    _pool(
        "window_put",
        lambda g: windows.window_put(g, PLACES, shape=(4, 4), **WINDOW, **NONE),
        _put_oracle,
        (2, 2),
    ),
    _pool("window_take", lambda x: windows.window_take(x, PLACES, **WINDOW, **NONE), _take_oracle, (4, 4)),
    _pool(
        "window_spread",
        lambda g: windows.window_spread(g, shape=(4,), window=(3,), stride=(1,), dilation=(1,), low=(1,), high=(1,)),
        lambda g: np.array([g[0] + g[1], g[0] + g[1] + g[2], g[1] + g[2] + g[3], g[2] + g[3]]),
        (4,),
    ),
    _pool(
        "window_places",
        lambda x: windows.window_places(x, largest=True, window=(3,), stride=(3,), dilation=(1,), low=(0,), high=(0,)),
        lambda x: x.reshape(-1, 3).argmax(1).astype(np.uint8),
        (9,),
        differentiable=False,
    ),
]
