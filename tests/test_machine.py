"""The machine's limits: plausible, kept, measured by kernels that do what they say. No test looks at how long anything took."""

from __future__ import annotations

import dataclasses
import json
import re
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fxgrad as fx
from fxgrad.compile import store
from fxgrad.runtime import machine
from fxgrad.runtime.machine import Limits, Stream, cache_size, machine_limits
from tests.four_parts import assert_four_parts, raised

LIMITS = Limits(
    "a cpu", 1, "2026-01-01", (Stream("L2", 10**6, 9e10, 8e10, 1e11), Stream("memory", 10**8, 1e10, 9e9, 8e9)), 2e11, 1e11
)


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(fx.config, "cache_dir", str(tmp_path))
    return tmp_path


def test_limits_bind_by_size_and_dtype() -> None:
    assert LIMITS.bandwidth(10) == LIMITS.bandwidth(10**6) == pytest.approx(1e11)
    assert LIMITS.bandwidth(10**9) == pytest.approx(1e10) and LIMITS.bandwidth(10**7) == pytest.approx(10**10.5)
    assert LIMITS.peak(np.float32) == 2e11 and LIMITS.peak(complex) == 1e11
    assert (LIMITS.read, LIMITS.copy, LIMITS.triad) == (1e10, 9e9, 8e9)


@pytest.mark.parametrize("threads", [1, 2])
def test_limits_are_plausible_and_kept(elsewhere: Path, threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    found = machine_limits(threads)
    for s in found.streams:
        assert all(1e8 < x < 1e14 for x in (s.read, s.copy, s.triad)) and s.best == max(s.read, s.copy, s.triad)
    assert [s.size for s in found.streams] == sorted(s.size for s in found.streams) and found.streams[-1].level == "memory"
    assert 1e8 < found.peak_float64 < 1e14 and 1e8 < found.peak_float32 < 1e14
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", found.measured) and found.threads == threads and found.cpu
    assert machine_limits(threads) is found
    assert len([*elsewhere.glob(f"*/limits-{threads}")]) == 1
    monkeypatch.setattr(machine, "_measure", lambda n: pytest.fail("measured again"))
    monkeypatch.setattr(machine, "_kept", {})
    assert machine_limits(threads) == found
    assert json.loads(store.read(f"limits-{threads}") or b"")["threads"] == threads


@pytest.mark.parametrize("damage", ["", "{}", "[1]", '{"streams": []}', "\udcff"])
def test_damaged_limits_are_measured_again(elsewhere: Path, damage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "_measure", lambda n: LIMITS)
    machine_limits(1)
    written = store.read("limits-1")
    store.write("limits-1", damage.encode("utf-8", "surrogateescape"))
    monkeypatch.setattr(machine, "_kept", {})
    assert machine_limits(1) == LIMITS and store.read("limits-1") == written
    other = dataclasses.replace(LIMITS, peak_float32=3e11)
    monkeypatch.setattr(machine, "_measure", lambda n: other)
    assert machine_limits(1) == LIMITS and machine_limits(1, again=True) == machine_limits(1) == other


def test_the_better_figures_are_kept(elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    streams = tuple(dataclasses.replace(s, read=2 * s.read, copy=s.copy / 2) for s in LIMITS.streams)
    second = dataclasses.replace(LIMITS, measured="2026-01-02", streams=streams, peak_float64=5e11, peak_float32=1.0)
    answers = [LIMITS, second, dataclasses.replace(second, streams=streams[:1])]
    monkeypatch.setattr(machine, "_measure", lambda n: answers.pop(0))
    machine_limits(1)
    found = machine_limits(1, better=True)
    assert (found.measured, found.peak_float32, found.peak_float64) == ("2026-01-02", 2e11, 5e11)
    for s, a in zip(found.streams, LIMITS.streams, strict=True):
        assert (s.read, s.copy, s.triad) == (2 * a.read, a.copy, a.triad)
    assert len(machine_limits(1, better=True).streams) == 1 and not answers  # other sizes: nothing to compare


@pytest.mark.parametrize("bad", [0, -1, 1.0, True, "2"])
def test_limits_of_no_threads(bad: Any) -> None:
    error = raised(lambda: machine_limits(bad), ValueError)
    assert_four_parts(error, what=repr(bad), line="machine_limits(bad)", why="threads", fix="machine_limits(1)")


def test_probes_compute_what_they_say() -> None:
    """A probe that did less than its work would be a fast machine."""
    from fxgrad.compile.cache import kernel_addresses
    from fxgrad.kernels.probes import STREAM_UNIT, PeakKernel, StreamKernel
    from fxgrad.runtime.launch import launch

    def run(kernel: Any, operands: tuple[np.ndarray, ...], units: int, passes: int = 1) -> None:
        plan = np.array([units, 0, passes], np.int64)
        launch(kernel_addresses([kernel])[0], plan.ctypes.data, id(operands))

    n = 3 * STREAM_UNIT // 8
    a, b, c, sums = np.arange(n, dtype=float), np.full(n, 2.0), np.zeros(n + 1), np.zeros(3)
    run(StreamKernel("read"), (a, sums), 3, passes=2)
    assert sums.tolist() == [2 * np.sum(a), 0, 0]
    run(StreamKernel("copy"), (a, c), 3)
    assert (c[:-1] == a).all() and c[-1] == 0
    run(StreamKernel("triad"), (a, b, c), 3)
    assert (c[:-1] == a + 6).all() and c[-1] == 0
    for dtype in (np.float32, np.float64):
        peak = PeakKernel(np.dtype(dtype))
        out = np.zeros(peak.lanes, dtype)
        run(peak, (np.array([1, 1], dtype), out), 5)
        turns = 5 * peak.flops // (2 * peak.lanes * peak.chains)
        assert out.tolist() == [sum(k + turns for k in range(peak.chains))] * peak.lanes


def test_caches_of_this_machine() -> None:
    sizes = [size for level in (1, 2, 3) if (size := cache_size(level)) is not None]
    assert sizes == sorted(sizes) and all(size >= 4096 for size in sizes)
    assert cache_size(9) is None


def test_threads_ask_for_limits_at_once(elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    monkeypatch.setattr(machine, "_measure", lambda n: calls.append(n) or LIMITS)
    workers = [threading.Thread(target=machine_limits, args=(7,)) for _ in range(8)]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    assert calls == [7]


def test_probes_run_side_by_side() -> None:
    """Other threads go on while a probe runs; it holds no lock that would make threads take turns."""
    from fxgrad.compile.cache import kernel_addresses
    from fxgrad.kernels.probes import PeakKernel
    from fxgrad.runtime.launch import launch

    (address,) = kernel_addresses([PeakKernel(np.dtype(np.float32))])
    operands, span = (np.array([0.5, 1.0], np.float32), np.empty(64, np.uint8)), list[float]()

    def work() -> None:
        plan = machine._plan(60_000_000, 1)
        begun = time.perf_counter()
        launch(address, plan.ctypes.data, id(operands))
        span.extend((begun, time.perf_counter()))

    thread, seen = threading.Thread(target=work), list[float]()
    thread.start()
    while thread.is_alive():
        seen.append(time.perf_counter())
        time.sleep(0.001)
    first, last = span
    assert any(first + (last - first) / 4 < t < last - (last - first) / 4 for t in seen)
