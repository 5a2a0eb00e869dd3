"""REPORT.md says what the JSON files say."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from bench import report_page
from bench.experiments import EXPERIMENTS
from bench.report_page import ROOT, Report, report

DOCS = ROOT / "docs"


@pytest.fixture(scope="module")
def results() -> Report:
    return Report(DOCS)


def test_the_report_is_generated() -> None:
    written, made = (ROOT / "REPORT.md").read_text(), report()
    if written != made:
        pairs = enumerate(zip([*written.split("\n"), "(end)"], [*made.split("\n"), "(end)"], strict=False), 1)
        line, (old, new) = next((i, p) for i, p in pairs if p[0] != p[1])
        pytest.fail(f"REPORT.md is not what `python -m bench.report_page` writes; line {line}:\n  {old}\nshould be\n  {new}")


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    for folder in ("experiments", "benchmarks"):
        shutil.copytree(DOCS / folder, tmp_path / folder, ignore=shutil.ignore_patterns("*.svg", "*.md"))
    shutil.copy(DOCS / "numerics.json", tmp_path)
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
