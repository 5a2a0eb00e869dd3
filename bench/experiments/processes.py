"""Peak memory of a call in a process of its own: what the kernel counted, not what was planned."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence

from bench.processes import fresh

__all__ = ["peak"]

# The kernel's high-water mark is reset after the libraries are loaded and the small call has been made.
SCRIPT = """
import ctypes, gc, json
import fxgrad as fx
from bench.experiments import {module} as e
fx.set_num_threads({threads})
def status(field):
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field))
e.{small}()
step = e.{call}
result = None
gc.collect()
ctypes.CDLL(None).malloc_trim(0)
with open("/proc/self/clear_refs", "w") as file:
    file.write("5")
before = status("VmRSS")
for _ in range(3):
    result = None
    result = step()
print(json.dumps(max(status("VmHWM") - before, 4096)))
"""


def peak(module: str, calls: Sequence[str], threads: int, small: str = "warm") -> list[float | None]:
    """Bytes by which memory grew at most for each call, an expression that makes a compiled step; None without /proc."""
    if not sys.platform.startswith("linux"):
        return [None] * len(calls)
    with tempfile.TemporaryDirectory() as cache:
        scripts = [SCRIPT.format(module=module, threads=threads, small=small, call=call) for call in calls]
        return [float(fresh(script, cache)) for script in scripts]
