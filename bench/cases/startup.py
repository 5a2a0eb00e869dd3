"""Import and first call in fresh processes, with an empty and with a filled cache of compiled kernels."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from bench.peers import peer
from bench.timing import Group, Row, Timing

ROOT = Path(__file__).resolve().parents[2]
RUNS = 3
COLD, WARM = "fxgrad, cold cache", "fxgrad, warm cache"

CHAIN = """
f = jit(lambda a, b, c: xp.maximum(a * b + c, 0))
args = [numpy.ones(1000, 'float32')] * 3
"""
BLOCK = """
import importlib.util
spec = importlib.util.spec_from_file_location("transformer_parity", "examples/transformer_parity.py")
example = importlib.util.module_from_spec(spec)
spec.loader.exec_module(example)
params, x, target = example.make_problem(example.Size(4, 64, 128, 8), 'float32', 0)
example.np = xp
f = jit(value_and_grad(example.loss_of(8, target), (0, 1)))
args = (params, x)
"""
UNROLLED = """
def loop(x):
    for _ in range({length}):
        x = xp.sin(x) * 1.01 + 0.1
    return x.sum()
f = jit(grad(loop))
args = [numpy.ones(10)]
"""
SETUPS = {
    "numba": "import numba",
    "fxgrad": "import numpy as xp; from fxgrad import grad, jit, value_and_grad; ready = lambda y: y",
    "jax": "import jax.numpy as xp; from jax import grad, jit, value_and_grad, block_until_ready as ready",
}
SCRIPT = """
import json, time
import numpy
start = time.perf_counter()
{setup}
times = [time.perf_counter() - start]
{program}
for _ in range(2 if "f" in globals() else 0):
    start = time.perf_counter()
    ready(f(*args))
    times.append(time.perf_counter() - start)
print(json.dumps(times))
"""


def run(setup: str, program: str, cache: str = "") -> list[float]:
    """Seconds of import beyond NumPy's, of the first call and of the second, in a fresh process."""
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    # Where writing bytecode is switched off, every import of a source tree compiles it again; that is not what is measured.
    env = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    env |= {"FXGRAD_CACHE_DIR": cache, "PYTHONPATH": path}
    script = SCRIPT.format(setup=SETUPS[setup], program=program)
    done = subprocess.run([sys.executable, "-c", script], env=env, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{setup}: {done.stderr.strip().splitlines()[-1]}")
    return json.loads(done.stdout.splitlines()[-1])


def summary(samples: list[float]) -> Timing:
    return Timing(statistics.median(samples), min(samples), max(samples), len(samples), 1)


def measure(repeat: int, threads: int) -> list[Group]:
    group = Group("startup", "Fresh process: import, first call (compiles or loads), second call", COLD, threads)
    with_jax = peer("jax", threads, group.notes) is not None
    with tempfile.TemporaryDirectory() as cache:
        run("fxgrad", CHAIN, cache)  # leaves the bytecode behind
    imports: dict[str, list[float]] = {}
    programs = {"relu(a*b + c)": CHAIN, "transformer block, value_and_grad": BLOCK}
    programs |= {f"gradient of a loop of {n}, unrolled": UNROLLED.format(length=n) for n in (200, 400)}
    for label, program in programs.items():
        found: dict[str, list[list[float]]] = {}
        for _ in range(RUNS):
            with tempfile.TemporaryDirectory() as cache:
                for name in (COLD, WARM):
                    found.setdefault(name, []).append(run("fxgrad", program, cache))
            if with_jax:
                found.setdefault("jax", []).append(run("jax", program))
        for name, samples in found.items():
            imports.setdefault(name, []).extend(s[0] for s in samples)
        for column, what in ((1, "first call"), (2, "second call")):
            times = {name: summary([s[column] for s in samples]) for name, samples in found.items()}
            group.rows.append(Row(f"{label}: {what}", times))
    group.rows.insert(0, Row("import, beyond NumPy's", {name: summary(samples) for name, samples in imports.items()}))
    numba = statistics.median(run("numba", "")[0] for _ in range(RUNS))
    group.notes += [
        f"fxgrad imports numba in its first call; that alone takes {numba * 1e3:.0f} ms here, beyond NumPy's import.",
        "JAX runs without a persistent compilation cache, its default.",
    ]
    return [group]
