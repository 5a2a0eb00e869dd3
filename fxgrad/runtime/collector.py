"""The garbage collector waits while programs are traced, rewritten and compiled: what is made then is kept, so it finds nothing.

With thousands of equations it took half of the time: as the heap grows, all of it is looked through again and again. In each kind
of pause, whoever has found the collector as the user wants it puts it back, and nobody else. So pauses may nest, or overlap
between threads (where one may then end early), and a collector that the user has switched off stays off.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["paused", "without_full_collections"]

_NEVER = 2**31 - 1  # collections of the younger objects between two of all
_pauses: list[int] = []  # of all threads: the threshold to go back to, or -1; appending and popping need no lock


@contextmanager
def paused() -> Iterator[None]:
    """No automatic collection, in any thread, until the end of the block; for code of ours that makes little garbage."""
    if not gc.isenabled():
        yield
        return
    _pauses.append(-1)
    try:
        gc.disable()
        yield
    finally:
        gc.enable()
        _pauses.remove(-1)


@contextmanager
def without_full_collections() -> Iterator[None]:
    """No automatic collection of old objects until the end of the block; garbage that is young, as of user code, is collected."""
    *young, old = gc.get_threshold()
    if old == _NEVER:
        yield
        return
    _pauses.append(old)
    try:
        gc.set_threshold(young[0], young[1], _NEVER)
        yield
    finally:
        gc.set_threshold(*gc.get_threshold()[:2], old)
        _pauses.remove(old)


def _in_child() -> None:
    """After a fork: of the threads that had paused the collector, none but the forking one is here to put it back."""
    for old in _pauses:
        if old == -1:
            gc.enable()
        else:
            gc.set_threshold(*gc.get_threshold()[:2], old)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
