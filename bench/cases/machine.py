"""The machine's own limits, and what the libraries do with subnormal numbers."""

from __future__ import annotations

import numpy as np

import fxgrad as fx
from bench.limits import measured_limits
from bench.run import Run
from bench.timing import Group, Row, exact

SUBNORMAL = 1e-39  # of float32


def keeps_subnormals(run: Run) -> str:
    """A remark: who computes with subnormal numbers, and who takes them for zero."""
    x = np.array([SUBNORMAL], np.float32)
    answers = {"numpy": x * np.float32(0.5), "fxgrad": fx.jit(lambda a: a * np.float32(0.5))(x)}
    if run.peers.jax is not None:
        answers["jax"] = run.peers.jax.jit(lambda a: a * np.float32(0.5))(x)
    if run.peers.torch is not None:
        answers["torch"] = run.peers.torch.from_numpy(x) * 0.5
    kept = [name for name, y in answers.items() if np.asarray(y)[0] != 0]
    lost = [name for name in answers if name not in kept]
    return f"Subnormal numbers: {', '.join(kept)} compute with them" + (
        f"; {', '.join(lost)} take them for zero." if lost else "."
    )


def measure(run: Run) -> list[Group]:
    columns = {"one thread": 1} | ({f"{run.threads} threads": run.threads} if run.threads > 1 else {})
    of_process = list(columns)[-1]
    found = {name: measured_limits(threads) for name, threads in columns.items()}
    bandwidth = run.group("machine_bandwidth", "This machine: bandwidth", "", unit="B/s", sampled="tries")
    for label, attribute in (("read", "read"), ("triad: two read, one written", "triad")):
        run.add(bandwidth, Row(label, {name: exact(getattr(x, attribute)) for name, x in found.items()}))
    peak = run.group("machine_peak", "This machine: arithmetic", "", unit="flop/s", sampled="tries")
    for dtype in ("float32", "float64"):
        run.add(peak, Row(f"multiply-adds in registers, {dtype}", {name: exact(x.fma[dtype]) for name, x in found.items()}))
        # NumPy's threads are those of the process, whatever a limit was asked for.
        run.add(peak, Row(f"NumPy's 1024x1024 product, {dtype}", {of_process: exact(found[of_process].matmul[dtype])}))
    peak.notes.append(keeps_subnormals(run))
    return [bandwidth, peak]
