"""Runs the benchmarks and writes docs/benchmarks: `python -m bench [--only NAME ...] [--repeat N] [--threads N]`.

Each case runs in a process of its own, whose environment holds every library to the same number of threads. Within it peers take
turns in short blocks (see timing.py). Peers that are not installed are left out, and the table says so.
"""

from __future__ import annotations

import argparse
import importlib
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from bench.peers import environment, version_of
from bench.report import machine, text_table, write
from bench.timing import Group

ROOT = Path(__file__).resolve().parents[1]
CASES = ("math", "calls", "memory", "transformer", "startup")
PEERS = {"numpy": "numpy", "torch": "torch", "jax": "jax", "autograd": "autograd", "scipy": "scipy", "numexpr": "numexpr"}


def run_case(name: str, repeat: int, threads: int, out: str) -> None:
    """In the child: measure and leave the result as JSON."""
    groups = importlib.import_module(f"bench.cases.{name}").measure(repeat, threads)
    import fxgrad

    for group in groups:
        used = " ".join(column for row in group.rows for column in row.times) + " ".join(group.notes)
        group.versions = {"fxgrad": fxgrad.__version__, "numpy": version_of("numpy") or "?"}
        for peer, distribution in PEERS.items():
            version = version_of(distribution)
            if peer in used and version:
                group.versions[peer] = version
    Path(out).write_text(json.dumps([group.as_json() for group in groups]))


def measure_in_child(name: str, repeat: int, threads: int) -> list[Group]:
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "result.json"
        command = [
            sys.executable,
            "-m",
            "bench",
            "--child",
            str(result),
            "--only",
            name,
            "--repeat",
            str(repeat),
            "--threads",
            str(threads),
        ]
        subprocess.run(command, env=environment(threads), cwd=ROOT, check=True)
        return [Group.from_json(g) for g in json.loads(result.read_text())]


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--only", action="append", choices=CASES, metavar="NAME", help=f"one of {', '.join(CASES)}; may be repeated"
    )
    parser.add_argument("--repeat", type=int, default=9, help="blocks of each contender, at least 7 (default 9)")
    parser.add_argument("--threads", type=int, default=1, help="threads of every contender, math table excepted (default 1)")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "benchmarks")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.repeat < 7:
        parser.error("--repeat: a median of fewer than 7 blocks says little")
    if args.child:
        run_case(args.only[0], args.repeat, args.threads, args.child)
        return 0
    failed = []
    for name in args.only or CASES:
        where = machine()
        try:
            groups = measure_in_child(name, args.repeat, 1 if name == "math" else args.threads)
        except subprocess.CalledProcessError:
            failed.append(name)
            continue
        for group in groups:
            print(text_table(group) + "\n", flush=True)
        write(groups, where, args.out)
    if failed:
        print(f"Failed: {', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
