"""The laboratory: what its parts do, that quick runs work, and that what is stored is whole. No time is asserted."""

from __future__ import annotations

import ast
import json
import math
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import fxgrad as fx
from bench.experiments import EXPERIMENTS, FOLDER, base, e6, e7, e8, e9, inside, notebooks, pages, processes
from bench.experiments.base import Outcome, Prediction, Result, Table, shown
from bench.experiments.lab import best, module
from fxgrad.compile import layout
from fxgrad.testing.bits import assert_same_bits

ROOT = Path(__file__).resolve().parents[1]
RUN = ("e1", "e8")  # in a test; all others by `python -m bench.experiments all --quick`
SCHEMA = {
    "name": str, "title": str, "question": str, "derivation": str, "quick": bool, "threads": int, "machine": dict,
    "versions": dict, "constants": dict, "predictions": list, "predicted": str, "measured": str, "seconds": float,
    "tables": dict, "figures": dict, "explanation": list, "notes": list,
}  # fmt: skip


def check(data: dict[str, Any]) -> Result:
    """The schema of a stored result, and what must agree within it."""
    assert list(data) == list(SCHEMA)
    for key, kind in SCHEMA.items():
        assert isinstance(data[key], kind), key
    for p in data["predictions"]:
        assert set(p) == {"name", "says", "value", "unit", "why", "factor", "kind", "source"}
        assert math.isfinite(p["value"]) and math.isfinite(data["figures"][p["name"]]), p["name"]
    assert data["predictions"] and data["derivation"].strip() and data["explanation"] and data["tables"]
    assert data["predicted"] <= data["measured"], "predictions come before the measurement"
    assert {"processor", "cores", "busy", "date"} <= set(data["machine"])
    assert "fxgrad" in data["versions"]
    for table in data["tables"].values():
        assert table["rows"] and all(len(row) == len(table["columns"]) for row in table["rows"])
    return Result(**{**data, "predictions": [Prediction(**p) for p in data["predictions"]], "tables": {}})


# ---- parts -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kind, value, measured, holds",
    [
        ("about", 2.0, 2.4, True),
        ("about", 2.0, 1.61, True),
        ("about", 2.0, 2.6, False),
        ("about", 2.0, 1.5, False),
        ("about", 2.0, math.nan, False),
        ("at most", 1.0, 1.0, True),
        ("at most", 1.0, 1.01, False),
        ("at least", 1.0, 1.0, True),
        ("at least", 1.0, 0.99, False),
    ],
)
def test_a_prediction_holds_within_the_range_it_gave(kind: str, value: float, measured: float, holds: bool) -> None:
    p = Prediction("a", "of a", value, "x", "because", 1.25, kind)
    assert p.holds(measured) is holds
    assert Outcome(p, measured).holds is holds


@pytest.mark.parametrize(
    "value, unit, text",
    [
        (2.0, "x", "2x"), (3.3e6, "x", "3.3e6x"), (0.25, "%", "25 %"), (1.5e-3, "s", "1.5 ms"), (2e-8, "s", "20 ns"),
        (12e9, "B/s", "12 GB/s"), (10_000_000, "", "1e7"), (1000, "", "1000"), (1.2e-9, "", "1.2e-9"), (0.0, "", "0"),
        (None, "s", "-"), ("text", "s", "text"),
    ],
)  # fmt: skip
def test_quantities_are_written_for_people(value: Any, unit: str, text: str) -> None:
    assert shown(value, unit) == text


def result(**more: Any) -> Result:
    predictions = [
        Prediction("a", "of a", 2.0, "x", "because"),
        Prediction("b", "of b", 1.0, "", "so", kind="at most", source="p13"),
    ]
    table = Table("Title", [("N", ""), ("time", "s")], [[1, 1e-6], [2, None]])
    given: dict[str, Any] = {
        "figures": {"a": 2.1, "b": 3.0}, "tables": {"t": table}, "explanation": ["Because."], "measured": "2026-01-02",
    }  # fmt: skip
    where = {"cores": 2, "processor": "P", "busy": 0.0, "date": "2026-01-02"}
    given |= {"quick": False, "threads": 1, "machine": where, "versions": {"fxgrad": "1"}, "constants": {}}
    return Result(
        name="e9", title="T", question="Q?", derivation="D", predictions=predictions, predicted="2026-01-01", **(given | more)
    )


def test_a_result_survives_the_trip_through_json(tmp_path: Path) -> None:
    before = result()
    before.write(tmp_path)
    assert Result.read(tmp_path / "e9.json") == before
    with pytest.raises(ValueError, match="Out of range float values"):  # NaN is no JSON, and no figure
        result(figures={"a": math.nan, "b": 1.0}).write(tmp_path)


def test_a_page_shows_what_was_predicted_and_what_became_of_it() -> None:
    page = result().markdown(["e9.svg"])
    assert "| of a | 2x | 1.6x to 2.5x | 2.1x | held |" in page
    assert "| of b (p13) | 1 | at most 1 | 3 | **falsified** |" in page
    assert "| 2 | - |" in page and "![T](e9.svg)" in page and "test-size" not in page
    assert "test-size" in result(quick=True).markdown([])
    busy = {"cores": 2, "processor": "P", "busy": 0.5, "date": "2026-01-02"}
    assert "kept the machine busy" in result(machine=busy).markdown([]) and "kept the machine busy" not in page
    assert pages.falsified([result()]).rows == [["E9", "of b", "1", "3"]]
    assert pages.summary([result()]).rows[0][2] == "1 of 2"


def test_a_bar_within_a_cell_does_not_end_it() -> None:
    assert Table("", [("a", "")], [["x | y"]]).markdown()[-1] == "| x \\| y |"
    with pytest.raises(AssertionError, match="a row of 2"):
        Table("short", [("a", "")], [[1, 2]])


def test_best_takes_the_fastest_and_does_not_time_what_comes_before() -> None:
    import time

    waits = iter([0.02, 0.002, 0.02])
    found = best(lambda: time.sleep(next(waits)), 3, lambda: time.sleep(0.01))
    assert found >= 0.002  # a busy machine may only make it longer
    assert next(waits, None) is None


# ---- programs compiled in other ways ---------------------------------------------------------------------------------------


def chain(a: Any, b: Any, c: Any) -> Any:
    return np.maximum(a * b + c, 0)


def test_ways_to_compile_differ_in_steps_and_memory_but_in_no_bit() -> None:
    args = [np.linspace(-1, k, 70_000, dtype=np.float32) for k in (1, 2, 3)]
    streams = layout._STREAM
    fused, unfused = inside.compiled(chain, args), inside.compiled(chain, args, fusion=False)
    apart = inside.compiled(chain, args, fusion=False, reuse=False)
    streamed = inside.compiled(chain, args, stream=0)
    assert streams == layout._STREAM
    assert [len(e.steps) for e in (fused, unfused, apart, streamed)] == [1, 3, 3, 1]
    assert unfused.memory_analysis().temp_bytes == 0
    assert apart.memory_analysis().temp_bytes > 0
    assert e8.in_place(unfused) and not e8.in_place(apart)
    for other in (unfused, apart, streamed):
        assert_same_bits(other(*args), fused(*args))


def test_captured_arrays_are_passed_along() -> None:
    table = np.arange(3.0)
    executable, arrays = inside.built(lambda x: x + table, [np.ones(3)])
    assert_same_bits(executable(*arrays), [np.ones(3) + table])
    with pytest.raises(AssertionError, match="captures"):
        inside.compiled(lambda x: x + table, [np.ones(3)])


def test_what_is_alive_at_one_time_is_read_off_the_plan() -> None:
    n = 10_000
    run = inside.compiled(lambda x: abs(x * 2 + 1), [np.ones(n)], fusion=False, reuse=False)
    assert e9.alive(run) == 2 * 8 * n  # at the second step: what it reads and what it writes; the last writes the result


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="peak memory is read from /proc")
def test_the_peak_of_a_process_is_at_least_what_its_call_allocates() -> None:
    (found,) = processes.peak("e9", ["step('chain', True, False)"], 1)
    k, n = e9.CHAIN[True], e9.ELEMENTS[True]
    assert found is not None and found >= (k - 1) * 4 * n


# ---- derivations -----------------------------------------------------------------------------------------------------------


def model(read: float, copy: float, call: float = 0.0, kernel: float = 0.0, peak: float = 1e18) -> e8.Model:
    rates = {"read": read, "copy": copy}
    constants: Any = SimpleNamespace(
        rate=lambda size, form, threads: rates[form], call=call, kernel=kernel, stores=(1.0, 1.0),
        limits=lambda threads: SimpleNamespace(peak_float32=peak),
    )  # fmt: skip
    return e8.Model(constants, 1)


def ratio(m: e8.Model, n: int, in_place: bool = False) -> float:
    return m.unfused(n, in_place) / m.fused(n)


def test_the_model_of_fusion_gives_two_where_all_bytes_are_alike() -> None:
    assert ratio(model(1e10, 1e10), 10**6) == pytest.approx(2.0)


def test_dear_writes_move_the_ratio_towards_three_and_launch_towards_one() -> None:
    assert ratio(model(1e12, 1e10), 10**6) == pytest.approx(3.0, rel=0.05)
    assert ratio(model(1e10, 1e10, call=1.0), 10) == pytest.approx(1.0)
    assert ratio(model(1e10, 1e10, peak=1.0), 10**6) == pytest.approx(1.0)  # arithmetic is all, and is the same
    assert ratio(model(1e10, 1e10), 10**6, in_place=True) < 2.0


def test_the_fit_finds_dispatch_and_price_of_an_element() -> None:
    n = [1.0, 10.0, 100.0, 1000.0, 10_000.0]
    t0, s = e6.line(n, [1e-6 + 2e-9 * x for x in n])
    assert t0 == pytest.approx(1e-6) and s == pytest.approx(2e-9)
    assert e6.worst(n, [1e-6 + 2e-9 * x for x in n], t0, s) == pytest.approx(0.0, abs=1e-9)


def test_compiling_has_paid_when_both_have_cost_the_same() -> None:
    k = e7.paid(first=1.0, eager_first=0.0, eager=3e-3, compiled=1e-3)
    assert (k - 1) * 3e-3 == pytest.approx(1.0 + (k - 1) * 1e-3)
    assert e7.paid(first=0.1, eager_first=0.2, eager=3e-3, compiled=1e-3) == 1.0


def test_a_chain_of_k_operations_is_k_operations() -> None:
    assert all(len(inside.program_of(e8.chain(k), [np.ones(3, np.float32)]).eqns) == k for k in (1, 2, 7))


@pytest.mark.parametrize("name", e7.PROGRAMS)
def test_programs_that_are_timed_agree_compiled_and_eager(name: str) -> None:
    f, args = e7.problem(name)
    assert_same_bits(fx.tree.leaves(fx.jit(f)(*args)), fx.tree.leaves(f(*args)))


# ---- runs ------------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("torch")
    out = tmp_path_factory.mktemp("experiments")
    command = [sys.executable, "-m", "bench.experiments", *RUN, "--quick", "--out", str(out)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "predicted:" in done.stdout and "Failed" not in done.stdout
    return out


@pytest.mark.parametrize("name", RUN)
def test_an_experiment_leaves_numbers_a_page_and_a_picture(quick: Path, name: str) -> None:
    found = check(json.loads((quick / f"{name}.json").read_text()))
    assert found.quick
    page = (quick / f"{name}.md").read_text()
    assert page.startswith(f"# {name.upper()}: {module(name).TITLE}") and "## Explained" in page
    assert (quick / f"{name}.svg").read_text().count("<svg") == 1
    assert f"({name}.md)" in (quick / "README.md").read_text()


def test_an_unknown_experiment_is_refused() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "bench.experiments", "e11"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2 and "invalid choice: 'e11'" in done.stderr


def test_a_figure_that_was_predicted_must_be_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    from bench.experiments import __main__ as program

    forgetful: Any = SimpleNamespace(
        TITLE="T", QUESTION="Q", DERIVATION="D", predict=lambda lab: [Prediction("a", "of a", 1.0, "", "")],
        measure=lambda lab, result: None, explain=lambda result: [],
    )  # fmt: skip
    monkeypatch.setattr(program, "module", lambda name: forgetful)
    with pytest.raises(AssertionError, match="predicts what it does not measure: a"):
        program.run("forgetful", True, 1, {})


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_experiment_has_all_parts(name: str) -> None:
    e = module(name)
    parts: list[Callable[..., Any]] = [e.predict, e.measure, e.explain, e.draw]
    assert all(callable(part) for part in parts)
    assert e.TITLE and e.QUESTION.endswith("?") and len(e.DERIVATION.strip()) > 100


# ---- what is stored --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_stored_results_are_whole_and_their_pages_say_what_they_say(name: str) -> None:
    check(json.loads((FOLDER / f"{name}.json").read_text()))
    found = Result.read(FOLDER / f"{name}.json")
    pictures = pages.pictures(name, FOLDER)
    assert (FOLDER / f"{name}.md").read_text() == found.markdown(pictures)
    assert bool(pictures) == (name != "checks")
    assert all(p.unit in base.UNITS for p in found.predictions)


def test_the_index_is_of_the_stored_results(tmp_path: Path) -> None:
    before = (FOLDER / "README.md").read_text()
    for path in FOLDER.glob("*.json"):
        (tmp_path / path.name).write_text(path.read_text())
    pages.write_index(tmp_path)
    assert (tmp_path / "README.md").read_text() == before


@pytest.mark.parametrize("name", notebooks.NAMES)
def test_notebooks_have_been_executed_without_an_error(name: str) -> None:
    book = json.loads((ROOT / "docs" / "notebooks" / f"{name}.ipynb").read_text())
    sources = ["".join(cell["source"]) for cell in book["cells"]]
    assert sources == [source for _, source in notebooks.cells(name)], "python -m bench.experiments.notebooks makes them anew"
    code = [cell for cell in book["cells"] if cell["cell_type"] == "code"]
    outputs = [output for cell in code for output in cell["outputs"]]
    assert all(cell["outputs"] for cell in code)
    assert not [output for output in outputs if output["output_type"] == "error"]
    assert any("image/svg+xml" in output.get("data", {}) for output in outputs)
    for cell in code:
        ast.parse("".join(cell["source"]))
