"""All that is measured, remade: `python -m bench.everything`, which is `make report`. Nothing else should run.

Benchmarks, the frontier, experiments and their notebooks, the report of docs/explain.md, the trained examples, errors of the math
functions, a newcomer's way; then REPORT.md and every page that quotes figures.
How long each part took goes to docs/report.json as soon as it is done.

    --only PART     one of the parts; may be repeated
    --from PART     this and what follows
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

from bench.report import machine

__all__ = ["PARTS", "TIMES", "main"]

ROOT = Path(__file__).resolve().parents[1]
TIMES = ROOT / "docs" / "report.json"
EXAMPLES = ("logistic_regression", "mlp", "convnet", "rnn", "gpt")
PARTS: dict[str, list[list[str]]] = {
    "benchmarks": [["-m", "bench"]],
    "frontier": [["-m", "bench.frontier"]],
    "experiments": [["-m", "bench.experiments", "all"]],
    "notebooks": [["-m", "bench.experiments.notebooks"]],
    "explained": [["-m", "bench.explained"]],
    "examples": [
        *([f"examples/train_{n}.py", "--figures", f"docs/examples/{n}.json"] for n in EXAMPLES),
        ["examples/train_gpt.py", "--compare", "--figures", "docs/examples/gpt.json"],
        ["examples/zoo.py"],
    ],
    "accuracy": [["-m", "bench.accuracy"]],
    "newcomer": [["-m", "bench.newcomer"]],
}


def remake(part: str) -> float:
    """Run the commands of one part; seconds."""
    begun = time.perf_counter()
    for command in PARTS[part]:
        print(f"\n== {part}: python {' '.join(command)}", flush=True)
        subprocess.run([sys.executable, *command], cwd=ROOT, check=True)
    return time.perf_counter() - begun


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", choices=PARTS, metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--from", dest="first", choices=PARTS, metavar="PART", help="this part and those after it")
    args = parser.parse_args(arguments)
    names = list(PARTS)
    chosen = args.only or names[names.index(args.first) if args.first else 0 :]
    times = json.loads(TIMES.read_text()) if TIMES.exists() else {}
    for part in chosen:
        where = {key: value for key, value in machine().items() if key in ("date", "cores", "processor")}
        times[part] = {"seconds": round(remake(part), 1), **where}
        TIMES.write_text(json.dumps({name: times[name] for name in PARTS if name in times}, indent=1) + "\n")
    subprocess.run(["make", "docs"], cwd=ROOT, check=True)  # pages that quote docs/numerics.json
    subprocess.run([sys.executable, "-m", "bench.report_page"], cwd=ROOT, check=True)
    print("\n".join(f"{name}: {t['seconds'] / 60:.1f} min" for name, t in times.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
