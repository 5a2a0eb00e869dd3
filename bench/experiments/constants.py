"""What this machine was measured to do, before an experiment runs: the numbers its predictions are made of.

Each is measured when it is first asked for, in the process of the experiment, and stored with its result. Streams and
multiply-adds are fxgrad's own probes (`fxgrad.runtime.machine`); the rest is measured here with functions of no interest.
"""

from __future__ import annotations

import functools
import mmap
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import fxgrad as fx
import fxgrad.numpy as fnp
from bench.experiments.inside import NEVER, compiled, threads_set
from fxgrad.runtime import machine

__all__ = ["Constants"]

FAULTED = 32 << 20  # bytes of fresh memory to touch
PAGE = 4096


def _least(f: Callable[[], Any], calls: int = 200, blocks: int = 15) -> float:
    """Seconds of a short call: the fastest of some blocks of calls."""
    f()
    least = float("inf")
    for _ in range(blocks):
        start = time.perf_counter()
        for _ in range(calls):
            f()
        least = min(least, (time.perf_counter() - start) / calls)
    return least


class Constants:
    """Numbers in bytes, seconds, and units a second; `used` collects what was asked for."""

    def __init__(self, quick: bool, threads: int):
        self.quick, self.threads = quick, threads
        self.used: dict[str, Any] = {}

    def _keep(self, name: str, value: Any) -> Any:
        self.used[name] = value
        return value

    # ---- the machine ---------------------------------------------------------------------------------------------------

    @functools.cache  # noqa: B019
    def limits(self, threads: int = 0) -> machine.Limits:
        """Bandwidth of each level and the peak of multiply-adds, with so many threads (0: those of the run)."""
        threads = threads or self.threads
        found = machine.machine_limits(threads, again=not self.quick)
        self._keep(f"limits of {threads}", found.as_dict())
        return found

    @functools.cache  # noqa: B019
    def curve(self, threads: int = 0) -> list[tuple[int, dict[str, float]]]:
        """Bytes a second by the form of the stream (read, copy, triad), over working sets from the first cache to memory."""
        from fxgrad.compile.cache import kernel_addresses
        from fxgrad.kernels.probes import StreamKernel

        threads = threads or self.threads
        kernels = [StreamKernel(form) for form in ("read", "copy", "triad")]
        addresses = kernel_addresses(kernels)
        sizes = [1 << k for k in ((16, 20, 25) if self.quick else range(15, 29))]
        memory = np.zeros(max(sizes) + PAGE, np.uint8)
        memory = memory[-memory.ctypes.data % PAGE :]
        found = []
        for size in sizes:
            part = memory[: max(size, 3 * PAGE * threads)]
            pairs = zip(kernels, addresses, strict=True)
            rates = {k.form: machine._stream_rate(k.arrays, a, part, threads) for k, a in pairs}
            found.append((size, rates))
        self._keep(f"bandwidth over size, {threads} threads", [[size, rates] for size, rates in found])
        return found

    def rate(self, size: float, form: str, threads: int = 0) -> float:
        """Bytes a second of a form of stream over a working set: between the measured sizes, between their rates."""
        curve = self.curve(threads or self.threads)
        rates = np.log([r[form] for _, r in curve])
        return float(np.exp(np.interp(np.log(max(size, 1)), np.log([s for s, _ in curve]), rates)))

    # ---- overheads -----------------------------------------------------------------------------------------------------

    @functools.cached_property
    def call(self) -> float:
        """Seconds of a compiled call of one kernel on 16 elements."""
        x = np.ones(16, np.float32)
        f = fx.jit(lambda x: np.negative(x))
        return self._keep("compiled call, s", _least(lambda: f(x)))

    @functools.cached_property
    def kernel(self) -> float:
        """Seconds of each further kernel of a compiled call, on 16 elements."""
        x = np.ones(16, np.float32)

        def chain(x: Any) -> Any:
            for _ in range(9):
                x = abs(x - 2)
            return x

        many, one = compiled(chain, [x], fusion=False), compiled(chain, [x])
        assert len(many.steps) == 18, "each operation is to be a kernel"
        more = (_least(lambda: many(x)) - _least(lambda: one(x))) / (len(many.steps) - len(one.steps))
        return self._keep("further kernel, s", max(more, 1e-9))

    @functools.cached_property
    def eager_call(self) -> float:
        """Seconds of one operation of fxgrad.numpy on 16 elements."""
        x = np.ones(16, np.float32)
        return self._keep("eager operation, s", _least(lambda: fnp.exp(x)))

    @functools.cached_property
    def numpy_call(self) -> float:
        """Seconds of one ufunc of NumPy on 16 elements."""
        x = np.ones(16, np.float32)
        return self._keep("NumPy call, s", _least(lambda: np.negative(x)))

    @functools.cached_property
    def torch_call(self) -> float | None:
        """Seconds of one operation of torch on 16 elements."""
        try:
            import torch
        except ImportError:
            return None
        x = torch.ones(16)
        return self._keep("torch operation, s", _least(lambda: torch.neg(x)))

    @functools.cached_property
    def jax_calls(self) -> tuple[float, float] | None:
        """Seconds of one operation of JAX, and of one call of a compiled function, on 16 elements."""
        try:
            import jax
        except ImportError:
            return None
        x, f = jax.numpy.ones(16, "float32"), jax.jit(lambda x: -x)
        eager = self._keep("JAX operation, s", _least(lambda: jax.numpy.negative(x).block_until_ready(), 50))
        return eager, self._keep("JAX compiled call, s", _least(lambda: f(x).block_until_ready(), 50))

    @functools.cached_property
    def faults(self) -> tuple[float, float]:
        """Seconds a byte of the first touch of fresh memory, in pages of 4 KiB and in huge pages."""

        def touch(huge: bool) -> float:
            least = float("inf")
            for _ in range(3):
                area = mmap.mmap(-1, FAULTED + (2 << 20), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
                if hasattr(mmap, "MADV_HUGEPAGE"):
                    area.madvise(mmap.MADV_HUGEPAGE if huge else mmap.MADV_NOHUGEPAGE)
                bytes_ = np.frombuffer(area, np.uint8)[:FAULTED]
                start = time.perf_counter()
                bytes_[::PAGE] = 1
                least = min(least, time.perf_counter() - start)
            return least / FAULTED

        return self._keep("first touch of small pages, s/B", touch(False)), self._keep("of huge pages, s/B", touch(True))

    @functools.cached_property
    def stores(self) -> tuple[float, float]:
        """Bytes a second that a copying kernel names, over memory, with stores through the caches and around them."""
        n = 2_000_000 if self.quick else 16_000_000
        x = np.ones(n, np.float32)
        ways = [compiled(np.negative, [x], stream=stream) for stream in (0, NEVER)]
        with threads_set(1):
            streamed, stored = (min(_least(lambda f=f: f(x), 1, 7) for _ in range(2)) for f in ways)
        return self._keep("copy, stores through caches, B/s", 8 * n / stored), self._keep(
            "copy, streamed stores, B/s", 8 * n / streamed
        )
