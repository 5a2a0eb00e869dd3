"""What a fork waits for: no child starts while a thread that it would not have holds a lock that it will want.

These are the lock of compiling (and with it those of llvmlite and numba), the job of the background thread, and the locks of
modules that are being imported: many of ours are only when they are needed.
"""

from __future__ import annotations

import contextlib
import importlib
import logging  # noqa: F401 - numba logs, and logging's own lock must be taken after ours at a fork, as it is in compiling
import os
import sys
import threading
import time
from typing import Any

__all__ = ["busy", "compiling"]

_PATIENCE = 300.0  # seconds a fork waits for a compilation

compiling = threading.RLock()  # held while anything is compiled
busy = threading.RLock()  # held during a job of the background thread, which may compile
_held = False
_module_locks: dict[str, Any] = getattr(sys.modules["_frozen_importlib"], "_module_locks", {})


def _before() -> None:
    global _held
    busy.acquire()
    until = time.monotonic() + _PATIENCE
    ours: set[str] = set()  # modules whose import this very thread is in
    while True:
        _held = compiling.acquire(timeout=max(until - time.monotonic(), 0))
        others = _being_imported() - ours
        if not _held or not others:
            return
        compiling.release()  # who imports may wait for it
        for name in others:
            with contextlib.suppress(ImportError):
                importlib.import_module(name)  # returns when the thread that imports it is done
        ours |= _being_imported() & others


def _being_imported() -> set[str]:
    """Those of our modules that some thread is importing; they import all else that we do, or we do under our lock.

    Python renews its own import lock in a child, but a module's lock stays with the thread that held it; nothing public tells.
    """
    return {name for name in list(_module_locks) if name.startswith("fxgrad.")}


def _after_in_parent() -> None:
    if _held:
        compiling.release()
    busy.release()


def _after_in_child() -> None:
    """The lock of compiling is this thread's; the background thread's went with it."""
    global busy
    if _held:
        compiling.release()
    busy = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_after_in_parent, after_in_child=_after_in_child)
