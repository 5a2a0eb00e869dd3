"""The team of threads: how many, and when they start and stop. What they do is in `executor.py`.

They start at the first call that is worth them. They are daemons that hold no Python state, asleep but for some microseconds
after each step, so interpreter exit need not wait for them. A forked child has none and starts its own when it wants them.
"""

from __future__ import annotations

import math
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

from fxgrad import errors
from fxgrad.runtime.table import CLOCK, NONE, OWNER, SLICE, SPIN, TEAM, TEAM_SETTINGS, TEAM_WORDS, THREADS

__all__ = ["cores", "get_num_threads", "set_num_threads", "settings", "start"]

MOST_THREADS = 1024
SPIN_NANOSECONDS = 50_000  # about what waking a sleeping thread costs
SLICE_NANOSECONDS = 50_000_000  # how long a signal may wait

settings = np.zeros(8, np.int64)  # what every run looks at; words of `table.py`
_lock = threading.Lock()
_given = False  # by set_num_threads
_inherited = False  # by a fork, from a parent that was given no number
_teams: list[_Team] = []  # the current one last; older ones until their threads have ended


class _Team:
    """The words threads share, and the threads."""

    def __init__(self, workers: int, control: Any, work: Any):
        memory = np.zeros(TEAM_WORDS + 8, np.int64)
        skip = -memory.ctypes.data % 64 // 8
        self.words, self.control = memory[skip : skip + TEAM_WORDS], control
        self.address = self.words.ctypes.data
        self.words[TEAM_SETTINGS] = settings.ctypes.data
        control(self.address, 0)
        self.threads: list[threading.Thread] = []
        for i in range(workers):
            thread = threading.Thread(target=work, args=(self.address,), daemon=True, name=f"fxgrad-{i + 1}")
            try:
                thread.start()
            except RuntimeError:  # the system has no more, or the interpreter is about to end
                break
            self.threads.append(thread)

    def over(self) -> bool:
        """Whether no thread will look at the words again."""
        return not self.words[OWNER] and not any(t.is_alive() for t in self.threads)


def cores() -> int:
    """How many cores this process may use: its affinity, and the quota of its control group."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = _quota()
    return max(1, min(count, math.ceil(quota))) if quota else count


def _quota() -> float | None:
    base = Path("/sys/fs/cgroup")
    try:
        limit, period = (base / "cpu.max").read_text().split()
    except (OSError, ValueError):
        try:
            limit, period = ((base / "cpu" / f"cpu.cfs_{n}_us").read_text().strip() for n in ("quota", "period"))
        except OSError:
            return None
    return float(limit) / float(period) if limit.isdigit() and float(period) > 0 else None


def _checked(n: Any, what: str) -> int:
    if isinstance(n, bool) or not isinstance(n, (int, np.integer)) or not 1 <= n <= MOST_THREADS:
        raise errors.FxValueError(
            f"{what} is {n!r}",
            why=f"The number of threads is an integer from 1 to {MOST_THREADS}.",
            fix=f"This process may use {cores()} cores: fx.set_num_threads({cores()}).",
        )
    return int(n)


def _first() -> int:
    """How many threads nobody has asked otherwise of: see `get_num_threads`."""
    text = os.environ.get("FXGRAD_NUM_THREADS", "").strip()
    if text:
        return _checked(int(text) if text.isdecimal() else text, "the environment variable FXGRAD_NUM_THREADS")
    available = min(cores(), MOST_THREADS)
    text = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()  # one number for each level of nesting
    if text.isdecimal() and int(text):
        return min(int(text), available)
    process = sys.modules.get("multiprocessing.process")  # a child has imported it
    return 1 if process is not None and process.parent_process() is not None else available


def get_num_threads() -> int:
    """How many threads compiled functions and large eager operations use, the calling one included.

    Returns:
        What `set_num_threads` was given last. At first FXGRAD_NUM_THREADS; or else OMP_NUM_THREADS, as dask and joblib set it
        for their workers, but no more than there are cores; or else 1 in a child of multiprocessing or concurrent.futures,
        whose siblings want the other cores; or else the number of cores the process may use.

    Raises:
        FxValueError: FXGRAD_NUM_THREADS is not a number of threads.

    Example:
        >>> import fxgrad as fx
        >>> fx.set_num_threads(2)
        >>> fx.get_num_threads()
        2
    """
    if not settings[THREADS] or _inherited:
        _decide()
    return int(settings[THREADS])


def set_num_threads(n: int) -> None:
    """Use n threads, the calling one included; the number changes no bit of any result.

    Arguments:
        n: from 1 to 1024. More than there are cores is allowed and slower.

    Raises:
        FxValueError: n is not a number of threads.

    Example:
        >>> import fxgrad as fx
        >>> fx.set_num_threads(1)
    """
    global _given, _inherited
    n = _checked(n, "the number of threads")
    with _lock:
        _given, _inherited = True, False
        if n != settings[THREADS]:
            _dismiss()
            _use(n)


def _decide() -> None:
    global _inherited
    _use(_first())
    _inherited = False


def _use(n: int) -> None:
    settings[CLOCK], settings[NONE], settings[SLICE] = time.CLOCK_MONOTONIC, id(None), SLICE_NANOSECONDS
    settings[SPIN] = SPIN_NANOSECONDS if n <= cores() else 0  # a thread that spins would keep the others from the core
    settings[THREADS] = n


def start() -> None:
    """Start the threads, if they are wanted and do not run."""
    from fxgrad.runtime.launch import native

    with _lock:
        if _inherited:
            _decide()
        if settings[TEAM] or settings[THREADS] < 2:
            return
        team = _Team(int(settings[THREADS]) - 1, native["control_team"], native["work"])
        if team.threads:
            _teams.append(team)
            settings[TEAM] = team.address
        else:
            settings[THREADS] = 1


def _dismiss(wait: bool = False) -> None:
    """Send the threads home. A run that has the team goes on alone."""
    settings[TEAM] = 0
    _teams[:] = [t for t in _teams if not t.over()]
    for team in _teams:
        team.control(team.address, 1)
        for thread in team.threads if wait else ():
            thread.join()


def _before_fork() -> None:
    """An idle team ends first, so that the child does not inherit half of one; a busy one is forgotten by the child."""
    if settings[TEAM] and not _teams[-1].words[OWNER] and _lock.acquire(blocking=False):
        try:
            _dismiss(wait=True)
        finally:
            _lock.release()


def _after_fork_in_child() -> None:
    global _inherited, _lock
    _lock = threading.Lock()
    _inherited = not _given  # what it is a child of shows later, when there is work
    settings[TEAM] = 0
    _teams.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_child=_after_fork_in_child)
