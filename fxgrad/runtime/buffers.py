"""Memory for large results and work space: taken back when the last view of it is dropped, and handed out again.

Fresh pages from the system cost more than the kernel that fills them. An array from here has a `Block` as its base; when the
last array over the block has gone, its memory goes back to the idle ones. Idle memory is bounded.

No locks: everything that changes is one operation on a list or dict, so a finalizer that runs in the middle of another call
(garbage collection, other threads) finds it whole. The worst a race can do is to give memory back to the system.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np

__all__ = ["POOLED", "Block", "empty", "forget_buffers", "idle_bytes", "scratch", "set_idle_limit"]

POOLED = 1 << 18  # bytes; below it NumPy's own allocation is cheaper
ALIGNMENT = 64
_BYTES = np.dtype(np.uint8)

_idle: dict[int, list[np.ndarray]] = {}  # size -> memory of that size; classes used last stand last
_limit: int | None = None


def _default_limit() -> int:
    """An eighth of the machine's memory."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 8
    except (ValueError, OSError, AttributeError):
        return 1 << 30


def set_idle_limit(size: int | None) -> None:
    """How many bytes may lie idle; None: an eighth of the machine's memory."""
    global _limit
    _limit = size
    _trim(0)


def idle_bytes() -> int:
    """Bytes that wait for the next large result."""
    return sum([size * len(memory) for size, memory in list(_idle.items())])


def forget_buffers() -> None:
    """Give idle memory back to the system."""
    _idle.clear()


def _size_class(nbytes: int) -> int:
    """Sizes in steps of an eighth of a power of two: at most a seventh is wasted, and near sizes share memory."""
    step = max(4096, 1 << max(nbytes.bit_length() - 4, 0))
    return -(-nbytes // step) * step


def _trim(more: int) -> None:
    """Drop the classes that were not used for longest until `more` bytes fit below the limit."""
    limit = _default_limit() if _limit is None else _limit
    while idle_bytes() + more > limit and _idle:
        for size in list(_idle)[:1]:
            memory = _idle.get(size)
            if memory:
                del memory[:1]
            if not memory:
                _idle.pop(size, None)


def _give(size: int, memory: np.ndarray) -> None:
    _trim(size)
    limit = _default_limit() if _limit is None else _limit
    if size <= limit:
        waiting = _idle.pop(size, None) or []
        waiting.append(memory)
        _idle[size] = waiting


def _take(size: int) -> np.ndarray:
    waiting = _idle.get(size)
    if waiting:
        try:
            return waiting.pop()
        except IndexError:  # another thread was faster
            pass
    return np.empty(size + ALIGNMENT, np.uint8)


class Block:
    """Owner of the memory of one array and its views."""

    __slots__ = ("__array_interface__", "memory", "size")

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype, nbytes: int):
        self.size = _size_class(nbytes)
        self.memory = _take(self.size)
        start = self.memory.ctypes.data
        self.__array_interface__ = {
            "shape": shape, "typestr": dtype.str, "data": (start + -start % ALIGNMENT, False), "version": 3,
        }  # fmt: skip

    def __del__(self, give: Any = _give) -> None:
        give(self.size, self.memory)


def empty(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """An uninitialised C-contiguous array of a native dtype, large ones from memory that was used before."""
    nbytes = dtype.itemsize
    for n in shape:
        nbytes *= n
    if nbytes < POOLED:
        return np.empty(shape, dtype)
    x = np.asarray(Block(shape, dtype, nbytes))
    return x if x.dtype is dtype else x.view(dtype)  # a dtype may have two names: long and long long


def scratch(nbytes: int) -> np.ndarray:
    """That many bytes, aligned, for the time of a call."""
    return np.asarray(Block((nbytes,), _BYTES, nbytes))
