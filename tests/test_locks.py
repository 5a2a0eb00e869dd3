"""Locks that two threads could take in opposite orders, each with the program that once hung."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
IMPORT_AND_BACKGROUND = """
import threading
import fxgrad as fx
from fxgrad.compile import native
from fxgrad.runtime import background, forks

at_work, plain = threading.Event(), native.load_native

def late(*args):
    background.submit("key", "test", job)
    at_work.wait(1)  # the job would have the lock now
    return plain(*args)

def job():
    at_work.set()
    from fxgrad.runtime.launch import bind

native.load_native = late
import fxgrad.runtime.launch
assert background.wait(30) and at_work.is_set()
"""


def test_first_import_of_the_executor_against_a_background_job() -> None:
    """The importing thread held the module's lock and wanted the compiler's; the job the other way round."""
    subprocess.run([sys.executable, "-c", IMPORT_AND_BACKGROUND], cwd=ROOT, check=True, timeout=60)
