"""What an experiment consists of, as plain values: predictions, tables, figures; and how they are stored and written out."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from bench.report import quantity

__all__ = ["Outcome", "Prediction", "Result", "Table", "shown"]

BUSY = 0.1  # share of all cores' time
KINDS = ("about", "at most", "at least")
UNITS = ("", "s", "B", "B/s", "flop/s", "x", "%")


def shown(value: Any, unit: str = "") -> str:
    """A value for people: three digits, in the multiple of the unit that suits; a dash for None."""
    if value is None:
        return "-"
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "yes" if value else "no"
    if unit == "%":
        return f"{100 * value:.3g} %"
    if unit == "x":
        return f"{value:.3g}x" if abs(value) < 1e4 else f"{_power(value)}x"
    if unit == "":
        return str(value) if isinstance(value, int) and abs(value) < 1e6 else _power(value)
    return _nanoseconds(value) if unit == "s" else quantity(value, unit)


def _nanoseconds(value: float) -> str:
    return f"{value * 1e9:.3g} ns" if 0 < abs(value) < 1e-6 else quantity(value, "s")


def _power(value: float) -> str:
    """`1.2e-09` as `1.2e-9`; numbers of everyday size without a power."""
    if value == 0 or 1e-3 <= abs(value) < 1e6:
        return f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"
    mantissa, power = f"{value:.2g}".split("e") if "e" in f"{value:.2g}" else f"{value:.1e}".split("e")
    return f"{mantissa}e{int(power)}"


@dataclass(frozen=True)
class Prediction:
    """A number said before the measurement, and why.

    `says`: of what it is; `why`: the derivation with its numbers; kind "about": it holds if the measured value is between
    value/factor and value*factor, "at most", "at least": as they say. `source`: who predicts, "derived" or the document.
    """

    name: str
    says: str
    value: float
    unit: str
    why: str
    factor: float = 1.25
    kind: str = "about"
    source: str = "derived"

    def __post_init__(self) -> None:
        assert self.kind in KINDS and self.unit in UNITS, (self.name, self.kind, self.unit)

    def holds(self, measured: float) -> bool:
        if not math.isfinite(measured):
            return False
        if self.kind == "at most":
            return measured <= self.value
        if self.kind == "at least":
            return measured >= self.value
        return self.value / self.factor <= measured <= self.value * self.factor

    def range(self) -> str:
        """What counts as right: `1.6x to 2.5x`."""
        if self.kind != "about":
            return f"{self.kind} {shown(self.value, self.unit)}"
        return f"{shown(self.value / self.factor, self.unit)} to {shown(self.value * self.factor, self.unit)}"


@dataclass(frozen=True)
class Outcome:
    """A prediction beside what was measured."""

    prediction: Prediction
    measured: float

    @property
    def holds(self) -> bool:
        return self.prediction.holds(self.measured)


@dataclass(frozen=True)
class Table:
    """Columns are (name, unit); rows hold numbers in that unit, strings, or None."""

    title: str
    columns: list[tuple[str, str]]
    rows: list[list[Any]]

    def __post_init__(self) -> None:
        for row in self.rows:
            assert len(row) == len(self.columns), f"{self.title}: a row of {len(row)} in a table of {len(self.columns)}"

    def column(self, name: str) -> list[Any]:
        at = [n for n, _ in self.columns].index(name)
        return [row[at] for row in self.rows]

    def markdown(self) -> list[str]:
        head = "| " + " | ".join(name for name, _ in self.columns) + " |"
        rule = "|" + "".join("---|" if i == 0 else "---:|" for i in range(len(self.columns)))
        units = [unit for _, unit in self.columns]
        cells = [[shown(v, u).replace("|", "\\|") for v, u in zip(row, units, strict=True)] for row in self.rows]
        rows = ["| " + " | ".join(row) + " |" for row in cells]
        return [head, rule, *rows]


@dataclass
class Result:
    """All of one run of one experiment. Figures are numbers by name, of which the texts quote some."""

    name: str
    title: str
    question: str
    derivation: str
    quick: bool
    threads: int
    machine: dict[str, Any]
    versions: dict[str, str]
    constants: dict[str, Any]
    predictions: list[Prediction]
    predicted: str  # when the predictions were written, which is before `measured`, when the measurement began
    measured: str = ""
    seconds: float = 0.0
    tables: dict[str, Table] = field(default_factory=dict)
    figures: dict[str, float] = field(default_factory=dict)
    explanation: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def busy(self) -> bool:
        """Whether others used the machine when the run began, so that its times are worth little."""
        return (self.machine["busy"] or 0.0) > BUSY

    @property
    def command(self) -> str:
        return f"python -m bench.experiments {self.name}"

    @property
    def outcomes(self) -> list[Outcome]:
        return [Outcome(p, self.figures[p.name]) for p in self.predictions]

    def predicted_value(self, name: str) -> float:
        return next(p.value for p in self.predictions if p.name == name)

    def outcome_table(self) -> Table:
        columns = [("predicted", ""), ("value", ""), ("right if", ""), ("measured", ""), ("", "")]
        rows = []
        for o in self.outcomes:
            p = o.prediction
            says = p.says if p.source == "derived" else f"{p.says} ({p.source})"
            value, got = shown(p.value, p.unit), shown(o.measured, p.unit)
            rows.append([says, value, p.range(), got, "held" if o.holds else "**falsified**"])
        return Table("Predictions", columns, rows)

    # ---- files ---------------------------------------------------------------------------------------------------------

    def write(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        text = json.dumps(asdict(self), indent=1, allow_nan=False)
        (folder / f"{self.name}.json").write_text(text + "\n")

    @staticmethod
    def read(path: Path) -> Result:
        data = json.loads(path.read_text())
        predictions = [Prediction(**p) for p in data["predictions"]]
        tables = {k: Table(t["title"], [(n, u) for n, u in t["columns"]], t["rows"]) for k, t in data["tables"].items()}
        return Result(**{**data, "predictions": predictions, "tables": tables})

    def markdown(self, pictures: list[str]) -> str:
        """The page of the experiment."""
        run = "**A test-size run: the figures below say that it works, not what is true.** " if self.quick else ""
        run += "**Others kept the machine busy: times are worth little.** " if self.busy else ""
        threads = "one thread" if self.threads == 1 else f"{self.threads} threads"
        where = f"{self.machine['cores']} cores of {self.machine['processor']}, {threads}, {self.machine['date']}"
        versions = ", ".join(f"{k} {v}" for k, v in self.versions.items())
        parts = [f"# {self.name.upper() if self.name[1:].isdigit() else self.name.capitalize()}: {self.title}", ""]
        parts += [self.question, "", f"{run}`{self.command}`, {self.seconds:.0f} s on {where}; {versions}.", ""]
        parts += ["## Predicted", "", self.derivation.strip(), ""]
        parts += [f"- {p.says}: **{shown(p.value, p.unit)}**. {p.why}" for p in self.predictions]
        parts += ["", f"Written {self.predicted}, the measurement began {self.measured}.", "", "## Measured", ""]
        for picture in pictures:
            parts += [f"![{self.title}]({picture})", ""]
        if self.predictions:
            parts += [*self.outcome_table().markdown(), ""]
        for table in self.tables.values():
            parts += [f"### {table.title}", "", *table.markdown(), ""]
        parts += ["## Explained", ""]
        for paragraph in self.explanation:
            parts += [paragraph, ""]
        parts += [f"- {note}" for note in self.notes]
        return "\n".join(parts).rstrip() + "\n"
