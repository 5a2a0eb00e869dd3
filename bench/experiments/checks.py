"""The exit criteria that are tests: run, counted, and where they compare numbers, by how much they pass."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

import fxgrad as fx
from bench.experiments.base import Prediction, Result, Table, shown
from bench.experiments.lab import Lab

THREADS = 2
TITLE = "Exit criteria that are tests"
QUESTION = "Do the tests behind each exit criterion of the source document pass, how many are there, and with how much room?"
DERIVATION = """
The document's criteria give their own limits: 1e-5 relative for every parameter's gradient in float32 (here also 1e-11 in
float64, which tells a bug from an order of summation), 1e-6 after 100 steps of an optimizer, equality of bits between modes.
The tests are run as `make test` runs them, and counted; gradients and trajectories are computed here once more for their
figures.
"""
ROOT = Path(__file__).resolve().parents[2]
# criterion -> what pytest is given
SUITES = {
    "gradient checks of every operation": ["tests/test_ops.py"],
    "optimizers follow PyTorch for 100 steps": ["tests/test_optim.py"],
    "changes in place are detected or followed": ["tests/test_stale.py", "tests/test_inplace.py"],
    "one answer in every mode": ["tests/test_modes.py"],
    "threads, caches and memory change no bit": ["tests/test_threads.py", "tests/test_memory.py"],
    "planted faults are noticed": ["tests/test_tests.py"],
}
QUICK = {"changes in place are detected or followed": ["tests/test_stale.py"]}
SIZE = ((4, 64, 128, 8), (2, 8, 16, 2))
STEPS = (100, 5)


def predict(lab: Lab) -> list[Prediction]:
    return [
        Prediction("failed", "tests that fail", 0.0, "", "They pass before anything is merged.", kind="at most"),
        Prediction(
            "parity32",
            "worst gradient of the block against PyTorch, float32",
            1e-5,
            "",
            "The document's limit.",
            kind="at most",
            source="p13",
        ),
        Prediction(
            "parity64", "worst gradient of the block against PyTorch, float64", 1e-11, "", "Rounding alone.", kind="at most"
        ),
        Prediction(
            "trajectory",
            "worst parameter after 100 steps of Adam against PyTorch, float64",
            1e-6,
            "",
            "The document's limit.",
            kind="at most",
            source="p13",
        ),
        Prediction(
            "unequal",
            "tensors whose bits differ between eager, compiled and checkpointed gradients",
            0.0,
            "",
            "One program has one answer.",
            kind="at most",
        ),
        Prediction(
            "stable",
            "NaN in a softmax of logits of +-1e4, value and gradient",
            0.0,
            "",
            "The largest is subtracted first.",
            kind="at most",
            source="p13",
        ),
    ]


def run_suite(files: list[str]) -> tuple[int, int, float]:
    """(passed, failed, seconds) of pytest on these files."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "2", *files]
    out = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout
    counts = {
        word: int(n) for n, word in re.findall(r"(\d+) (passed|failed|errors?|skipped)", out.splitlines()[-1] if out else "")
    }
    seconds = re.search(r"in ([\d.]+)s", out)
    bad = counts.get("failed", 0) + counts.get("error", 0) + counts.get("errors", 0)
    if not counts.get("passed") and not bad:
        raise RuntimeError(f"pytest ran nothing of {' '.join(files)}:\n{out[-2000:]}")
    return counts.get("passed", 0), bad, float(seconds.group(1)) if seconds else 0.0


def parity(size: tuple[int, int, int, int], dtype: str) -> tuple[float, str, int]:
    """(worst relative error over all tensors, which, tensors whose bits differ between modes)."""
    import torch

    from examples import transformer_parity as example

    s = example.Size(*size)
    params, x, target = example.make_problem(s, dtype, 0)
    reference = example.torch_reference(torch, params, x, target, s.heads)
    loss = example.loss_of(s.heads, target)
    checkpointed = example.loss_of(s.heads, target, wrap=fx.checkpoint)
    found = [
        example.named(*f(params, x))
        for f in (
            fx.grad(loss, (0, 1)),
            fx.jit(fx.grad(loss, (0, 1))),
            fx.grad(checkpointed, (0, 1)),
            fx.jit(fx.grad(checkpointed, (0, 1))),
        )
    ]
    errors = {name: example.relative_error(found[0][name], g) for name, g in reference.gradients.items()}
    worst = max(errors, key=lambda name: errors[name])
    unequal = sum(not example.same_bits(found[0][name], g[name]) for g in found[1:] for name in g)
    return errors[worst], worst, unequal


def trajectory(steps: int) -> float:
    """The largest difference of any parameter of the block after so many steps of Adam, each side with its own gradients."""
    import torch

    from examples import transformer_parity as example

    s, rate = example.Size(2, 8, 16, 2), 1e-3
    params, x, target = example.make_problem(s, "float64", 0)
    leaves = {g: {k: torch.from_numpy(a.copy()).requires_grad_() for k, a in q.items()} for g, q in params.items()}
    peer = torch.optim.Adam([t for q in leaves.values() for t in q.values()], rate)
    optimizer = fx.optim.adam(rate)
    state, loss = optimizer.init(params), example.loss_of(s.heads, target)
    gradient = fx.jit(fx.grad(loss))
    tx, tt = torch.from_numpy(x), torch.from_numpy(target)
    middle = slice(s.width, 2 * s.width)
    for _ in range(steps):
        g = gradient(params, x)
        g["attention"]["qkv_bias"][middle] = 0.0  # zero but for rounding, which adaptive steps would make large
        updates, state = optimizer.update(g, state, params)
        params = fx.optim.apply_updates(params, updates)
        peer.zero_grad()
        example.torch_loss(torch, leaves, tx, tt, s.heads).backward()
        leaves["attention"]["qkv_bias"].grad[middle] = 0.0
        peer.step()
    pairs = [(params[g][k], t.detach().numpy()) for g, q in leaves.items() for k, t in q.items()]
    return max(float(np.max(np.abs(a - b))) for a, b in pairs)


def unstable() -> int:
    """How many NaN there are in softmax of large logits and its gradient."""
    x = np.array([[1e4, -1e4, 0.0], [-1e4, -1e4, -1e4]], np.float32)
    y = fx.jit(fx.nn.softmax)(x)
    g = fx.jit(fx.grad(lambda x: np.sum(fx.nn.softmax(x)[:, 0])))(x)
    return int(np.isnan(y).sum() + np.isnan(g).sum())


def measure(lab: Lab, result: Result) -> None:
    figures, rows = result.figures, []
    for name, files in (QUICK if lab.quick else SUITES).items():
        passed, failed, seconds = run_suite(files)
        rows.append([name, " ".join(files), passed, failed, seconds])
        figures[f"passed {name}"] = passed
    figures["failed"], figures["passed"] = sum(r[3] for r in rows), sum(r[2] for r in rows)
    columns = [("criterion", ""), ("pytest", ""), ("passed", ""), ("failed", ""), ("time", "s")]
    result.tables["tests"] = Table("Tests, on two workers", columns, rows)
    compare(lab, result)
    figures["stable"] = unstable()


def compare(lab: Lab, result: Result) -> None:
    """Gradients and a trajectory beside PyTorch's."""
    from tests.cases import CASES

    figures, rows = result.figures, []
    unequal = 0
    for bits, dtype in ((32, "float32"), (64, "float64")):
        error, name, different = parity(SIZE[lab.quick], dtype)
        figures[f"parity{bits}"] = error
        unequal += different
        rows.append([f"gradients of the block, {dtype}", error, name])
    figures["unequal"] = unequal
    figures["trajectory"] = trajectory(STEPS[lab.quick])
    rows.append(
        [f"{STEPS[lab.quick]} steps of Adam on the block, float64", figures["trajectory"], "largest difference of a parameter"]
    )
    result.tables["parity"] = Table("Beside PyTorch", [("", ""), ("difference", ""), ("worst", "")], rows)
    figures["cases"] = len(CASES)


def explain(result: Result) -> list[str]:
    f = result.figures
    return [
        (
            f"{f['passed']:.0f} tests passed and {f['failed']:.0f} failed. The table of operations has {f['cases']:.0f} "
            "entries, each of which runs through every law with several shapes: scalars, empty arrays, and every pair of "
            "shapes that broadcast."
        ),
        (
            f"The worst tensor of the block's gradient is {shown(f['parity32'])} from PyTorch's in float32 and "
            f"{shown(f['parity64'])} in float64: what float32 shows is the order of summation. Eager, compiled and "
            "checkpointed gradients are equal to the last bit in all of them."
        ),
    ]


def draw(result: Result) -> dict[str, Any]:
    return {}
