"""Runs experiments and writes docs/experiments: `python -m bench.experiments e8 [e6 ...] | all [--quick] [--threads N]`.

Each runs in a process of its own, whose environment holds every library to the same number of threads. Predictions are written
before anything is measured: they are printed and stored with the time at which they were made.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

from bench.experiments import EXPERIMENTS, FOLDER, pages
from bench.experiments.base import BUSY, Result, shown
from bench.experiments.lab import Lab, module
from bench.experiments.pictures import save_all
from bench.peers import environment, version_of
from bench.report import cores, machine

ROOT = Path(__file__).resolve().parents[2]
PEERS = ("fxgrad", "numpy", "numba", "llvmlite", "torch", "jax", "optax")


def now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def run(name: str, quick: bool, threads: int, where: dict) -> Result:
    """In the child: predict, measure, explain."""
    e, lab, begin = module(name), Lab(quick, threads), time.perf_counter()
    predictions = e.predict(lab)
    for p in predictions:
        print(f"  predicted: {p.says}: {shown(p.value, p.unit)} ({p.range()})", flush=True)
    result = Result(
        name, e.TITLE, e.QUESTION, e.DERIVATION, quick, threads, where, {}, dict(lab.constants.used), predictions, now()
    )
    result.measured = now()
    e.measure(lab, result)
    result.constants |= lab.constants.used
    result.notes = lab.all_notes()
    result.explanation = e.explain(result)
    missing = [p.name for p in predictions if p.name not in result.figures]
    if missing:
        raise AssertionError(f"{name} predicts what it does not measure: {', '.join(missing)}")
    import fxgrad

    result.versions = {"fxgrad": fxgrad.__version__}
    result.versions |= {p: v for p in PEERS[1:] if p in sys.modules and (v := version_of(p))}
    result.seconds = time.perf_counter() - begin
    return result


def in_child(name: str, args: argparse.Namespace) -> None:
    threads = min(getattr(module(name), "THREADS", args.threads), args.threads)
    options = ["--child", "--threads", str(threads), "--out", str(args.out), *["--quick"] * args.quick]
    command = [sys.executable, "-m", "bench.experiments", name, *options]
    subprocess.run(command, cwd=ROOT, env=environment(threads), check=True)


def child(args: argparse.Namespace) -> None:
    (name,) = args.names
    where = machine()
    if (where["busy"] or 0.0) > BUSY and not args.quick:
        print(f"  Others keep this machine {where['busy']:.0%} busy: figures of this run are not worth keeping.", flush=True)
    result = run(name, args.quick, args.threads, where)
    result.write(args.out)
    save_all(result, module(name).draw, args.out)
    pages.write_page(result, args.out)
    for o in result.outcomes:
        p = o.prediction
        print(
            f"  {'held     ' if o.holds else 'FALSIFIED'}  {p.says}: {shown(p.value, p.unit)}, measured "
            f"{shown(o.measured, p.unit)}"
        )
    print(f"  {result.seconds:.0f} s", flush=True)


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.experiments", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "names", nargs="+", choices=(*EXPERIMENTS, "all"), metavar="NAME", help=f"{', '.join(EXPERIMENTS)}, or all"
    )
    parser.add_argument(
        "--quick", action="store_true", help="test sizes, to see that every experiment runs; writes to build/experiments"
    )
    parser.add_argument("--threads", type=int, default=cores(), help="threads of every contender (default: all cores)")
    parser.add_argument("--out", type=Path, help="default docs/experiments")
    parser.add_argument("--pages", action="store_true", help="measure nothing: explanations and pages from the stored figures")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    args.out = args.out or (ROOT / "build" / "experiments" if args.quick else FOLDER)
    return args


def main() -> int:
    args = parsed()
    if args.child:
        child(args)
        return 0
    names = list(EXPERIMENTS) if "all" in args.names else list(dict.fromkeys(args.names))
    if args.pages:
        for result in pages.results(args.out):
            result.explanation = module(result.name).explain(result)  # which has its figures from the result alone
            result.write(args.out)
            pages.write_page(result, args.out)
        pages.write_index(args.out)
        return 0
    failed, begin = [], time.perf_counter()
    args.out.mkdir(parents=True, exist_ok=True)
    for name in names:
        print(f"{name}: {module(name).TITLE}", flush=True)
        try:
            in_child(name, args)
        except subprocess.CalledProcessError:
            failed.append(name)
    pages.write_index(args.out)
    print(f"{time.perf_counter() - begin:.0f} s in all; {args.out}")
    if failed:
        print(f"Failed: {', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
