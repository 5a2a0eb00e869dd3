"""The benchmark program: what it times, compares, judges and writes. Sizes are tiny, and no time is asserted."""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import shutil
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from bench import limits, report, run, timing
from bench.__main__ import CASES, draw_all, forget
from bench.block import Problem
from bench.cases import footprint, programs, startup
from bench.peers import FXGRAD, JAX, Peers, difference, environment, leaves
from bench.processes import fresh
from bench.programs import load
from bench.programs import problem as problem_of
from bench.timing import Group, Row, Target, exact, summary

WHERE = {"processor": "P", "cores": 2, "busy": 0.25, "system": "S", "python": "3", "date": "2026-01-02 03:04 UTC"}
IN_PROCESS = [name for name in CASES if name not in ("startup", "footprint")]


# ---- timing ----------------------------------------------------------------------------------------------------------------


def test_contenders_take_turns_and_nobody_always_follows_the_same() -> None:
    order: list[str] = []

    def contender(name: str) -> Any:
        return lambda: order.append(name)

    times = timing.interleave({name: contender(name) for name in "abc"}, repeat=3, block=1e-9, warm=0.0)
    assert {name: (t.blocks, t.calls) for name, t in times.items()} == dict.fromkeys("abc", (3, 1))
    timed = order[-3 * 3 * 2 :]  # each block is one call that is not timed and one that is
    assert "".join(timed[::2]) == "abcbcacab"


def test_a_block_has_as_many_calls_as_fill_it() -> None:
    times = timing.interleave({"a": lambda: time.sleep(1e-3)}, repeat=1, block=0.01, warm=0.0)["a"]
    assert 1 <= times.calls <= 10  # sleeping takes at least what was asked for, more on a busy machine
    assert times.least >= 1e-3


def test_parking_waits_for_a_thread_that_spins() -> None:
    stop = time.perf_counter() + 0.05

    def spin() -> None:
        while time.perf_counter() < stop:
            pass

    thread = threading.Thread(target=spin)
    thread.start()
    timing.park()
    parked = time.perf_counter()
    thread.join()
    assert parked >= stop


def test_parking_gives_up_on_a_thread_that_never_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "PARK_LIMIT", 0.02)
    done = threading.Event()

    def spin() -> None:
        while not done.is_set():
            pass

    thread = threading.Thread(target=spin)
    thread.start()
    timing.park()
    assert thread.is_alive()
    done.set()
    thread.join()


# ---- targets ---------------------------------------------------------------------------------------------------------------

TIMES = {"us": exact(2.0), "x": exact(4.0), "y": exact(5.0), "limit": exact(1.0)}


@pytest.mark.parametrize(
    "target, value, verdict",
    [
        (Target("w", "us", 0.5, ("x",)), 0.5, "us <= 0.5 of x: met (0.50)"),
        (Target("w", "us", 0.4, ("y", "x")), 0.5, "us <= 0.4 of the best of y, x: MISSED by 25% (0.50)"),
        (Target("w", "us", 0.4, ("y", "absent")), 0.4, "us <= 0.4 of the best of y, absent: met (0.40)"),
        (Target("w", "us", 0.5, ("limit",), "share"), 0.5, "us >= 0.5 of limit: met (0.50)"),
        (Target("w", "us", 0.8, ("limit",), "share"), 0.5, "us >= 0.8 of limit: MISSED by 38% (0.50)"),
        (Target("w", "us", 1.6, kind="most"), 2.0, "us <= 1.6e+03 ms: MISSED by 25% (2e+03 ms)"),
        (Target("w", "us", 2.0, kind="most"), 2.0, "us <= 2e+03 ms: met (2e+03 ms)"),
        (Target("w", "us", 0.5, ("absent",)), None, None),
        (Target("w", "absent", 0.5, ("x",)), None, None),
    ],
)
def test_a_target_is_met_or_missed_by_so_much(target: Target, value: float | None, verdict: str | None) -> None:
    assert target.measured(TIMES) == value
    assert target.verdict(TIMES) == verdict


def group(name: str, mine: float, **more: Any) -> Group:
    row = Row("a row", {FXGRAD: summary([mine] * 7), JAX: summary([1.0, 2.0, 3.0])}, [Target("work", FXGRAD, 0.5, (JAX,))], 16)
    return Group(name, "Title", FXGRAD, 2, [row], ["A remark."], {"numpy": "2"}, **more)


def test_the_summary_shows_the_worst_of_all_rows_with_one_target() -> None:
    good, bad, absent = group("a", 0.5), group("b", 1.5), group("c", 1.0)
    absent.rows = [Row("no peer", {FXGRAD: exact(1.0)}, [Target("other", FXGRAD, 0.5, (JAX,))])]
    lines, met, count = report.summary_table([(good, WHERE), (bad, WHERE), (absent, WHERE)])
    assert (met, count) == (0, 2)
    assert (
        lines[2] == "| work | fxgrad jit <= 0.5 of jax jit | 0.75, worst of 2 (a row); 1 met | **missed by 50%** | 2026-01-02 |"
    )
    assert lines[3] == "| other | fxgrad jit <= 0.5 of jax jit | not measured | | |"
    assert report.summary_table([(good, WHERE)])[1:] == (1, 1)


# ---- files -----------------------------------------------------------------------------------------------------------------


def test_results_survive_the_trip_through_json() -> None:
    before = group("a", 0.5, limits={"triad": 1e9}, unit="B")
    assert Group.from_json(json.loads(json.dumps(before.as_json()))) == before


def test_the_page_keeps_the_results_of_earlier_runs(tmp_path: Path) -> None:
    report.write([group("first", 0.5)], WHERE, tmp_path)
    report.write([group("second", 1.5)], WHERE, tmp_path)
    page = (tmp_path / "README.md").read_text()
    assert page.count("## Title, 2 threads") == 2
    assert "## Targets: 0 of 1 met" in page
    assert "| a row | 500 ms | 2 s (0.25) |" in page
    assert "| a row | 1.5 s | 2 s (0.75) |" in page
    assert "Median of 3 interleaved blocks" in page
    assert "up to 1.5 times its median" in page
    assert "25% busy before it began" in page
    assert "- A remark." in page


def test_tables_that_are_no_more_go_and_what_others_keep_stays(tmp_path: Path) -> None:
    report.write([group("old", 0.5), group("kept", 0.5)], WHERE, tmp_path)
    for name in ("old.svg", "old_limit.svg", "kept.svg", "frontier.svg"):
        (tmp_path / name).touch()
    (tmp_path / "frontier.json").write_text("{}")
    forget({"old"}, tmp_path)
    assert {p.name for p in tmp_path.iterdir()} == {"README.md", "kept.json", "kept.svg", "frontier.json", "frontier.svg"}
    assert (tmp_path / "README.md").read_text().count("## Title") == 1


def test_a_busy_machine_is_noticed() -> None:
    stop = threading.Event()

    def spin() -> None:
        while not stop.is_set():
            pass

    thread = threading.Thread(target=spin)
    thread.start()
    share = report.busy(0.2)
    stop.set()
    thread.join()
    assert share is None or 0.5 / (os.cpu_count() or 1) < share <= 1.0  # one core at least, less the sampling's error


def test_tables_say_what_was_reached_where_the_machine_has_a_limit() -> None:
    plain, limited = group("a", 0.5), group("a", 0.5, limits={"triad": 1e9})
    assert "GB/s" not in report.text_table(plain)
    assert "(0.25, 0.0 GB/s)" in report.text_table(limited)


@pytest.mark.parametrize(
    "value, unit, text",
    [(2.5e-6, "s", "2.5 us"), (0.0, "s", "0 us"), (1234.0, "s", "1234 s"), (5e6, "B", "5 MB"), (2e10, "B/s", "20 GB/s")],
)
def test_quantities_have_three_digits(value: float, unit: str, text: str) -> None:
    assert report.quantity(value, unit) == text


def test_pictures_are_drawn_if_matplotlib_is_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with_limit = group("a", 0.5)
    with_limit.rows[0].times[run.BANDWIDTH] = exact(0.4)
    draw_all([with_limit, group("b", 0.5)], tmp_path)
    names = sorted(path.name for path in tmp_path.glob("*.svg"))
    if importlib.util.find_spec("matplotlib"):
        assert names == ["a.svg", "a_limit.svg", "b.svg"]
    else:
        assert names == []
        assert "matplotlib is not installed" in capsys.readouterr().out


# ---- peers -----------------------------------------------------------------------------------------------------------------


def test_every_library_is_held_to_the_threads() -> None:
    one, two = environment(1), environment(2)
    assert one["OMP_NUM_THREADS"] == one["OPENBLAS_NUM_THREADS"] == one["FXGRAD_NUM_THREADS"] == "1"
    assert two["OMP_NUM_THREADS"] == two["OPENBLAS_NUM_THREADS"] == two["FXGRAD_NUM_THREADS"] == "2"
    assert "multi_thread_eigen=false" in one["XLA_FLAGS"]


def test_a_missing_peer_is_left_out_with_a_remark(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise ImportError(name)

    monkeypatch.setattr(importlib, "import_module", missing)
    peers = Peers(1)
    assert peers.jax is None
    assert peers.jax is None
    assert peers.torch_compile() is None
    assert peers.notes == ["jax is not installed and left out.", "torch is not installed and left out."]


def test_without_a_compiler_there_is_no_torch_compile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    peers = Peers(1, found={"torch": SimpleNamespace()})
    assert peers.torch_compile() is None
    assert peers.torch_compile() is None
    assert peers.notes == ["torch.compile needs a C++ compiler; there is none here, and the column is left out."]


def test_results_of_any_library_are_compared() -> None:
    import torch

    mine = {"b": np.array([1.0, 2.0]), "a": (np.float32(3.0), [np.zeros(0)])}
    assert [x.tolist() for x in leaves(mine)] == [3.0, [], [1.0, 2.0]]
    theirs = [torch.tensor(3.0, requires_grad=True), torch.zeros(0), torch.tensor([1.0, 2.5])]
    assert difference(mine, theirs) == 0.2
    assert difference(mine, mine) == 0.0
    assert difference(np.zeros(2), np.zeros(3)) == np.inf
    assert difference([np.zeros(2)], [np.zeros(2), np.zeros(2)]) == np.inf
    assert np.isnan(difference(np.array([np.nan]), np.array([1.0])))


def tiny(**found: Any) -> run.Run:
    made = run.Run(1, 1, tiny=True)
    made.peers.found |= found
    return made


@pytest.mark.parametrize("wrong", [1.1, np.nan])
def test_contenders_that_disagree_are_not_timed(wrong: float) -> None:
    with pytest.raises(run.WrongResult, match="label: y and x differ by"):
        tiny().agreed("label", {"x": lambda: np.array([1.0]), "y": lambda: np.array([wrong])}, 1e-3)


def test_a_peer_that_raises_is_left_out_but_fxgrad_is_not() -> None:
    def fails() -> Any:
        raise RuntimeError

    made = tiny()
    assert list(made.agreed("label", {"x": lambda: 1.0, "y": fails}, 0.0)) == ["x"]
    assert made.peers.notes == ["label: y is left out, it raised RuntimeError."]
    with pytest.raises(RuntimeError):
        made.agreed("label", {FXGRAD: fails, "x": lambda: 1.0}, 0.0)


# ---- cases -----------------------------------------------------------------------------------------------------------------


@pytest.fixture
def no_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measuring the machine takes seconds; its kernels have tests of their own."""
    found = limits.Limits(1e10, 1e10, *[dict.fromkeys(("float32", "float64"), 1e11)] * 2)
    for module in (run, importlib.import_module("bench.cases.machine")):
        monkeypatch.setattr(module, "measured_limits", lambda threads: found)


@pytest.mark.usefixtures("no_limits")
@pytest.mark.parametrize("name", IN_PROCESS)
def test_every_case_runs_without_peers(name: str, tmp_path: Path) -> None:
    made = tiny(**dict.fromkeys(("jax", "torch", "numexpr", "autograd", "numba")))
    groups = importlib.import_module(f"bench.cases.{name}").measure(made)
    for found in groups:
        assert found.rows
        assert all(t.median > 0 for row in found.rows for t in row.times.values())
        assert all(target.contender in row.times for row in found.rows for target in row.targets)
        assert Group.from_json(json.loads(json.dumps(found.as_json()))) == found
        assert report.text_table(found)
    report.write(groups, WHERE, tmp_path)


def test_thirty_programs_are_judged_together() -> None:
    """A half of JAX's time in the mean of two, and no more than JAX's in the slower."""
    made, found = tiny(), group("a", 0.5)
    found.rows = [Row(name, {FXGRAD: exact(mine), JAX: exact(4.0)}) for name, mine in (("x", 1.0), ("y", 4.0))]
    programs.add_targets(made, found, list(found.rows))
    mean, place = found.rows[2:]
    assert mean.targets[0].verdict(mean.times) == "fxgrad jit <= 0.5 of jax jit: met (0.50)"
    assert place.times == found.rows[1].times
    assert place.targets[0].work == "gradients of NumPy programs, 2 of 2"
    programs.add_targets(made, alone := group("b", 0.5), [Row("x", {FXGRAD: exact(1.0)})])
    assert len(alone.rows) == 1


@pytest.mark.parametrize("refused", [False, True])
def test_numba_gets_every_function_of_a_program_as_it_stands(refused: bool) -> None:
    class NumbaError(Exception):
        pass

    taken: list[str] = []

    def njit(f: Any) -> Any:
        def compiled(*args: Any) -> Any:
            if refused:
                raise NumbaError
            taken.append(f.__name__)
            return f(*args)

        return compiled

    made = tiny(numba=SimpleNamespace(njit=njit, core=SimpleNamespace(errors=SimpleNamespace(NumbaError=NumbaError))))
    args = problem_of("gauss_seidel")
    f = programs.numba_version(made, "gauss_seidel", args)
    if refused:
        assert f is None
    else:
        assert f is not None
        assert f() == load("gauss_seidel").run(*args)
        assert taken == 2 * ["run", *4 * ["sweep"]]
    assert programs.numba_version(tiny(numba=None), "gauss_seidel", args) is None


def test_the_block_is_the_same_for_everybody() -> None:
    import autograd
    import torch

    problem = Problem((2, 4, 8, 2), "float64")
    steps = [
        problem.fxgrad(),
        problem.fxgrad(jit=False),
        problem.torch(torch),
        problem.torch(torch, fused=True),
        problem.autograd(autograd),
    ]
    first = steps[0]()
    assert len(leaves(first)) == 14
    assert max(difference(step(), first) for step in steps) < 1e-12


def test_the_blocks_flops_are_those_of_its_products() -> None:
    b, t, d, heads = 2, 4, 8, 2
    linear = sum(2 * b * t * d * width for width in (3 * d, d, 4 * d, 4 * d))
    attention = 2 * (2 * b * heads * t * t * (d // heads))
    assert Problem((b, t, d, heads), "float32").flops == 3 * (linear + attention)


@pytest.mark.slow
def test_first_calls_are_measured_in_fresh_processes() -> None:
    made = tiny(jax=None)
    found = startup.first_calls(made)
    columns = {startup.COLD, startup.WARM}
    assert all(set(row.times) == columns for row in found.rows)
    first = next(row for row in found.rows if row.label == "the block's first call")
    # What it compiles the first time it does not compile again: this is a factor, not some per cent.
    assert first.times[startup.WARM].median < first.times[startup.COLD].median


@pytest.mark.slow
def test_memory_is_measured_above_the_arguments(tmp_path: Path) -> None:
    """The script's own step replaced by one that needs a known amount."""
    program = "import numpy; step = lambda: numpy.ones(1 << 20).sum()"
    script = footprint.SCRIPT.format(threads=1, small=(1, 4, 8, 2), large=(1, 4, 8, 2), program=program)
    # A page that was free in the heap may be taken, and the kernel counts pages in batches of up to 64 a thread.
    assert (8 << 20) - (256 << 10) <= fresh(script, str(tmp_path)) < 10 << 20


def test_a_process_that_fails_says_why(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        fresh("1 / 0", str(tmp_path))
