"""Random numbers in plain NumPy, written from the papers: what the kernels' draws are compared with."""

from __future__ import annotations

import math

import numpy as np
import scipy.special
import scipy.stats

KEY = np.array([7, 2026], np.uint32)


def threefry(key: np.ndarray, c0: np.ndarray | int, c1: np.ndarray | int) -> tuple[np.ndarray, np.ndarray]:
    """Threefry-2x32, 20 rounds, in Python's integers modulo 2^32 (as uint64 arrays)."""
    low = np.uint64(0xFFFFFFFF)
    keys = [np.uint64(k) for k in key]
    keys.append(keys[0] ^ keys[1] ^ np.uint64(0x1BD11BDA))
    x, y = np.broadcast_arrays(np.asarray(c0, np.uint64), np.asarray(c1, np.uint64))
    x, y = (x + keys[0]) & low, (y + keys[1]) & low
    rotations = (13, 15, 26, 6, 17, 29, 16, 24)
    for i in range(20):
        r = rotations[i % 8]
        x = (x + y) & low
        y = (((y << np.uint64(r)) | (y >> np.uint64(32 - r))) & low) ^ x
        if i % 4 == 3:
            group = i // 4 + 1
            x = (x + keys[group % 3]) & low
            y = (y + keys[(group + 1) % 3] + np.uint64(group)) & low
    return x, y


def bits64(shape: tuple[int, ...], key: np.ndarray = KEY, attempt: int = 0) -> np.ndarray:
    """The uint64 of every element."""
    n = math.prod(shape)
    x, y = threefry(key, attempt, np.arange(n))
    return ((x << np.uint64(32)) | y).reshape(shape)


def bits32(shape: tuple[int, ...], key: np.ndarray = KEY, attempt: int = 0) -> np.ndarray:
    """The uint32 of every element."""
    x, y = threefry(key, attempt, np.arange(math.prod(shape)))
    return (x ^ y).astype(np.uint32).reshape(shape)


def uniform(shape: tuple[int, ...], key: np.ndarray = KEY) -> np.ndarray:
    return np.asarray((bits64(shape, key) >> np.uint64(11)).astype(np.float64)) * 2.0**-53


def open_uniform(bits: np.ndarray) -> np.ndarray:
    return np.asarray((np.asarray(bits).astype(np.float64) + 0.5) * 2.0**-64)


def normal_of(bits: np.ndarray) -> np.ndarray:
    u = np.asarray(bits | np.uint64(1)).astype(np.float64) * 2.0**-64
    z = np.asarray(-scipy.special.ndtri(u / 2))
    return np.where(np.asarray(bits) & np.uint64(1), -z, z)


def randint(shape: tuple[int, ...], span: int, key: np.ndarray = KEY) -> np.ndarray:
    """Lemire's multiplication; for small spans a rejection is as good as impossible."""
    return np.asarray((bits32(shape, key).astype(np.uint64) * np.uint64(span)) >> np.uint64(32)).astype(np.int64)


def gamma(a: np.ndarray, key: np.ndarray = KEY) -> np.ndarray:
    """Marsaglia and Tsang, element by element, for a >= 1: what the primitive gamma_draw gives for this key."""
    a = np.asarray(a, np.float64)
    out = np.empty(a.shape)
    for i, shape in enumerate(a.flat):
        d = shape - 1 / 3
        attempt = 0
        while True:
            first, second = (_at(key, attempt + j, i) for j in (0, 1))
            x, u = float(normal_of(first)), float(open_uniform(second))
            v = (1 + x / math.sqrt(9 * d)) ** 3
            if v > 0 and math.log(u) < x * x / 2 + d - d * v + d * math.log(v):
                break
            attempt += 2
        out.flat[i] = d * v
    return out


def _at(key: np.ndarray, attempt: int, element: int) -> np.ndarray:
    x, y = threefry(key, attempt, element)
    return np.asarray((x << np.uint64(32)) | y)


def poisson(rate: np.ndarray, key: np.ndarray = KEY) -> np.ndarray:
    """By SciPy's quantile function, for rates below 10."""
    return np.asarray(scipy.stats.poisson.ppf(open_uniform(bits64(np.shape(rate), key)), rate)).astype(np.int64)


def binomial(n: int, p: np.ndarray, key: np.ndarray = KEY) -> np.ndarray:
    """By SciPy's quantile function, for n*p below 10."""
    return np.asarray(scipy.stats.binom.ppf(open_uniform(bits64(np.shape(p), key)), n, p)).astype(np.int64)
