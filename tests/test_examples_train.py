"""The training examples run to their end at a small size; a run that is killed and resumed ends with the same bits."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fxgrad as fx

ROOT = Path(__file__).resolve().parents[1]
SKLEARN = {"logistic_regression", "mlp", "convnet"}
needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
pytest.importorskip("tqdm")
pytest.importorskip("matplotlib")


def start(name: str, *args: Any, **options: Any) -> subprocess.Popen:
    """An example in a process of its own."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))}
    command = [sys.executable, str(ROOT / "examples" / f"train_{name}.py"), "--size", "small", *map(str, args)]
    return subprocess.Popen(command, cwd=ROOT, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **options)


def run(name: str, *args: Any) -> tuple[int, str]:
    """(exit code, output) of an example."""
    process = start(name, *args)
    out, _ = process.communicate(timeout=300)
    return process.returncode, out


def number(pattern: str, text: str) -> float:
    found = re.search(pattern, text)
    assert found, (pattern, text)
    return float(found[1].replace(",", ""))


@pytest.mark.parametrize("name", ["logistic_regression", "mlp", "convnet", "rnn"])
def test_runs_and_learns(name: str, tmp_path: Path) -> None:
    if name in SKLEARN:
        pytest.importorskip("sklearn")
    out, figures = tmp_path / "out", tmp_path / "docs" / f"{name}.json"
    code, text = run(name, "--out", out, "--figures", figures)
    assert code == 0, text
    kept = json.loads(figures.read_text())
    assert kept["example"] == name and kept["held_out"] == kept["evaluations"][-1][1]
    if name in SKLEARN:
        assert number(r"held out: ([\d.]+) accuracy", text) == round(kept["held_out"], 4) > 0.8
    else:
        assert kept["held_out"] < kept["evaluations"][0][1] < 8.1 and kept["sample"].startswith("def ")
    assert number(r"([\d,]+) \w+ a second", text) > 0
    for picture in (out / "curves.png", figures.with_suffix(".png")):
        assert picture.read_bytes().startswith(b"\x89PNG")
    model = fx.io.load(out / "model.safetensors")
    assert sum(x.size for x in fx.tree.leaves(model)) == kept["parameters"]


STEPS, EVERY = 200, 7


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A GPT trained in one go: where it is, and what it printed."""
    out = tmp_path_factory.mktemp("whole")
    code, text = run("gpt", "--steps", STEPS, "--checkpoint-every", EVERY, "--out", out, "--figures", out / "figures.json")
    assert code == 0, text
    return out, text


def step_of(file: Path) -> int:
    return fx.io.load(file)["step"] if file.exists() else 0


def end_after(file: Path, step: int, by: signal.Signals, *args: Any) -> str:
    """Start the GPT, and send it a signal once it has a checkpoint of this step or a later one; what it printed."""
    process = start("gpt", "--steps", STEPS, "--checkpoint-every", EVERY, "--out", file.parent, *args)
    deadline = time.monotonic() + 120
    while step_of(file) < step:
        assert process.poll() is None and time.monotonic() < deadline, process.communicate()[0]
        time.sleep(0.002)
    process.send_signal(by)
    text, _ = process.communicate(timeout=60)
    assert process.returncode == (130 if by == signal.SIGINT else -by), text
    assert step <= step_of(file) < STEPS
    return text


def test_killed_and_resumed_is_the_same_to_the_bit(whole: tuple[Path, str], tmp_path: Path) -> None:
    file = tmp_path / "checkpoint.safetensors"
    end_after(file, EVERY, signal.SIGKILL)
    end_after(file, step_of(file) + EVERY, signal.SIGKILL, "--resume")
    text = end_after(file, step_of(file) + EVERY, signal.SIGINT, "--resume")
    assert "interrupted at step" in text and "Traceback" not in text
    before = step_of(file)
    code, text = run("gpt", "--steps", STEPS, "--checkpoint-every", EVERY, "--out", tmp_path, "--resume")
    assert code == 0 and f"resumed after step {before}" in text, text
    a, b = (fx.io.load(out / "checkpoint.safetensors") for out in (whole[0], tmp_path))
    assert a["step"] == b["step"] == STEPS
    for part in ("params", "optimizer", "losses"):
        for x, y in zip(fx.tree.leaves(a[part]), fx.tree.leaves(b[part]), strict=True):
            assert x.dtype == y.dtype and x.tobytes() == y.tobytes(), part
    assert a["evaluations"] == b["evaluations"]
    for name in ("model.safetensors", "sample.txt"):
        assert (whole[0] / name).read_bytes() == (tmp_path / name).read_bytes()


def test_gpt_states_its_loss_and_writes(whole: tuple[Path, str]) -> None:
    out, text = whole
    figures = json.loads((out / "figures.json").read_text())
    assert number(r"held out: ([\d.]+) bits per byte", text) == round(figures["held_out"], 3) < 6.0
    assert number(r"([\d,]+) tokens a second", text) > 0
    assert (out / "sample.txt").read_text().startswith("def ")
    assert len(figures["evaluations"]) == 20 and figures["evaluations"][-1][0] == STEPS


def test_another_run_is_not_resumed(whole: tuple[Path, str]) -> None:
    code, text = run("gpt", "--steps", STEPS + 1, "--out", whole[0], "--resume")
    assert code == 1 and "is of another run (steps: 200 there, 201 here)" in text


def test_a_finished_run_is_only_shown_again(whole: tuple[Path, str]) -> None:
    before = (whole[0] / "checkpoint.safetensors").stat().st_mtime_ns
    code, text = run("gpt", "--steps", STEPS, "--out", whole[0], "--resume")
    assert code == 0 and "resumed after step 200" in text and "held out" in text
    assert (whole[0] / "checkpoint.safetensors").stat().st_mtime_ns == before


@needs_torch
def test_gpt_beside_pytorch(zoo: Any, whole: tuple[Path, str], tmp_path: Path) -> None:
    figures = tmp_path / "gpt.json"
    figures.write_text((whole[0] / "figures.json").read_text())
    code, text = run("gpt", "--compare", "--steps", 12, "--figures", figures)
    assert code == 0, text
    assert "PASS" in text and number(r"([\d.]+) times as many", text) > 0
    assert number(r"at most ([\d.e+-]+) apart", text) < 1e-4
    kept = json.loads(figures.read_text())
    assert kept["steps"] == STEPS and "times as many here" in zoo.page([kept]) and "losses of 10 steps: " in zoo.page([kept])


# ---- the parts of zoo.py -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def zoo() -> Any:
    spec = importlib.util.spec_from_file_location("zoo", ROOT / "examples" / "zoo.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["zoo"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    yield module
    del sys.modules["zoo"]


def test_batches_are_functions_of_seed_and_step(zoo: Any) -> None:
    batch = zoo.shuffled(fx.random.key(3), 10, 3)
    epoch = np.concatenate([batch(i) for i in range(3)])
    assert len(set(epoch.tolist())) == 9 and not np.array_equal(epoch, np.concatenate([batch(i) for i in range(3, 6)]))
    assert np.array_equal(batch(4), zoo.shuffled(fx.random.key(3), 10, 3)(4))
    text = np.arange(100, dtype=np.uint8)
    (ids,) = zoo.windows(fx.random.key(0), text, 5, 7)(11)
    assert ids.shape == (5, 8) and (np.diff(ids) == 1).all() and len(set(ids[:, 0].tolist())) > 1
    assert np.array_equal(ids, zoo.windows(fx.random.key(0), text, 5, 7)(11)[0])


def test_texts_are_disjoint(zoo: Any) -> None:
    train, held_out = zoo.python_sources()
    assert len(train) > 10 * len(held_out) > 10**6 and b"import " in held_out.tobytes()
    assert len(zoo.python_sources(1000)[0]) == 1000


def test_smooth(zoo: Any) -> None:
    x = np.arange(100.0)
    assert zoo.smooth(x).tolist() == [0.0, *(x[1:] - 0.5)]


def test_page(zoo: Any, whole: tuple[Path, str]) -> None:
    text = zoo.page([json.loads((whole[0] / "figures.json").read_text())])
    assert "| gpt | GPT, 2 layers" in text and "![learning curves](gpt.png)" in text and "bits/byte" in text


def test_missing_packages(zoo: Any) -> None:
    with pytest.raises(SystemExit, match="needs not_there, which is not installed: pip install"):
        zoo.need("not_there")
