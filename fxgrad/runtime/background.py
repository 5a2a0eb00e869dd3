"""Work done beside the program: compiling what is hot, so that nobody waits for it.

One thread at a time takes jobs from a bounded queue and ends when the queue is empty. It is not a daemon: at exit the interpreter
waits for the job at hand (LLVM must not be torn down under it) and drops the others. `os.fork` waits for the job too: `forks.py`.
"""

from __future__ import annotations

import importlib
import logging
import os
import threading
import time
from collections.abc import Callable, Hashable

from fxgrad.runtime import forks

__all__ = ["MOST_JOBS", "submit", "wait"]

MOST_JOBS = 64  # waiting; what comes on top is refused and may be submitted again

_log = logging.getLogger("fxgrad")
_state = threading.Condition()
_jobs: dict[Hashable, tuple[str, Callable[[], None]]] = {}  # in order of submission
_thread: threading.Thread | None = None


def submit(key: Hashable, what: str, job: Callable[[], None]) -> bool:
    """Queue a job, once for a key; False if it was refused because the queue is full or the interpreter is about to exit."""
    global _thread
    with _state:
        if key in _jobs:
            return True
        if len(_jobs) >= MOST_JOBS or not threading.main_thread().is_alive():
            return False
        _jobs[key] = what, job
        if _thread is None:
            thread = threading.Thread(target=_work, name="fxgrad-background", daemon=False)
            try:
                thread.start()
            except RuntimeError:  # no more threads, or the interpreter is about to exit
                _jobs.clear()
                return False
            _thread = thread
        return True


def _work() -> None:
    """Jobs hold the compiler's lock, for which a fork waits: with another of our own the two could be taken in either order."""
    global _thread
    while True:
        with _state:
            if not _jobs or not threading.main_thread().is_alive():
                _jobs.clear()
                _thread = None
                _state.notify_all()
                return
            key, (what, job) = next(iter(_jobs.items()))
        try:
            # Importing it takes the compiler's lock: an import elsewhere would wait for ours, and the job for that import.
            importlib.import_module("fxgrad.runtime.launch")
            with forks.compiling:
                job()
        except Exception:  # noqa: BLE001 - whatever it is, the program goes on as before
            _log.exception("fxgrad could not compile '%s' in the background; it goes on operation by operation", what)
        with _state:
            _jobs.pop(key, None)


def wait(timeout: float = 60.0) -> bool:
    """Wait until all jobs are done; False if they are not within `timeout` seconds."""
    end = time.monotonic() + timeout
    with _state:
        return _state.wait_for(lambda: _thread is None, max(0.0, end - time.monotonic()))


def _after_in_child() -> None:
    """The child has no thread, and the queue was its parent's."""
    global _state, _thread
    _state, _thread = threading.Condition(), None
    _jobs.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_in_child)
