"""Watching memory the caller can write: residuals between forward and backward, captured arrays while a function is traced.

Small arrays are compared with a copy; large ones by a 64-bit multilinear hash, sum(word[i] * weight[i]) modulo 2**64 with random
odd weights (Carter and Wegman, 1979): a single changed word always changes it. NumPy computes it near memory bandwidth. That is
still as much as a gradient costs that reads a large captured array once, so `glance` looks at a sample of such arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from fxgrad import errors

__all__ = ["Guarded", "fingerprint", "glance", "peep", "reachable"]

COPY_LIMIT = 1 << 16  # bytes; below it a copy costs less than a hash
GLANCE_LIMIT = 1 << 17  # bytes; above it a hash costs more than 15 % of an eager matrix-vector product's gradient
SAMPLES = 4096
PEEP_LIMIT = 1 << 13  # bytes; above it a copy costs more than looking at FEW elements, 0.7 us
FEW = 64
_ROW = 4096


@lru_cache(maxsize=1)
def _weights() -> np.ndarray:
    """Drawn once in each process (numpy.random is slow to import, so not before it is needed)."""
    return np.random.default_rng().integers(0, 2**64, _ROW, dtype=np.uint64) | np.uint64(1)


def fingerprint(x: np.ndarray) -> Any:
    """Something equal for equal contents: the bytes themselves, or their hash."""
    if x.nbytes <= COPY_LIMIT:
        return x.tobytes()
    words = np.ascontiguousarray(x).reshape(-1).view(np.uint8)
    tail = words[words.size // 8 * 8 :].tobytes()
    words = words[: words.size // 8 * 8].view(np.uint64)
    weights = _weights()
    while words.size > _ROW:
        full = words.size // _ROW * _ROW
        rest = words[full:]
        words = np.append(words[:full].reshape(-1, _ROW) @ weights, np.dot(rest, weights[: rest.size]))
    return tail, int(np.dot(words, weights[: words.size]))


@lru_cache(maxsize=16)
def _sample(size: int, count: int = SAMPLES) -> np.ndarray:
    """Where to look in an array of that many elements: one place in each of `count` equal parts, and the last element.

    The places within the parts follow the golden ratio, so that no row or column of a matrix falls between them by its stride.
    """
    parts = np.arange(count)
    places = (parts + parts * 0.6180339887498949 % 1) * (size / count)
    return np.append(places.astype(np.intp), size - 1)


def glance(x: np.ndarray) -> Any:
    """Like fingerprint, but for large arrays of a sample: any run of 1/2048 of the elements is seen, a single one by chance."""
    if x.nbytes <= GLANCE_LIMIT or x.size <= SAMPLES:
        return fingerprint(x)
    flat = x.reshape(-1) if x.flags.c_contiguous else x.flat
    return flat[_sample(x.size)].tobytes()


def peep(x: np.ndarray) -> Any:
    """Like glance, but of arrays larger than PEEP_LIMIT only FEW elements: for checks at every call of a compiled function."""
    if x.nbytes <= PEEP_LIMIT:
        return x.tobytes()
    flat = x.reshape(-1) if x.flags.c_contiguous else x.flat
    return flat[_sample(x.size, FEW)].tobytes()


def reachable(x: Any) -> bool:
    """Whether somebody may write the memory of x."""
    while isinstance(x, np.ndarray):
        if x.flags.writeable:
            return True
        x = x.base
    return x is not None and not isinstance(x, (np.generic, bytes))


class Guarded:
    """Residuals, of which the watched ones live in memory that the caller can reach and must not have changed when read."""

    __slots__ = ("marks", "name", "values")

    def __init__(self, values: Sequence[Any], watched: Sequence[bool], name: Callable[[int], str]):
        self.values, self.name = list(values), name
        self.marks = [
            fingerprint(v) if w and isinstance(v, np.ndarray) and reachable(v) else None
            for v, w in zip(values, watched, strict=True)
        ]

    def read(self, reader: str) -> list[Any]:
        """The residuals, after making sure that none has changed."""
        for i, (value, mark) in enumerate(zip(self.values, self.marks, strict=True)):
            if mark is not None and fingerprint(value) != mark:
                raise errors.StaleValueError(
                    f"{self.name(i)} of shape {value.shape} was changed in place before {reader} used it",
                    why="The derivative needs the value it had in the forward pass; the new one would silently give a wrong one.",
                    fix="Call the pullback first, write w = w - lr * g instead of w -= lr * g, or pass x.copy().",
                )
        return self.values
