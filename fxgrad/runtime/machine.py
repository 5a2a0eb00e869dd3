"""What this machine can do: bytes a second from its caches and its memory, multiply-adds a second; measured, not looked up.

`machine_limits(threads)` runs the kernels of `kernels/probes.py`, keeps the result in the cache directory, and answers from
there afterwards. The sizes of the streams are chosen by the caches the system reports; see `_levels` for which and why.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fxgrad import errors

__all__ = ["Limits", "Stream", "cache_size", "machine_limits"]

_PAGE = 4096
_FORMS = ("read", "copy", "triad")
_MEMORY = 256 << 20  # bytes: flat from here on where tried (2 cores of a server whose 480 MB of L3 others share); see `_levels`
_TRAFFIC = 128 << 20  # bytes in a run of a stream, some milliseconds: threads do not start at the same microsecond
_TURNS = 200_000  # of the peak's loop in a run, some milliseconds too
_SHORTER = 16  # times, with one thread
_RUNS, _ROUNDS = 3, 2  # the best of all counts; rounds lie apart, since a machine is busy for some time and then is not


@dataclass(frozen=True)
class Stream:
    """Rates over arrays of `size` bytes in all, which lie in `level`: bytes a second read, copied, and of a triad a + s*b.

    Bytes are those the program names: what a cache fetches before it overwrites them is not counted, as in STREAM.
    """

    level: str
    size: int
    read: float
    copy: float
    triad: float

    @property
    def best(self) -> float:
        """The fastest of the three."""
        return max(self.read, self.copy, self.triad)


@dataclass(frozen=True)
class Limits:
    """What `threads` threads of `cpu` reached on the day `measured`, in bytes and floating-point operations a second.

    `streams` go from the fastest level to memory; `read`, `copy` and `triad` are those of memory. `peak_float32` and
    `peak_float64` count a multiply-add as two operations.
    """

    cpu: str
    threads: int
    measured: str
    streams: tuple[Stream, ...]
    peak_float32: float
    peak_float64: float

    @property
    def read(self) -> float:
        return self.streams[-1].read

    @property
    def copy(self) -> float:
        return self.streams[-1].copy

    @property
    def triad(self) -> float:
        return self.streams[-1].triad

    def bandwidth(self, size: int) -> float:
        """Bytes a second of the fastest stream over `size` bytes in all: between the measured sizes, between their rates."""
        rates = np.log([s.best for s in self.streams])
        return float(np.exp(np.interp(np.log(max(size, 1)), np.log([s.size for s in self.streams]), rates)))

    def peak(self, dtype: Any) -> float:
        """Operations a second in a dtype: those of float64 for what has eight bytes, of float32 for the rest."""
        return self.peak_float64 if np.dtype(dtype).itemsize >= 8 else self.peak_float32

    def as_dict(self) -> dict[str, Any]:
        """The fields, for JSON."""
        return asdict(self)


def machine_limits(threads: int = 1, *, again: bool = False, better: bool = False) -> Limits:
    """What this machine reaches with so many threads; measured once in about a second, then read from the cache directory.

    Arguments:
        threads: how many threads work together.
        again: measure even if there are figures (after moving a virtual machine, say), and forget those.
        better: measure even if there are figures, and keep the better of each (if those were taken on a busy machine).

    Returns:
        `Limits`: bytes a second of streams at several sizes, operations a second in float32 and float64.

    Raises:
        FxValueError: threads is not a positive integer.

    Example:
        >>> from fxgrad.runtime.machine import machine_limits
        >>> limits = machine_limits(1)
        >>> limits.triad > 0 and limits.peak_float32 > 0
        True
    """
    if isinstance(threads, bool) or not isinstance(threads, int) or threads < 1:
        raise errors.FxValueError(
            f"machine_limits takes a number of threads, got {threads!r}",
            why="It measures how fast that many threads are together.",
            fix="Write machine_limits(1) for one thread.",
        )
    from fxgrad.compile import store

    name = f"limits-{threads}"
    key = store.cache_directory() / name
    with _lock:
        known = None if again else _kept.get(key) or _stored(store.read(name))
        if known is None or better:
            found = _measure(threads)
            found = found if known is None else _best_of(known, found)
            store.write(name, json.dumps(found.as_dict()).encode())
        else:
            found = known
        _kept[key] = found
        return found


def _best_of(a: Limits, b: Limits) -> Limits:
    """The better of each figure: whatever disturbs a measurement makes it slower. Those of other sizes do not compare."""
    if [s.size for s in a.streams] != [s.size for s in b.streams]:
        return b
    streams = [
        Stream(y.level, y.size, *(max(getattr(x, form), getattr(y, form)) for form in _FORMS))
        for x, y in zip(a.streams, b.streams, strict=True)
    ]
    peaks = max(a.peak_float32, b.peak_float32), max(a.peak_float64, b.peak_float64)
    return Limits(b.cpu, b.threads, b.measured, tuple(streams), *peaks)


_kept: dict[Path, Limits] = {}
_lock = threading.Lock()


def _renew_lock() -> None:
    """In a forked child nobody would release what another thread of the parent held."""
    global _lock
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_lock)


def _stored(text: bytes | None) -> Limits | None:
    """The figures in a file of the cache, None if there are none that can be used."""
    if text is None:
        return None
    try:
        data = json.loads(text)
        data["streams"] = tuple(Stream(**s) for s in data["streams"])
        found = Limits(**data)
        rates = [found.peak_float32, found.peak_float64, *(getattr(s, form) for s in found.streams for form in _FORMS)]
        return found if found.streams and min(rates) > 0 else None
    except (ValueError, TypeError, KeyError):
        return None


@functools.cache
def cache_size(level: int) -> int | None:
    """Bytes of the data cache of a level as the system reports them; None where it does not."""
    for folder in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        with contextlib.suppress(OSError, ValueError):
            if int((folder / "level").read_text()) == level and (folder / "type").read_text().strip() != "Instruction":
                text = (folder / "size").read_text().strip()
                return int(text.rstrip("KMG")) << {"K": 10, "M": 20, "G": 30}.get(text[-1], 0)
    return None


def _levels(threads: int) -> list[tuple[str, int]]:
    """Sizes to stream over, in all threads: half the L2s, some of the L3, and what is memory.

    The L3 of a server is shared with its other tenants, so its reported size says little: the L3 figure is taken at eight times
    the L2s. Memory is four times the L3, at most 256 MB: touching more would take seconds, and a tenant has no more than that
    of the L3 for long. Where a core really owns a larger L3, the figure is that of the L3.
    """
    second, third = (cache_size(2) or 1 << 20) * threads, cache_size(3)
    levels = [("L2", second // 2)]
    if third is not None and third >= 16 * second:
        levels.append(("L3", 8 * second))
    memory = min(max(4 * (third or second), 128 << 20), _MEMORY)
    return [*levels, ("memory", max(memory, 2 * levels[-1][1]))]


# ---- measuring -----------------------------------------------------------------------------------------------------------


def _measure(threads: int) -> Limits:
    import llvmlite.binding as llvm

    from fxgrad.compile.cache import kernel_addresses
    from fxgrad.kernels.probes import PeakKernel, StreamKernel

    streams = [StreamKernel(form) for form in _FORMS]
    peaks = [PeakKernel(np.dtype(t)) for t in (np.float32, np.float64)]
    addresses = kernel_addresses([*streams, *peaks])
    levels = _levels(threads)
    memory = np.empty(levels[-1][1] + _PAGE, np.uint8)
    memory = memory[-memory.ctypes.data % _PAGE :][: levels[-1][1]]
    memory.fill(0)
    rates, peak = np.zeros((len(levels), len(streams))), np.zeros(len(peaks))
    for _ in range(_ROUNDS):
        for row, (_, size) in zip(rates, levels, strict=True):
            now = [_stream_rate(k.arrays, a, memory[:size], threads) for k, a in zip(streams, addresses, strict=False)]
            np.maximum(row, now, out=row)
        now = [_peak_rate(k, a, threads) for k, a in zip(peaks, addresses[len(streams) :], strict=True)]
        np.maximum(peak, now, out=peak)
    found = [Stream(level, size, *row) for (level, size), row in zip(levels, rates.tolist(), strict=True)]
    return Limits(llvm.get_host_cpu_name(), threads, time.strftime("%Y-%m-%d"), tuple(found), *peak.tolist())


def _stream_rate(count: int, address: int, memory: np.ndarray, threads: int) -> float:
    """Bytes a second of a stream over `count` arrays that fill the memory together."""
    from fxgrad.kernels.probes import STREAM_UNIT

    units = max(memory.size // (count * STREAM_UNIT * threads), 1)
    each = units * STREAM_UNIT
    passes, runs = _runs(_TRAFFIC // (each * count * threads), threads)
    jobs = []
    for t in range(threads):
        arrays = [memory[(t * count + i) * each :][:each] for i in range(count)]
        jobs.append((tuple(arrays) if count > 1 else (*arrays, np.empty(units)), _plan(units, passes)))
    return threads * count * each * passes / _best(address, jobs, runs)


def _plan(extent: int, passes: int) -> np.ndarray:
    """A grain below 0: never split, but long enough to give up the GIL for, without which threads would take turns."""
    return np.array([extent, -extent, passes], np.int64)


def _runs(length: int, threads: int) -> tuple[int, int]:
    """How long a run is, and how many there are: one thread can take short ones, which slip through between other work."""
    short = max(length // _SHORTER, 1) if threads == 1 else max(length, 1)
    return short, _RUNS * max(length // short, 1)


def _peak_rate(kernel: Any, address: int, threads: int) -> float:
    turns, runs = _runs(_TURNS, threads)
    inputs = np.array([0.5, 1.0], kernel.dtype)
    jobs = [((inputs, np.empty(64, np.uint8)), _plan(turns, 1)) for _ in range(threads)]
    return threads * turns * kernel.flops / _best(address, jobs, runs)


def _best(address: int, jobs: Sequence[tuple[tuple[np.ndarray, ...], np.ndarray]], runs: int) -> float:
    """Least seconds of so many runs of the kernel on all jobs side by side, a thread each."""
    from fxgrad.runtime.launch import launch

    barrier = threading.Barrier(len(jobs))
    spans: list[list[tuple[float, float]]] = [[] for _ in jobs]

    def work(t: int) -> None:
        operands, plan = jobs[t]
        where = plan.ctypes.data
        for _ in range(runs):
            barrier.wait()
            start = time.perf_counter()
            launch(address, where, id(operands))
            spans[t].append((start, time.perf_counter()))

    others = [threading.Thread(target=work, args=(t,)) for t in range(1, len(jobs))]
    for other in others:
        other.start()
    work(0)
    for other in others:
        other.join()
    turns = zip(*spans, strict=True)
    return min(max(stop for _, stop in turn) - min(start for start, _ in turn) for turn in turns)
