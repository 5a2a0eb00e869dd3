"""Memory for large results and work space: taken back when the last view of it is dropped, and handed out again.

Fresh pages from the system cost more than the kernel that fills them, so the largest come as huge pages. An array
from here has a `Block` as its base; when the last array over the block has gone, its memory goes back to the idle ones.
Idle memory is bounded.

No locks: everything that changes is one operation on a list or dict, so a finalizer that runs in the middle of another call
(garbage collection, other threads) finds it whole. The worst a race can do is to give memory back to the system.
"""

from __future__ import annotations

import errno
import functools
import math
import mmap
import os
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np

from fxgrad.runtime.caches import on_clear

__all__ = ["POOLED", "Block", "allocator", "forget_buffers", "idle_bytes", "set_idle_limit"]

POOLED = 1 << 18  # bytes; below it NumPy's own allocation is cheaper
ALIGNMENT = 64
_HUGE_PAGE = 1 << 21
_ROOMY = 1 << 28  # bytes of work space up to which it gets room to grow
_DOUBLINGS = 3  # how often the room wanted may be doubled by what is found

_Memory = tuple[int, np.ndarray]  # where it begins, and what owns it

_idle: dict[int, list[_Memory]] = {}  # by size; sizes used last stand last
_total = 0  # bytes of all of them
_limit: int | None = None


@functools.cache
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
    _trim()


def idle_bytes() -> int:
    """Bytes that wait for the next large result."""
    return sum([size * len(waiting) for size, waiting in list(_idle.items())])


@on_clear
def forget_buffers() -> None:
    """Give idle memory back to the system."""
    global _total
    _idle.clear()
    _total = 0


def _trim() -> None:
    """Drop what was not used for longest until the rest fits below the limit."""
    global _total
    limit = _default_limit() if _limit is None else _limit
    _total = idle_bytes()
    while _total > limit and _idle:
        for size in list(_idle)[:1]:
            waiting = _idle.get(size)
            if waiting:
                del waiting[:1]
            if not waiting:
                _idle.pop(size, None)
        _total = idle_bytes()


def _size_class(nbytes: int) -> int:
    """Sizes in steps of an eighth of a power of two: at most a seventh is wasted, and near sizes share memory."""
    step = max(4096, 1 << max(nbytes.bit_length() - 4, 0))
    return -(-nbytes // step) * step


def _room(nbytes: int) -> int:
    """The size class of work space: powers of two, so that the next program's finds room in it; pages are taken when touched.

    A page more than that, which is no size class of results: those who lend each other memory are not to take theirs.
    """
    return (1 << (nbytes - 1).bit_length()) + 4096


def _found_room(room: int) -> int:
    """The least idle work space in which there is so much room, and not far too much; `room` itself if there is none."""
    larger = [((room - 4096) << k) + 4096 for k in range(_DOUBLINGS + 1)]
    return next((size for size in larger if _idle.get(size)), room)


class Block:
    """Base of the arrays from the pool: owner of the memory of one array and its views."""

    __slots__ = ()
    size: int
    memory: _Memory

    def __del__(self) -> None:
        global _total
        size = self.size
        waiting = _idle.get(size)
        if waiting is None:
            waiting = _idle.setdefault(size, [])
        waiting.append(self.memory)
        _total += size
        if _total > (_default_limit() if _limit is None else _limit):
            _trim()


@functools.cache
def _block_class(size: int) -> Any:
    """Blocks of one size: ctypes arrays, which NumPy takes as memory faster than anything else."""
    import ctypes

    return type("Block", (Block, ctypes.c_char * size), {"__slots__": ("memory",), "size": size})


def _take(size: int) -> _Memory:
    global _total
    waiting = _idle.pop(size, None)
    if waiting:
        _idle[size] = waiting  # the size used last
        try:
            memory = waiting.pop()
        except IndexError:  # another thread was faster
            pass
        else:
            _total -= size
            return memory
    return _fresh(size)


def _fresh(size: int) -> _Memory:
    """Memory from the system; from 2 MiB on aligned to huge pages, where the system has them.

    Measured (Linux in a virtual machine): the first touch of 16 MiB costs 1.1 ms so, and 24 to 42 ms by way of malloc, whose
    blocks begin and end in pages of 4 KiB.
    """
    huge = size >= _HUGE_PAGE and hasattr(mmap, "MADV_HUGEPAGE")
    alignment = _HUGE_PAGE if huge else ALIGNMENT
    if huge:
        try:
            mapping = mmap.mmap(-1, size + alignment, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        except OSError as error:
            if error.errno != errno.ENOMEM:
                raise
            raise MemoryError(f"Unable to allocate {size / 2**30:.3g} GiB ({size} bytes) for an array") from None
        with suppress(OSError):  # a kernel without them
            mapping.madvise(mmap.MADV_HUGEPAGE)
        owner = np.frombuffer(mapping, np.uint8)
    else:
        owner = np.empty(size + alignment, np.uint8)
    start = owner.ctypes.data
    return start + -start % alignment, owner


def allocator(shape: tuple[int, ...], dtype: np.dtype, passing: bool = False) -> Callable[[], np.ndarray]:
    """A function that makes uninitialised C-contiguous arrays of a native dtype, in memory that was used before.

    `passing`: for work space, which is given back soon; it may lie in what another program's took up. Otherwise the first
    call of a new batch size would spend more time on fresh pages (0.2 to 2 ms for 2 MiB) than on all else.
    """
    if passing and _HUGE_PAGE <= math.prod(shape) * dtype.itemsize <= _ROOMY:
        return _work_space(shape, dtype)
    size = _size_class(math.prod(shape) * dtype.itemsize)
    at, array = _block_class(size).from_address, np.ndarray

    def allocate() -> np.ndarray:
        memory = _take(size)
        block = at(memory[0])
        block.memory = memory
        return array(shape, dtype, block)

    return allocate


def _work_space(shape: tuple[int, ...], dtype: np.dtype) -> Callable[[], np.ndarray]:
    room, array = _room(math.prod(shape) * dtype.itemsize), np.ndarray

    def allocate() -> np.ndarray:
        size = _found_room(room)
        memory = _take(size)
        block = _block_class(size).from_address(memory[0])
        block.memory = memory
        return array(shape, dtype, block)

    return allocate
