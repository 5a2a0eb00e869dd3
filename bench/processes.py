"""Figures that need a fresh process each: what they print is the sample."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

__all__ = ["ROOT", "fresh"]

ROOT = Path(__file__).resolve().parents[1]
SECONDS = 300  # a process that takes longer hangs


def fresh(script: str, cache: str) -> Any:
    """What a script prints as JSON on its last line; it runs in the project's root, its compiled kernels are kept in `cache`."""
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    # Where writing bytecode is switched off, every import of a source tree compiles it again; that is not what is measured.
    env = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    env |= {"FXGRAD_CACHE_DIR": cache, "PYTHONPATH": path}
    done = subprocess.run(
        [sys.executable, "-c", script], env=env, cwd=ROOT, capture_output=True, text=True, check=False, timeout=SECONDS
    )
    if done.returncode:
        raise RuntimeError(f"a fresh process failed: {done.stderr.strip()[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])
