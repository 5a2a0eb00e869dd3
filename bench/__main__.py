"""Runs the benchmarks and writes docs/benchmarks: `python -m bench [--only NAME ...] [--repeat N] [--threads N]`.

Each case runs in a process of its own, whose environment holds every library to the same number of threads. Within it peers take
turns in short blocks (see timing.py). Peers that are not installed are left out, and the tables say so.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.peers import environment, version_of
from bench.report import cores, machine, stored, summary_table, text_table, write
from bench.timing import Group

ROOT = Path(__file__).resolve().parents[1]
# Which also run with one thread.
CASES = {
    "machine": False, "memory": True, "reductions": False, "math": False, "random": False, "rows": False, "vectors": False,
    "matmul": True, "conv": False, "transformer": False, "training": False, "loops": True, "programs": False,
    "calls": False, "startup": False, "footprint": False,
}  # fmt: skip
BUSY = 0.1
PEERS = ("torch", "jax", "optax", "autograd", "scipy", "numexpr", "numba")


def run_case(args: argparse.Namespace) -> None:
    """In the child: measure and leave the result as JSON."""
    import fxgrad
    from bench.run import Run

    run = Run(args.repeat, args.threads, args.tiny)
    groups = importlib.import_module(f"bench.cases.{args.only[0]}").measure(run)
    versions = {"fxgrad": fxgrad.__version__, "numpy": version_of("numpy") or "?"}
    versions |= {peer: version for peer in PEERS if peer in sys.modules and (version := version_of(peer))}
    order = 100 * list(CASES).index(args.only[0]) + 10 * (args.threads < args.all_threads)
    for place, group in enumerate(groups):
        group.versions, group.order = versions, order + place
        group.notes = list(dict.fromkeys([*group.notes, *run.peers.notes]))
        if args.threads == 1 and args.all_threads > 1:
            group.name += "_one_thread"
    Path(args.child).write_text(json.dumps([group.as_json() for group in groups]))


def measure_in_child(name: str, threads: int, args: argparse.Namespace) -> list[Group]:
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "result.json"
        options = {"child": result, "only": name, "repeat": args.repeat, "threads": threads, "all-threads": args.threads}
        command = [sys.executable, "-m", "bench", *(f"--{key}={value}" for key, value in options.items())]
        subprocess.run(command + ["--tiny"] * args.tiny, env=environment(threads), cwd=ROOT, check=True)
        return [Group.from_json(g) for g in json.loads(result.read_text())]


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--only", action="append", choices=CASES, metavar="NAME", help=f"one of {', '.join(CASES)}; may be repeated"
    )
    parser.add_argument("--repeat", type=int, default=9, help="blocks of each contender, at least 7 (default 9)")
    parser.add_argument(
        "--threads",
        type=int,
        default=cores(),
        help="threads of every contender (default: all cores); some cases also run with one",
    )
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "benchmarks")
    parser.add_argument("--tiny", action="store_true", help="tiny sizes and few blocks, to see that every case runs")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--all-threads", type=int, default=1, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.repeat < 7 and not args.tiny:
        parser.error("--repeat: a median of fewer than 7 blocks says little")
    return args


def measure_case(name: str, args: argparse.Namespace) -> list[Group]:
    """Measure with all threads and, where the case wants it, with one; print and store the tables."""
    found = []
    for threads in dict.fromkeys([args.threads, 1] if CASES[name] else [args.threads]):
        where, start = machine(), time.perf_counter()
        print(f"{name}, {threads} thread{'s' * (threads > 1)}", flush=True)
        if (where["busy"] or 0.0) > BUSY:
            print(f"  Others keep this machine {where['busy']:.0%} busy: figures of this run are not worth keeping.", flush=True)
        groups = measure_in_child(name, threads, args)
        for group in groups:
            print(f"\n{text_table(group)}\n", flush=True)
        draw_all(groups, args.out)
        write(groups, where, args.out)
        print(f"{name}: {time.perf_counter() - start:.0f} s\n", flush=True)
        found += groups
    return found


def forget(names: set[str], out: Path) -> None:
    """Take these tables and their pictures away; what others keep in the folder stays."""
    for name in names:
        for file in (f"{name}.json", f"{name}.svg", f"{name}_limit.svg"):
            (out / file).unlink(missing_ok=True)
    write([], {}, out)


def draw_all(groups: list[Group], out: Path) -> None:
    if importlib.util.find_spec("matplotlib") is None:
        print("matplotlib is not installed: no pictures.")
        return
    from bench.pictures import draw

    out.mkdir(parents=True, exist_ok=True)
    for group in groups:
        draw(group, out)


def main() -> int:
    args = parsed()
    if args.child:
        run_case(args)
        return 0
    failed, names = [], set()
    for name in args.only or CASES:
        try:
            names |= {group.name for group in measure_case(name, args)}
        except subprocess.CalledProcessError:
            failed.append(name)
    if not args.only and not failed:  # a whole run leaves nothing of earlier ones
        forget({group.name for group, _ in stored(args.out)} - names, args.out)
    lines, good, count = summary_table([(g, where) for g, where in stored(args.out) if g.name in names])
    print("\n".join([*lines, "", f"{good} of {count} targets met"]))
    if failed:
        print(f"Failed: {', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
