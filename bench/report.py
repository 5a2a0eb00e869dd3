"""Tables of benchmark results, for the terminal and for docs/benchmarks."""

from __future__ import annotations

import json
import os
import platform
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.timing import Group, Row

__all__ = ["machine", "text_table", "write"]


def machine() -> dict[str, Any]:
    """Processor, cores this process may use, load at the time, operating system, Python."""
    name = platform.processor() or platform.machine()
    if os.path.exists("/proc/cpuinfo"):
        with open("/proc/cpuinfo") as lines:
            name = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), name)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
    return {
        "processor": name, "cores": cores, "load": load, "system": platform.system(), "python": platform.python_version(),
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
    }  # fmt: skip


def duration(seconds: float) -> str:
    """Three digits, in the unit that suits."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= scale or unit == "us":
            return f"{seconds / scale:.3g} {unit}" if seconds / scale < 1000 else f"{seconds / scale:.0f} {unit}"
    raise AssertionError


def _columns(group: Group) -> list[str]:
    return list(dict.fromkeys(name for row in group.rows for name in row.times))


def _cell(group: Group, row: Row, name: str) -> str:
    """`23.1 us (0.50)`: the median and its ratio to the base contender's."""
    if name not in row.times:
        return "-"
    median = row.times[name].median
    rate = f", {row.moved / median / 1e9:.1f} GB/s" if row.moved and group.name == "memory" else ""
    ratio = f"{median / row.times[group.base].median:.2f}" if group.base in row.times else "-"
    return f"{duration(median)} ({ratio}{rate})"


def _spread(group: Group) -> str:
    worst = max((t.most / t.median for row in group.rows for t in row.times.values()), default=1.0)
    blocks = {t.blocks for row in group.rows for t in row.times.values()}
    what = "processes" if group.name == "startup" else "interleaved blocks"
    how = f"Median of {min(blocks)} {what}; in brackets the ratio to {group.base}."
    return f"{how} The slowest was up to {worst:.1f} times its median."


def _verdicts(group: Group) -> list[str]:
    found = [(row.label, row.target.verdict(row.times)) for row in group.rows if row.target]
    return [f"{label}: {verdict}" for label, verdict in found if verdict]


def _heading(group: Group) -> str:
    threads = "one thread" if group.threads == 1 else f"{group.threads} threads"
    versions = ", ".join(f"{name} {version}" for name, version in group.versions.items())
    return f"{group.title}; {threads}; {versions}"


def text_table(group: Group) -> str:
    """The group as aligned plain text."""
    names = _columns(group)
    table = [["", *names]] + [[row.label, *(_cell(group, row, n) for n in names)] for row in group.rows]
    widths = [max(len(line[i]) for line in table) for i in range(len(names) + 1)]
    lines = [
        "  ".join([line[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(line[1:], widths[1:], strict=True))]) for line in table
    ]
    lines.insert(1, "-" * len(lines[0]))
    return "\n".join([_heading(group), *lines, _spread(group), *_verdicts(group), *group.notes])


def markdown(group: Group, where: dict[str, Any]) -> str:
    names = _columns(group)
    lines = [f"## {group.title}", "", f"| | {' | '.join(names)} |", f"|---|{'---|' * len(names)}"]
    lines += [f"| {row.label} | {' | '.join(_cell(group, row, n) for n in names)} |" for row in group.rows]
    threads = "One thread" if group.threads == 1 else f"{group.threads} threads"
    versions = ", ".join(f"{name} {version}" for name, version in group.versions.items())
    load = "" if where["load"] is None else f", load average {where['load']:.1f} at the start"
    about = f"{threads}. {_spread(group)} {versions}. {where['processor']}, {where['cores']} cores, {where['date']}{load}."
    lines += ["", about, "", *(f"- {line}" for line in (*_verdicts(group), *group.notes))]
    return "\n".join(lines).rstrip() + "\n"


def write(groups: list[Group], where: dict[str, Any], out: Path) -> None:
    """One JSON file a group; README.md puts together all that are there, so that a run of some groups keeps the others."""
    out.mkdir(parents=True, exist_ok=True)
    for group in groups:
        data = {"machine": where, "group": group.as_json()}
        (out / f"{group.name}.json").write_text(json.dumps(data, indent=1) + "\n")
    parts = [
        "# Benchmarks",
        "",
        "Written by `python -m bench` (`make bench`); the samples' medians and extremes are in the JSON files beside this one.",
        "",
    ]
    for path in sorted(out.glob("*.json")):
        data = json.loads(path.read_text())
        parts.append(markdown(Group.from_json(data["group"]), data["machine"]))
    (out / "README.md").write_text("\n".join(parts))
