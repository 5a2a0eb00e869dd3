"""Every figure of REPORT.md and of the other pages, from the JSON files of docs: `python -m bench.report_page`.

The text of REPORT.md is bench/report_template.md, in which {{...}} stands for what the files say:

    {{e8:ratio_large x}}     a figure of an experiment, in a unit (x, %, s, B, B/s, flop/s; none: a plain number)
    {{e8?ratio_large}}       what was predicted for it, in its own unit
    {{e8!ratio_large}}       held or falsified
    {{table e8 ladder}}      a table; {{outcomes e8}}: predictions beside measurements; {{explanation e8}}: the explanation
    {{math | exp float32 [-10, 10] | fxgrad jit}}    a benchmark's: table | row | contender; `numpy / fxgrad jit` how many times
    {{summary}} {{falsified}} {{targets}} {{machine}} {{banner}} {{commands}} {{remade}} {{newcomer}} {{import}} {{ulp}}
    {{peers}} {{comparison}} {{explained}} {{spread ...}}   see below
    {{if e8:ratio_large < 2}} ... {{else}} ... {{end}}

Other pages keep their text and have the figures between two comments, asked for in the same words; what stands between them is
written anew. In a sentence (not where a line begins, since Markdown takes that for HTML):

    a call costs <!-- figures: jit_call | tanh(a*b + c), float32 | fxgrad jit -->0.8 us<!-- end -->

A table has its two comments on lines of their own. A new table is a method `say_NAME` below.
"""

from __future__ import annotations

import argparse
import json
import operator
import re
import sys
from collections.abc import Callable
from pathlib import Path

from bench.experiments import pages
from bench.experiments.base import Result, Table, shown
from bench.figures import Benchmarks, best
from bench.peers_picture import peers_picture
from bench.report import stored, summary_table

__all__ = ["PICTURE", "ROOT", "Report", "filled", "pages_with_figures", "report"]

ROOT = Path(__file__).resolve().parents[1]
PICTURE = ROOT / "docs" / "pictures" / "peers.svg"
TEMPLATE = Path(__file__).with_name("report_template.md")
COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    ">": operator.gt,
    "<=": operator.le,
    ">=": operator.ge,
}
COMMON = ("exp", "log", "tanh", "logistic", "sin", "cos", "sqrt", "rsqrt", "log1p", "expm1", "erf")


class Report:
    """The results, and what the template may ask of them."""

    def __init__(self, docs: Path):
        self.docs = docs
        self.results: dict[str, Result] = {r.name: r for r in pages.results(docs / "experiments")}
        self.benchmarks = Benchmarks(docs / "benchmarks")

    # ---- single figures ------------------------------------------------------------------------------------------------

    def result(self, name: str) -> Result:
        if name not in self.results:
            raise KeyError(f"docs/experiments has no {name}.json: run python -m bench.experiments {name}")
        return self.results[name]

    def figure(self, name: str, key: str) -> float | None:
        """None, a dash in the text, for what a test-size run has left out."""
        figures = self.result(name).figures
        if key not in figures and self.result(name).quick:
            return None
        if key not in figures:
            raise KeyError(f"{name} has no figure {key!r}; it has {', '.join(sorted(figures))}")
        return figures[key]

    def expression(self, text: str) -> str:
        """What stands for the text between double braces."""
        if found := re.fullmatch(r"(\w+) \| (.+) \| (.+)", text):
            return self.benchmarks.figure(*found.groups())
        if found := re.fullmatch(r"(\w+):(.+?)(?: (x|%|s|B|B/s|flop/s))?", text):
            return shown(self.figure(found[1], found[2]), found[3] or "")
        if found := re.fullmatch(r"(\w+)([?!])(.+)", text):
            outcome = next(o for o in self.result(found[1]).outcomes if o.prediction.name == found[3])
            if found[2] == "!":
                return "held" if outcome.holds else "**falsified**"
            return shown(outcome.prediction.value, outcome.prediction.unit)
        word, *rest = text.split(maxsplit=2)
        return str(getattr(self, f"say_{word}")(*rest))

    def condition(self, text: str) -> bool:
        """`e8:ratio_large < 2`"""
        found = re.fullmatch(r"(\w+):(.+) (<=|>=|<|>) ([\d.e+-]+)", text)
        if found is None:
            raise ValueError(f"not a condition: {text!r}")
        value = self.figure(found[1], found[2])
        return value is not None and COMPARISONS[found[3]](value, float(found[4]))

    # ---- whole parts ---------------------------------------------------------------------------------------------------

    def say_table(self, name: str, key: str) -> str:
        return "\n".join(self.result(name).tables[key].markdown())

    def say_outcomes(self, name: str) -> str:
        return "\n".join(self.result(name).outcome_table().markdown())

    def say_explanation(self, name: str) -> str:
        return "\n\n".join(self.result(name).explanation)

    def say_summary(self) -> str:
        lines = pages.summary(list(self.results.values())).markdown()
        return "\n".join(re.sub(r"\((\w+\.md)\)", r"(docs/experiments/\1)", line) for line in lines)

    def say_falsified(self) -> str:
        return "\n".join(pages.falsified(list(self.results.values())).markdown())

    def say_counts(self) -> str:
        """`61 of 74`: predictions that held."""
        outcomes = [o for r in self.results.values() for o in r.outcomes]
        return f"{sum(o.holds for o in outcomes)} of {len(outcomes)}"

    def say_targets(self) -> str:
        """Every target of the benchmarks, with its verdict."""
        lines, good, count = summary_table(stored(self.docs / "benchmarks"))
        return "\n".join([f"{good} of {count} targets are met.", "", *lines])

    def say_peers(self) -> str:
        """Named works beside JAX, PyTorch, NumPy and autograd."""
        return self.benchmarks.compared()

    def say_comparison(self) -> str:
        """The README's table."""
        return self.benchmarks.comparison()

    def say_spread(self, table: str, who: str) -> str:
        """Of all rows of a benchmark."""
        return self.benchmarks.spread(table, who)

    def say_explained(self) -> str:
        """What fx.explain prints of the example in docs/explain.md."""
        data = json.loads((self.docs / "explain.json").read_text())
        where, threads = data["machine"], "one thread" if data["threads"] == 1 else f"{data['threads']} threads"
        about = f"prints, on {threads} of an {where['processor']}, {where['date'].split()[0]} (`python -m bench.explained`),"
        return f"{about}\n\n```\n{data['text']}\n```"

    def say_machine(self) -> str:
        machine, versions = self.result("e8").machine, self.result("e6").versions
        said = ", ".join(f"{name} {version}" for name, version in versions.items())
        where = f"{machine['cores']} cores of an {machine['processor']}, Python {machine['python']}"
        return f"{where}, {said}; {machine['date'].split()[0]}"

    def say_banner(self) -> str:
        """What a reader must know of runs that are worth little; nothing if all are sound."""
        quick = [r.name for r in self.results.values() if r.quick]
        busy = [r.name for r in self.results.values() if r.busy]
        said = []
        if quick:
            said.append(f"**Test-size runs, whose figures say that the code works and nothing else: {', '.join(quick)}.**")
        if busy:
            said.append(f"**Others kept the machine busy during {', '.join(busy)}: their times are worth little.**")
        return "\n\n".join([*said, "`make report` measures everything anew."]) if said else ""

    def say_commands(self) -> str:
        rows = [[f"`{r.command}`", r.title, r.seconds] for r in self.results.values()]
        return "\n".join(Table("", [("command", ""), ("what it does", ""), ("takes", "s")], rows).markdown())

    def say_remade(self) -> str:
        """How long `make report` took, part by part."""
        parts = json.loads((self.docs / "report.json").read_text())
        total = sum(part["seconds"] for part in parts.values())
        said = ", ".join(f"{name} {part['seconds'] / 60:.1f}" for name, part in parts.items())
        first = next(iter(parts.values()))
        return f"{total / 60:.0f} minutes on {first['cores']} cores ({said}; {first['date'].split()[0]})"

    def say_newcomer(self) -> str:
        """What a newcomer waits for."""
        data = json.loads((self.docs / "newcomer.json").read_text())
        rows = [[what, seconds] for what, seconds in data["steps"].items()] + [["all of it", data["seconds"]]]
        table = Table("", [("", ""), ("takes", "s")], rows).markdown()
        return "\n".join([*table, "", f"`python -m bench.newcomer`, {data['machine']['date'].split()[0]}."])

    def say_import(self) -> str:
        times = self.benchmarks.row("startup", "import, beyond NumPy's").times
        return shown(best(times, "fxgrad"), "s")

    def say_ulp(self) -> str:
        """The worst error of the common functions, in both dtypes."""
        functions = json.loads((self.docs / "numerics.json").read_text())["functions"]
        return shown(max(functions[name][dtype]["max_ulp"] for name in COMMON for dtype in ("float32", "float64")))


def report(docs: Path = ROOT / "docs", template: str | None = None) -> str:
    """The text of REPORT.md."""
    r, text = Report(docs), TEMPLATE.read_text() if template is None else template

    def choose(found: re.Match[str]) -> str:
        return found[2] if r.condition(found[1]) else found[3] or ""

    text = re.sub(r"\{\{if (.+?)\}\}(.*?)(?:\{\{else\}\}(.*?))?\{\{end\}\}", choose, text, flags=re.DOTALL)
    text = re.sub(r"\{\{(.+?)\}\}", lambda found: r.expression(found[1]), text)
    return re.sub(r"\n{3,}", "\n\n", text).rstrip() + "\n"


# ---- pages written by people, with figures in them -----------------------------------------------------------------------

OPENING, CLOSING = "<!-- figures: ", "<!-- end -->"


def pages_with_figures() -> list[Path]:
    return sorted(p for p in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")) if OPENING in p.read_text())


def filled(text: str, r: Report) -> str:
    """The text of a page with what belongs between its comments."""

    def fill(found: re.Match[str]) -> str:
        opening, asked, old = found[1], found[2], found[3]
        starts = text[: found.start()].endswith("\n") or not found.start()
        if OPENING in old:
            raise ValueError(f"{opening} has no {CLOSING}")
        said = r.expression(asked)
        if starts and old.startswith("\n"):
            return f"{opening}\n\n{said}\n\n{CLOSING}"
        if starts or "\n" in said:
            raise ValueError(f"{opening}: a table's comments have lines of their own, a figure's do not begin one")
        return f"{opening}{said}{CLOSING}"

    made = re.sub(rf"({OPENING}(.+?) -->)(.*?){CLOSING}", fill, text, flags=re.DOTALL)
    if made.count(OPENING) != made.count(CLOSING):
        raise ValueError(f"{made.count(OPENING)} figures begin and {made.count(CLOSING)} end")
    return made


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--docs", type=Path, default=ROOT / "docs", help="where the JSON files are (default docs)")
    parser.add_argument(
        "--out", type=Path, default=ROOT / "REPORT.md", help="the report; elsewhere, other pages stay as they are"
    )
    args = parser.parse_args()
    args.out.write_text(report(args.docs))
    print(args.out)
    if args.out == ROOT / "REPORT.md":
        r = Report(args.docs)
        for page in pages_with_figures():
            page.write_text(filled(page.read_text(), r))
            print(page)
        PICTURE.write_text(peers_picture(r.benchmarks))
        print(PICTURE)
    return 0


if __name__ == "__main__":
    sys.exit(main())
