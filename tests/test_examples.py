"""The examples run, at a small size, and the parity example notices a planted fault."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
PARITY = ("transformer_parity.py", "--size", "2,8,16,2")


def run(script: str, *args: str) -> tuple[int, str]:
    """(exit code, output) of an example in a process of its own."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))}
    command = [sys.executable, str(ROOT / "examples" / script), *args]
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=300, check=False)
    return done.returncode, done.stdout + done.stderr


@needs_torch
def test_parity_passes():
    code, out = run(*PARITY)
    assert code == 0, out
    assert "PASS" in out
    assert out.count("bit for bit: eager == grad(jit) == jit(grad) == checkpoint == jit(ckpt) and jvp == jit(jvp)") == 2
    for name in ("input", "attention.qkv_weight", "mlp.down_bias", "norm2.gain", "all directions at once"):
        assert len(re.findall(rf"^{re.escape(name)} ", out, re.MULTILINE)) == 2, name


@needs_torch
def test_parity_of_another_size_and_one_dtype():
    code, out = run("transformer_parity.py", "--size", "1,5,12,3", "--dtype", "float64")
    assert code == 0, out
    assert "B=1 T=5 D=12 heads=3" in out and "float32" not in out


@needs_torch
def test_parity_notices_a_planted_fault():
    code, out = run(*PARITY, "--dtype", "float64", "--plant", "activated")
    assert code == 1, out
    assert "FAIL" in out
    assert re.search(r"^mlp.up_weight .*!", out, re.MULTILINE)
    assert not re.search(r"^mlp.down_weight .*!", out, re.MULTILINE)


@needs_torch
@pytest.mark.parametrize("name", ["scores", "middle"])
def test_bisect_names_the_planted_activation(name):
    code, out = run(*PARITY, "--dtype", "float32", "--bisect", "--plant", name)
    assert code == 1, out
    assert f"The first gradient that differs is that of '{name}'." in out


@needs_torch
def test_bisect_without_a_fault():
    code, out = run(*PARITY, "--dtype", "float64", "--bisect")
    assert code == 0, out
    assert "No gradient differs." in out


def test_parity_refuses_a_size_that_makes_no_sense():
    code, out = run("transformer_parity.py", "--size", "2,8,16,3")
    assert code == 2 and "multiple of the number of heads" in out


def test_compose():
    code, out = run("compose.py", "--steps", "5")
    assert code == 0, out
    assert out.rstrip().endswith("All of it holds.")
    assert "grad(f) == grad(jit(f)) == jit(grad(f))" in out


def test_forward_vs_reverse(tmp_path):
    picture = tmp_path / "costs.png"
    code, out = run("forward_vs_reverse.py", "--quick", "--out", str(picture))
    assert code == 0, out
    assert out.count("cross") == 3  # one line for each number of outputs
    if importlib.util.find_spec("matplotlib") is not None:
        assert picture.read_bytes().startswith(b"\x89PNG")
