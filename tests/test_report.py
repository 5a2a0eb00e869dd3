"""REPORT.md, and the other pages where they quote figures, say what the JSON files say."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

import fxgrad as fx
from bench import everything, figures, report_page
from bench.experiments import EXPERIMENTS
from bench.peers_picture import peers_picture
from bench.report_page import PICTURE, ROOT, Report, filled, pages_with_figures, report
from bench.timing import exact

DOCS = ROOT / "docs"


@pytest.fixture(scope="module")
def results() -> Report:
    return Report(DOCS)


def test_the_report_is_generated() -> None:
    same(ROOT / "REPORT.md", report())


def same(page: Path, made: str) -> None:
    written = page.read_text()
    if written != made:
        pairs = enumerate(zip([*written.split("\n"), "(end)"], [*made.split("\n"), "(end)"], strict=False), 1)
        line, (old, new) = next((i, p) for i, p in pairs if p[0] != p[1])
        pytest.fail(f"{page.name} is not what `python -m bench.report_page` writes; line {line}:\n  {old}\nshould be\n  {new}")


def test_the_readmes_picture_is_generated(results: Report) -> None:
    same(PICTURE, peers_picture(results.benchmarks))


@pytest.mark.parametrize("page", pages_with_figures(), ids=lambda p: p.name)
def test_figures_in_pages_are_generated(page: Path, results: Report) -> None:
    same(page, filled(page.read_text(), results))


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    for folder in ("experiments", "benchmarks"):
        shutil.copytree(DOCS / folder, tmp_path / folder, ignore=shutil.ignore_patterns("*.svg", "*.md"))
    for name in ("numerics.json", "report.json", "explain.json", "newcomer.json"):
        shutil.copy(DOCS / name, tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    "name, key", [("e8", "ratio_large"), ("e6", "N* fxgrad jit"), ("e4", "saving"), ("checks", "parity32"), ("roofline", "rate")]
)
def test_a_figure_that_changes_changes_the_report(copied: Path, name: str, key: str) -> None:
    before = report(copied)
    path = copied / "experiments" / f"{name}.json"
    data = json.loads(path.read_text())
    data["figures"][key] *= 7.0
    path.write_text(json.dumps(data))
    assert report(copied) != before == (ROOT / "REPORT.md").read_text()


def test_figures_predictions_and_verdicts_are_put_in(results: Report) -> None:
    e8 = results.result("e8")
    said = report(DOCS, "{{e8:ratio_large x}} {{e8?ratio_large_source}} {{e8!ratio_large_source}}")
    measured, outcome = e8.figures["ratio_large"], next(o for o in e8.outcomes if o.prediction.name == "ratio_large_source")
    assert said.split() == [f"{measured:.3g}x", "2x", "held" if outcome.holds else "**falsified**"]


def test_parts_can_depend_on_a_figure(results: Report) -> None:
    template = "{{if e8:large > 1}}yes{{else}}no{{end}} {{if e8:large < 1}}yes{{else}}no{{end}} {{if e8:large < 1}}yes{{end}}"
    assert report(DOCS, template) == "yes no\n"


@pytest.mark.parametrize(
    "text, error, message",
    [
        ("{{e8:nothing}}", KeyError, "e8 has no figure 'nothing'"),
        ("{{e99:ratio}}", KeyError, "python -m bench.experiments e99"),
        ("{{if e8:large}}x{{end}}", ValueError, "not a condition"),
        ("{{nonsense}}", AttributeError, "say_nonsense"),
        ("{{nothing | x | y}}", KeyError, "docs/benchmarks has no nothing.json"),
        ("{{memory | n = 3 | numpy}}", KeyError, "memory has no row 'n = 3'"),
        ("{{memory | n = 1e7 | abacus}}", KeyError, "has no 'abacus'"),
    ],
)
def test_a_template_that_asks_for_what_is_not_there_is_an_error(text: str, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        report(DOCS, text)


def test_it_is_about_what_was_asked_for() -> None:
    text = (ROOT / "REPORT.md").read_text()
    assert "{{" not in text
    headings = [line.removeprefix("## ") for line in text.split("\n") if line.startswith("## ")]
    wanted = ["E8", "E6", "Phase I: ", "Phase II: ", "Predictions that failed", "The source's own numbers", "Limits"]
    assert all(any(h.startswith(w) for h in headings) for w in wanted)
    assert all(f"python -m bench.experiments {name}" in text for name in EXPERIMENTS)
    assert len(Report(DOCS).say_falsified().split("\n")) > 2, "no prediction was falsified, or they were taken back"


def test_it_warns_of_runs_that_are_worth_little(copied: Path) -> None:
    path = copied / "experiments" / "e6.json"
    data = json.loads(path.read_text())
    for quick, busy, words in ((True, 0.0, "Test-size runs"), (False, 0.5, "kept the machine busy")):
        data["quick"], data["machine"]["busy"] = quick, busy
        path.write_text(json.dumps(data))
        assert words in report_page.Report(copied).say_banner()


# ---- other pages -------------------------------------------------------------------------------------------------------------


def test_what_stands_between_the_comments_is_written_anew(results: Report) -> None:
    page = "It takes <!-- figures: e8:large s -->a while<!-- end -->, as\n<!-- figures: counts -->\nold\n<!-- end -->\nsay."
    made = filled(page, results)
    seconds = report(DOCS, "{{e8:large s}}").strip()
    block = f"<!-- figures: counts -->\n\n{results.say_counts()}\n\n<!-- end -->"
    assert made == f"It takes <!-- figures: e8:large s -->{seconds}<!-- end -->, as\n{block}\nsay."
    assert filled(made, results) == made


@pytest.mark.parametrize(
    "page, message",
    [
        ("a <!-- figures: counts -->1", "1 figures begin and 0 end"),
        ("a <!-- figures: counts -->1 and <!-- figures: counts -->2<!-- end -->", "has no <!-- end -->"),
        ("<!-- figures: counts -->1<!-- end --> of them", "do not begin one"),
        ("there are <!-- figures: peers -->many<!-- end -->", "lines of their own"),
    ],
)
def test_comments_that_do_not_fit_are_an_error(page: str, message: str, results: Report) -> None:
    with pytest.raises(ValueError, match=message):
        filled(page, results)


def test_a_benchmark_is_quoted_in_its_unit_or_as_a_ratio(results: Report) -> None:
    times = results.benchmarks.row("memory", "n = 1e7").times
    ours, numpy = times["fxgrad jit"].median, times["numpy"].median
    said = report(DOCS, "{{memory | n = 1e7 | fxgrad jit}}, {{memory | n = 1e7 | numpy / fxgrad jit}}").strip()
    assert said == f"{ours * 1e3:.3g} ms, {numpy / ours:.3g}x"


def test_the_report_shown_in_explain_is_of_this_compiler() -> None:
    """Its kernels and what its steps do; times are of the day it was made."""
    page, stored = (DOCS / "explain.md").read_text(), json.loads((DOCS / "explain.json").read_text())["text"]
    names: dict[str, Any] = {}
    exec(page.split("```python\n")[1].split("\nrng")[0], names)
    avals = [fx.Aval(shape, "float32") for shape in ((512, 256), (256, 512), (512,))]
    text = fx.jit(names["layer"]).lower(*avals).compile().as_text()
    assert re.findall(r"^kernel .*?^}$", stored, re.MULTILINE | re.DOTALL) == text.split("\n\n")[:3]
    does = [line.split("  (")[0].removeprefix("kernel: ") for line in text.split("\n") if line.startswith("kernel: ")]
    assert re.findall(r"^ +does +(.*) \(K.*\)$", stored, re.MULTILINE) == does


def test_a_whole_column_is_quoted_by_its_range(copied: Path) -> None:
    path = copied / "benchmarks" / "loops.json"
    data = json.loads(path.read_text())
    for row, seconds in zip(data["group"]["rows"], (3.0, 1.0, 2.0), strict=True):
        row["times"]["fxgrad jit"]["median"] = seconds
    path.write_text(json.dumps(data))
    assert report(copied, "{{spread loops fxgrad jit}}") == "1 s to 3 s, half of them at most 2 s\n"


def test_the_table_of_peers_is_the_benchmarks(copied: Path) -> None:
    def cells() -> list[str]:
        lines = Report(copied).say_peers().split("\n")
        return next(line for line in lines if line.startswith("| exp")).split(" | ")

    path = copied / "benchmarks" / "math.json"
    data = json.loads(path.read_text())
    times = next(row["times"] for row in data["group"]["rows"] if row["label"] == "exp float32 [-10, 10]")
    for who, factor in (("jax jit", 0.5), ("torch eager", 1.0), ("numpy", 12.34)):
        times[who]["median"] = factor * times["fxgrad jit"]["median"]
    path.write_text(json.dumps(data))
    assert cells()[2:] == ["**0.50x**", "1.00x", "12.3x", "- |"]  # bold: faster than ours; no autograd there


def test_of_several_forms_of_a_peer_the_best_counts() -> None:
    assert figures.best({"torch eager": exact(3.0), "torch compiled": exact(2.0), "jax jit": exact(1.0)}, "torch") == 2.0
    assert figures.best({"jax jit": exact(1.0)}, "torch") is None


@pytest.mark.parametrize("part", everything.PARTS)
def test_the_parts_of_make_report_can_be_run(part: str) -> None:
    for program, *options in [c[c[0] == "-m" :] for c in everything.PARTS[part]]:
        path = ROOT / (program if program.endswith(".py") else program.replace(".", "/"))
        source = (
            path if path.is_file() else path.with_suffix(".py") if path.with_suffix(".py").is_file() else path / "__main__.py"
        )
        text = source.read_text() + (ROOT / "examples" / "zoo.py").read_text() * ("train_" in program)
        assert all(f'"{option}"' in text for option in options if option.startswith("--")), f"{program} has no {options}"


def test_what_a_part_took_is_kept_when_the_next_one_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = {"one": [["-c", "pass"]], "two": [["-c", "raise SystemExit(3)"]], "three": [["-c", "pass"]]}
    monkeypatch.setattr(everything, "PARTS", parts)
    monkeypatch.setattr(everything, "TIMES", tmp_path / "report.json")
    with pytest.raises(subprocess.CalledProcessError):
        everything.main([])
    assert list(json.loads((tmp_path / "report.json").read_text())) == ["one"]
