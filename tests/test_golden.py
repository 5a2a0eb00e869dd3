"""IR and kernel texts are what they were; see golden.py."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.golden import FOLDER, PROGRAMS, text_of


@pytest.mark.parametrize("name", PROGRAMS)
def test_text_is_unchanged(name):
    assert text_of(name) == (FOLDER / f"{name}.txt").read_text(), "if this is meant: python -m tests.golden, and say why"


def test_no_text_without_program():
    assert {p.stem for p in FOLDER.glob("*.txt")} == set(PROGRAMS)


def test_text_does_not_depend_on_the_process():
    """Hash seeds and what was compiled before change nothing."""
    name = "layer_norm_gradient"
    code = f"from tests.golden import text_of; import sys; sys.stdout.write(text_of({name!r}))"
    command = [sys.executable, "-c", code]
    root = Path(__file__).parents[1]
    texts = {
        subprocess.run(
            command, cwd=root, env={"PYTHONHASHSEED": seed, "PATH": ""}, capture_output=True, text=True, check=True
        ).stdout
        for seed in ("1", "2")
    }
    assert texts == {text_of(name)}
