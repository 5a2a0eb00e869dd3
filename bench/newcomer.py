"""A newcomer's way, timed: `git clone`, `make demo`, a function of one's own, its gradient: `python -m bench.newcomer`.

The clone is of this checkout's last commit, into an empty directory; `make demo` installs everything there, so the package index
is needed. Kernels go to a cache that is empty. Reading is not timed: the README has some 500 words, docs/index.md 800.
Writes docs/newcomer.json.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.report import machine

__all__ = ["OUT", "main"]

ROOT = Path(__file__).resolve().parents[1]
OUT = ROOT / "docs" / "newcomer.json"
# A damped oscillator fitted to a record, written as one would without having read anything: a loop, a helper, a dict.
PROGRAM = """
import json, time
begun = time.perf_counter()
import numpy as np
import fxgrad as fx
times = {"import of fxgrad": time.perf_counter() - begun}

def force(position, velocity, p):
    slow, fast = p["drag"] * velocity, p["drag"] * velocity * np.abs(velocity)
    return -p["stiffness"] * position - np.where(np.abs(velocity) > 0.5, fast, slow)

def misfit(p, record, dt):
    position, velocity, error = p["start"], 0.0, 0.0
    for seen in record:
        velocity = velocity + dt * force(position, velocity, p)
        position = position + dt * velocity
        error = error + (position - seen) ** 2
    return error / len(record)

record = np.cos(np.linspace(0, 12, 100)) * np.exp(-np.linspace(0, 1, 100))
p = {"stiffness": 0.9, "drag": 0.1, "start": 1.1}

def timed(what, call):
    begun = time.perf_counter()
    result = call()
    times[what] = time.perf_counter() - begun
    return result

plain = timed("first gradient", lambda: fx.grad(misfit)(p, record, 0.12))
step = fx.jit(fx.grad(misfit))
timed("first compiled gradient", lambda: step(p, record, 0.12))
compiled = timed("second compiled gradient", lambda: step(p, record, 0.12))
assert plain == compiled
timed("check of the gradient", lambda: fx.testing.check_grads(lambda p: misfit(p, record, 0.12), (p,), order=1))
print(json.dumps(times))
"""


def main() -> int:
    where, times = machine(), {}
    with tempfile.TemporaryDirectory() as folder:
        clone, begun = Path(folder) / "fxgrad", time.perf_counter()
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"} | {
            "FXGRAD_CACHE_DIR": str(Path(folder) / "cache")
        }

        def run(what: str, command: list[str], directory: Path) -> str:
            begun = time.perf_counter()
            said = subprocess.run(command, cwd=directory, env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout
            times[what] = time.perf_counter() - begun
            return said

        run("git clone", ["git", "clone", "--quiet", str(ROOT), str(clone)], ROOT)
        said = run("make demo", ["make", "demo"], clone)
        if "PASS" not in said:
            raise AssertionError(f"the demo did not pass:\n{said}")
        (clone / "mine.py").write_text(PROGRAM)
        times |= json.loads(run("a program of one's own", [".venv/bin/python", "mine.py"], clone))
        total = time.perf_counter() - begun
    result = {"machine": where, "seconds": total, "steps": times}
    OUT.write_text(json.dumps(result, indent=1) + "\n")
    print(OUT.read_text())
    return 0


if __name__ == "__main__":
    sys.exit(main())
