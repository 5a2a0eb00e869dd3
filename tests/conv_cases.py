"""Cases of convolutions and of reductions over windows, for the shared table."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from fxgrad import lax, nn
from fxgrad.primitives import windows
from tests.cases import Case

LAST = ("NHWC", "HWIO", "NHWC")


def naive_conv(
    x: np.ndarray, w: np.ndarray, stride: Any, pads: Any, x_dilation: Any = None, dilation: Any = None, groups: int = 1
) -> np.ndarray:
    """Channels last, by the definition: padded, dilated, one position of the kernel after the other."""
    count = w.ndim - 2
    x_dilation, dilation = x_dilation or (1,) * count, dilation or (1,) * count
    spread = np.zeros(
        (x.shape[0], *((n - 1) * d + 1 for n, d in zip(x.shape[1:-1], x_dilation, strict=True)), x.shape[-1]), x.dtype
    )
    spread[(slice(None), *(slice(None, None, d) for d in x_dilation))] = x
    wide = np.pad(spread, [(0, 0), *[(max(lo, 0), max(hi, 0)) for lo, hi in pads], (0, 0)])
    cut = tuple(slice(-min(lo, 0), n + min(hi, 0)) for (lo, hi), n in zip(pads, wide.shape[1:-1], strict=True))
    wide = wide[(slice(None), *cut)]
    window = [(k - 1) * d + 1 for k, d in zip(w.shape, dilation, strict=False)]
    out = [max(0, (n - k) // s + 1) for n, k, s in zip(wide.shape[1:-1], window, stride, strict=True)]
    each, features = x.shape[-1] // groups, w.shape[-1] // groups
    y = np.zeros((x.shape[0], *out, w.shape[-1]), x.dtype)
    for place in itertools.product(*map(range, w.shape[:count])):
        part = wide[
            (
                slice(None),
                *(
                    slice(t * d, t * d + (n - 1) * s + 1 if n else 0, s)
                    for t, d, n, s in zip(place, dilation, out, stride, strict=True)
                ),
            )
        ]
        for g in range(groups):
            mine = slice(g * features, (g + 1) * features)
            y[..., mine] += part[..., g * each : (g + 1) * each] @ w[place][:, mine]
    return y


def naive_pool(x: np.ndarray, window: Any, stride: Any, pads: Any, fill: float, combine: Any) -> np.ndarray:
    """Over the last axes but one, by the definition."""
    before = x.ndim - 1 - len(window)
    wide = np.pad(x, [(0, 0)] * before + list(pads) + [(0, 0)], constant_values=fill)
    out = [(n - k) // s + 1 for n, k, s in zip(wide.shape[before:-1], window, stride, strict=True)]
    parts = []
    for place in itertools.product(*map(range, window)):
        cut = (slice(t, t + (n - 1) * s + 1, s) for t, n, s in zip(place, out, stride, strict=True))
        parts.append(wide[(slice(None),) * before + tuple(cut)])
    return combine(np.stack(parts), axis=0)


def _conv(name: str, shapes: Any, stride: Any, pads: Any, x_dilation: Any = None, dilation: Any = None, groups: int = 1) -> Case:
    middle = "HW" if len(stride) == 2 else "DHW"[-len(stride) :] if len(stride) == 3 else "W"
    numbers = (f"N{middle}C", f"{middle}IO", f"N{middle}C")

    def f(x: Any, w: Any) -> Any:
        return lax.conv_general_dilated(x, w, stride, pads, x_dilation, dilation, numbers, groups)

    def oracle(x: np.ndarray, w: np.ndarray) -> np.ndarray:
        return naive_conv(x, w, stride, pads, x_dilation, dilation, groups)

    return Case(name, f, oracle, [shapes], [(-1, 1), (-1, 1)], rtol=64)


def _pool(name: str, f: Any, oracle: Any, shape: Any, **more: Any) -> Case:
    return Case(name, f, oracle, [(shape,)], [(-2, 2)], rtol=16, **more)


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
        distinct=True,
    ),
    _pool(
        "min_pool",
        lambda x: nn.min_pool(x, (3, 2), (2, 1), ((1, 1), (0, 1))),
        lambda x: naive_pool(x, (3, 2), (2, 1), [(1, 1), (0, 1)], np.inf, np.min),
        (2, 5, 4, 2),
        distinct=True,
    ),
    _pool(
        "avg_pool",
        lambda x: nn.avg_pool(x, (3, 3), (2, 1), "SAME"),
        lambda x: naive_pool(x, (3, 3), (2, 1), [(1, 1), (1, 1)], 0.0, np.mean),
        (1, 5, 4, 2),
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
