"""Large results are written in place too: whether stores would bypass the caches is no reason to take other memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fxgrad as fx
from fxgrad.compile import layout, lower
from fxgrad.testing.bits import assert_same_bits

N = 3000


def compiled(f: Any, *args: Any, fusion: bool = True) -> lower.Executable:
    return lower._compile(fx.jit(f).lower(*args).program, fusion)


@pytest.fixture
def everything_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "_STREAM", 0)


def chain(a: Any, b: Any, c: Any) -> Any:
    return np.maximum(a * b + c, 0)


@pytest.mark.usefixtures("everything_is_large")
def test_a_chain_of_large_operations_needs_no_memory_besides_its_result() -> None:
    args = [np.linspace(-1, k, N, dtype=np.float32) for k in (1, 2, 3)]
    unfused, fused = compiled(chain, *args, fusion=False), compiled(chain, *args)
    assert len(unfused.steps) == 3 and unfused.memory_analysis().temp_bytes == 0
    assert_same_bits(unfused(*args), fused(*args))


@pytest.mark.usefixtures("everything_is_large")
def test_what_is_written_in_place_goes_through_the_caches_and_what_is_not_past_them() -> None:
    from fxgrad.compile import plan

    args = [np.ones(N, np.float32)] * 3
    steps = compiled(chain, *args, fusion=False).steps
    past = [bool(plan._record(s.launches[0], s.writes[0])[plan._PAST]) for s in steps]
    assert past == [True, False, False]
