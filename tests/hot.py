"""Programs that run often enough to be compiled in the background; the fixture `soon_hot` makes it soon."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fxgrad.runtime import eager

F = Callable[..., Any]


def heat(f: F, *args: Any) -> None:
    """Call f until what it runs is compiled."""
    for _ in range(3):
        f(*args)
    assert eager.wait_for_background()


def refuse_op_by_op(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(self: Any, arrays: Any) -> Any:
        raise AssertionError(f"{self.program} ran op by op")

    monkeypatch.setattr(eager.EagerPlan, "run", refused)
