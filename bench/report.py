"""Tables of benchmark results, for the terminal and for docs/benchmarks."""

from __future__ import annotations

import json
import os
import platform
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.timing import Group, Row, Target

__all__ = ["machine", "summary_table", "text_table", "write"]

UNITS = {
    "s": (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)),
    "B": (("MB", 1e6), ("kB", 1e3)),
    "B/s": (("GB/s", 1e9),),
    "flop/s": (("GFLOP/s", 1e9),),
}


def machine() -> dict[str, Any]:
    """Processor, cores this process may use and how busy others keep the machine, operating system, Python."""
    name = platform.processor() or platform.machine()
    if os.path.exists("/proc/cpuinfo"):
        with open("/proc/cpuinfo") as lines:
            name = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), name)
    return {
        "processor": name, "cores": cores(), "busy": busy(), "system": platform.system(), "python": platform.python_version(),
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
    }  # fmt: skip


def cores() -> int:
    """How many this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def busy(seconds: float = 0.5) -> float | None:
    """The share of all cores' time that somebody uses while this process sleeps; None where the system does not tell."""

    def used_and_all() -> tuple[int, int]:
        times = [
            int(t) for t in stat.read_text().split("\n", 1)[0].split()[1:9]
        ]  # user, nice, system, idle, waiting for disks, ...
        return sum(times) - times[3] - times[4], sum(times)

    stat = Path("/proc/stat")
    if not stat.exists():
        return None
    used, every = used_and_all()
    time.sleep(seconds)
    used_later, every_later = used_and_all()
    return (used_later - used) / max(every_later - every, 1)


def quantity(value: float, unit: str) -> str:
    """Three digits, in the multiple of the unit that suits."""
    for name, scale in UNITS[unit]:
        if abs(value) >= scale or (name, scale) == UNITS[unit][-1]:
            return f"{value / scale:.3g} {name}" if abs(value) / scale < 1000 else f"{value / scale:.0f} {name}"
    raise AssertionError


def _columns(group: Group) -> list[str]:
    return list(dict.fromkeys(name for row in group.rows for name in row.times))


def rate(row: Row, name: str) -> tuple[float, str] | None:
    """What a contender reached, in GB/s or GFLOP/s; None where the row does not say what must be moved or computed."""
    if row.work:
        return row.work / row.times[name].median / 1e9, "GFLOP/s"
    if row.moved:
        return row.moved / row.times[name].median / 1e9, "GB/s"
    return None


def _cell(group: Group, row: Row, name: str) -> str:
    """`23.1 us (0.50, 17.3 GB/s)`: the median, the base contender's as a multiple of it, and what that amounts to a second."""
    if name not in row.times:
        return "-"
    median = row.times[name].median
    details = []
    if name != group.base and group.base in row.times:
        details.append(f"{row.times[group.base].median / median:.2f}")
    if group.limits and (reached := rate(row, name)):
        details.append(f"{reached[0]:.1f} {reached[1]}")
    return quantity(median, group.unit) + (f" ({', '.join(details)})" if details else "")


def _spread(group: Group) -> str:
    sampled = [t for row in group.rows for t in row.times.values() if t.blocks]
    if not sampled:
        return "The best of several tries."
    worst = max(t.most / t.median if t.median > 0 else 1.0 for t in sampled)
    how = f"Median of {min(t.blocks for t in sampled)} {group.sampled}; in brackets {group.base} / this column."
    return f"{how} The largest was up to {worst:.1f} times its median."


def _verdicts(group: Group) -> list[str]:
    found = [(row.label, target.verdict(row.times)) for row in group.rows for target in row.targets]
    return [f"{label}: {verdict}" for label, verdict in found if verdict]


def _threads(group: Group) -> str:
    return "one thread" if group.threads == 1 else f"{group.threads} threads"


def _versions(group: Group) -> str:
    return ", ".join(f"{name} {version}" for name, version in group.versions.items())


def text_table(group: Group) -> str:
    """The group as aligned plain text."""
    names = _columns(group)
    table = [["", *names]] + [[row.label, *(_cell(group, row, n) for n in names)] for row in group.rows]
    widths = [max(len(line[i]) for line in table) for i in range(len(names) + 1)]
    lines = [
        "  ".join([line[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(line[1:], widths[1:], strict=True))]) for line in table
    ]
    lines.insert(1, "-" * len(lines[0]))
    heading = f"{group.title}; {_threads(group)}; {_versions(group)}"
    return "\n".join([heading, *lines, _spread(group), *_verdicts(group), *group.notes])


def markdown(group: Group, where: dict[str, Any], pictures: list[str]) -> str:
    names = _columns(group)
    lines = [f"## {group.title}, {_threads(group)}", "", f"| | {' | '.join(names)} |", f"|---|{'---|' * len(names)}"]
    lines += [f"| {row.label} | {' | '.join(_cell(group, row, n) for n in names)} |" for row in group.rows]
    load = "" if where["busy"] is None else f", {where['busy']:.0%} busy before it began"
    about = f"{_spread(group)} {_versions(group)}. {where['processor']}, {where['cores']} cores, {where['date']}{load}."
    lines += ["", about, ""]
    lines += [f"![{group.title}, {_threads(group)}]({name})" for name in pictures] + ["" for _ in pictures[:1]]
    lines += [f"- {line}" for line in (*_verdicts(group), *group.notes)]
    return "\n".join(lines).rstrip() + "\n"


# ---- all targets in one table ---------------------------------------------------------------------------------------------


def _judged(results: list[tuple[Group, dict[str, Any]]]) -> dict[tuple[str, str, str], list[tuple[float, Target, str, str]]]:
    """By (work, contender, what was asked): measured value, target, row's label and date of every row that has the target."""
    found: dict[tuple[str, str, str], list[tuple[float, Target, str, str]]] = {}
    for group, where in results:
        for row in group.rows:
            for target in row.targets:
                entries = found.setdefault((target.work, target.contender, target.asked()), [])
                value = target.measured(row.times)
                if value is not None:
                    entries.append((value, target, row.label, where["date"].split()[0]))
    return found


def summary_table(results: list[tuple[Group, dict[str, Any]]]) -> tuple[list[str], int, int]:
    """Every target with its worst case, as lines of markdown; how many are met; how many there are."""
    lines = ["| work | asked for | measured | | date |", "|---|---|---|---|---|"]
    judged = _judged(results)
    good = 0
    for (work, contender, asked), entries in judged.items():
        if not entries:
            lines.append(f"| {work} | {contender} {asked} | not measured | | |")
            continue
        value, target, label, date = max(entries, key=lambda e: e[1].excess(e[0]))
        met = sum(t.met(v) for v, t, *_ in entries)
        good += met == len(entries)
        outcome = "met" if met == len(entries) else f"**missed by {target.excess(value):.0%}**"
        several = "" if len(entries) == 1 else f", worst of {len(entries)} ({label}); {met} met"
        lines.append(f"| {work} | {contender} {asked} | {target.shown(value)}{several} | {outcome} | {date} |")
    return lines, good, len(judged)


# ---- files -----------------------------------------------------------------------------------------------------------------


def stored(out: Path) -> list[tuple[Group, dict[str, Any]]]:
    """Tables of this and earlier runs, in the order of the cases."""
    files = [json.loads(path.read_text()) for path in out.glob("*.json")]
    results = [(Group.from_json(data["group"]), data["machine"]) for data in files if "group" in data]
    return sorted(results, key=lambda result: (result[0].order, result[0].name))


def write(groups: list[Group], where: dict[str, Any], out: Path) -> None:
    """One JSON file a group; README.md puts together all that are there, so that a run of some groups keeps the others."""
    out.mkdir(parents=True, exist_ok=True)
    for group in groups:
        data = {"machine": where, "group": group.as_json()}
        (out / f"{group.name}.json").write_text(json.dumps(data, indent=1) + "\n")
    results = stored(out)
    lines, good, count = summary_table(results)
    parts = [
        "# Benchmarks",
        "",
        "Written by `python -m bench` (`make bench`); medians and extremes of the samples are in the JSON files beside this one.",
        "Each table is one run of one process (or of processes that take turns): contenders alternate in short blocks, their",
        "results are compared before they are timed, and everybody gets the same number of threads. JAX and torch hold their",
        "arguments as their own arrays, compiled functions are warm unless said, and a call ends when its result is there.",
        "",
        f"## Targets: {good} of {count} met",
        "",
        *lines,
        "",
    ]
    for group, machine_then in results:
        pictures = [path.name for path in (out / f"{group.name}.svg", out / f"{group.name}_limit.svg") if path.exists()]
        parts.append(markdown(group, machine_then, pictures))
    (out / "README.md").write_text("\n".join(parts))
