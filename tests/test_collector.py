"""The garbage collector waits for the compiler, and is afterwards as the user had it."""

from __future__ import annotations

import gc
import os
import threading

import numpy as np
import pytest

import fxgrad as fx
from fxgrad.kernels.spec import Kernel, Op, Operand
from fxgrad.primitives.base import REGISTRY
from fxgrad.runtime.collector import paused, without_full_collections


@pytest.fixture(autouse=True)
def as_it_was():
    enabled, threshold = gc.isenabled(), gc.get_threshold()
    yield
    assert (gc.isenabled(), gc.get_threshold()) == (enabled, threshold)


def test_pauses_end_with_errors_too():
    def fail():
        assert not gc.isenabled()
        assert gc.get_threshold()[2] > 10**6
        raise KeyError

    with pytest.raises(KeyError), paused(), paused(), without_full_collections(), without_full_collections():
        fail()


def test_a_collector_switched_off_stays_off():
    gc.disable()
    try:
        with paused():
            assert not gc.isenabled()
        assert float(fx.jit(lambda x: np.sum(x) * 3.25)(np.ones(3))) == 9.75
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_nothing_old_is_looked_through_while_jit_traces_and_nothing_at_all_while_it_compiles():
    seen: list[tuple[int, str]] = []
    now = "outside"

    def note(phase, info):
        if phase == "start":
            seen.append((info["generation"], now))

    def f(x):
        nonlocal now
        now = "tracing"
        for i in range(3000):
            x = np.sin(x) * (i + 0.5)
        now = "outside"
        return x

    gc.callbacks.append(note)
    try:
        low = fx.jit(f).lower(1.5)
        young = {generation for generation, where in seen if where == "tracing"}
        seen.clear()
        now = "compiling"
        low.compile()
        now = "outside"
    finally:
        gc.callbacks.remove(note)
    assert young and 2 not in young
    assert len([where for _, where in seen if where == "compiling"]) <= 2  # before and after, not with every 700 objects


def test_overlapping_threads_leave_it_on():
    def work(k):
        for i in range(8):
            fx.jit(lambda x: np.sum(np.sin(x) * (k + i)))(np.ones(k + 2))

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert gc.isenabled()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_child_forked_during_a_pause_collects():
    inside, done = threading.Event(), threading.Event()

    def pause():
        with without_full_collections(), paused():
            inside.set()
            done.wait(20)

    threshold = gc.get_threshold()
    thread = threading.Thread(target=pause)
    thread.start()
    assert inside.wait(20)
    child = os.fork()
    if not child:
        os._exit(0 if gc.isenabled() and gc.get_threshold() == threshold else 1)
    done.set()
    thread.join()
    assert os.waitpid(child, 0)[1] == 0


def test_texts_of_kernels_do_not_confuse_parameters_that_are_equal():
    """Equal kernels share a text; 0.0 and -0.0 are equal, and are not written alike."""
    f64 = np.dtype(np.float64)

    def digest(value):
        op = Op(REGISTRY["exp"], (("p", value),), (0,), f64)
        kernel = Kernel("map", [Operand(f64, "unit")], [op], [1], [Operand(f64, "unit")])
        assert f"p={value!r}" in kernel.text
        return kernel.digest

    assert digest(0.0) != digest(-0.0)
    assert digest((1, 2)) == digest((1, 2)) != digest((1, 3))
