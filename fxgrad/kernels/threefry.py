"""Threefry-2x32 with 20 rounds (Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011).

A block of 64 bits is a function of a key and a counter of 64 bits each, made of additions, rotations and exclusive ors of
32-bit words: 16 blocks at a time in AVX-512, with nothing carried from one to the next.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fxgrad.kernels import vector as v

__all__ = ["threefry2x32"]

_PARITY = 0x1BD11BDA
_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))


def threefry2x32(k0: Any, k1: Any, c0: Any, c1: Any) -> tuple[Any, Any]:
    """The two words of the block with counter (c0, c1) under the key (k0, k1), all uint32."""
    keys = (k0, k1, (k0 ^ k1) ^ _PARITY)
    x, y = c0 + k0, c1 + k1
    for group in range(5):
        for r in _ROTATIONS[group % 2]:
            x = x + y
            y = ((y << r) | (y >> (32 - r))) ^ x
        x, y = x + keys[(group + 1) % 3], y + keys[(group + 2) % 3] + (group + 1)
    return x, y


def joined(high: Any, low: Any) -> Any:
    """Two words as a uint64."""
    wide = np.dtype(np.uint64)
    return (v.convert(high, wide) << 32) | v.convert(low, wide)
