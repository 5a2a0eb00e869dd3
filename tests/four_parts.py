"""What every message of fxgrad must hold: what failed, where, why, and what to write instead."""

from __future__ import annotations

import linecache
import os
import re
import sys
from collections.abc import Callable
from typing import Any

import pytest

import fxgrad as fx


def assert_four_parts(error: BaseException, *, what: str | list[str], line: str, why: str, fix: str | list[str]) -> None:
    """The message has exactly the four parts, and its line is the line of the calling file that holds the text `line`."""
    assert isinstance(error, fx.FxError), repr(error)
    parts = re.split(r"\n  (?! )", str(error))  # lines that go on are indented deeper
    assert len(parts) == 4, str(error)
    for expected, part in zip((what, why, fix), (parts[0], *parts[2:]), strict=True):
        for words in [expected] if isinstance(expected, str) else expected:
            assert words in part, f"{words!r} is not in {part!r}"
    path = sys._getframe(1).f_code.co_filename
    place = re.fullmatch(re.escape(f"at {os.path.basename(path)}:") + r"(\d+)   (.*)", parts[1])
    assert place is not None, parts[1]
    number, text = int(place[1]), place[2]
    assert line in text and linecache.getline(path, number).strip() == text, f"{line!r} is not in {text!r}"


def raised(call: Callable[[], Any], kind: type[Exception]) -> fx.FxError:
    """The error of a call; where NumPy replaces what `__float__` or `__array__` raised by an error of its own, its cause."""
    with pytest.raises((fx.FxError, TypeError, ValueError, RuntimeError)) as caught:
        call()
    error = caught.value if isinstance(caught.value, fx.FxError) else caught.value.__cause__
    assert isinstance(error, fx.FxError) and isinstance(error, kind), repr(caught.value)
    return error
