"""Convolutions and pooling in plain NumPy, by their definitions."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np


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
