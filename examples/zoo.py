"""What the training examples (train_*.py) share: data, the loop with its checkpoints, learning curves, figures, options.

A run is a function of its settings alone: the batch of step n depends on the seed and on n, so a run that was killed (at any
moment) and resumed from its last checkpoint ends with the same parameters, to the bit, as one that was not.

The page docs/examples/README.md is made from the figures of full-size runs:

    for n in logistic_regression mlp convnet rnn gpt; do python examples/train_$n.py --figures docs/examples/$n.json; done
    python examples/train_gpt.py --compare --figures docs/examples/gpt.json
    python examples/zoo.py
"""

from __future__ import annotations

import argparse
import functools
import importlib
import json
import math
import os
import platform
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import fxgrad as fx

HERE = Path(__file__).resolve().parent
DOCS = HERE.parent / "docs" / "examples"
TEXTLESS = {"test", "tests", "idle_test", "idlelib", "lib2to3", "site-packages", "pydoc_data", "encodings", "turtledemo"}
HELD_OUT = 20  # one file in so many is never trained on
Batch = tuple[np.ndarray, ...]


def need(name: str, package: str = "") -> Any:
    """A module of an optional package, or the end of the program with what to install."""
    try:
        return importlib.import_module(name)
    except ImportError:
        sys.exit(f"This example needs {package or name}, which is not installed: pip install 'fxgrad[examples]'")


# ---- data: what ships with a package or the interpreter --------------------------------------------------------------------


class Split(NamedTuple):
    """Images (n, 8, 8) between 0 and 1, and the digits they show (n,)."""

    images: np.ndarray
    labels: np.ndarray


def digits() -> tuple[Split, Split]:
    """scikit-learn's 1,797 handwritten digits, four fifths to train on and one held out."""
    data = need("sklearn.datasets", "scikit-learn").load_digits()
    order = fx.random.permutation(fx.random.key(0), len(data.target))
    images, labels = (data.images[order] / 16).astype(np.float32), data.target[order].astype(np.int32)
    n = len(labels) * 4 // 5
    return Split(images[:n], labels[:n]), Split(images[n:], labels[n:])


def python_sources(limit: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """The source text of Python's standard library as bytes: (to train on, held out), the former cut at `limit` bytes."""
    root = Path(os.__file__).parent
    files = sorted(p for p in root.rglob("*.py") if not TEXTLESS & set(p.relative_to(root).parts[:-1]))
    texts: tuple[list[bytes], list[bytes]] = ([], [])
    for i, path in enumerate(files):
        texts[i % HELD_OUT == HELD_OUT - 1].append(path.read_bytes())
    train, held_out = (np.frombuffer(b"".join(t), np.uint8) for t in texts)
    return train[:limit], held_out


def shuffled(key: Any, n: int, size: int) -> Callable[[int], np.ndarray]:
    """step -> the places in range(n) of its batch: every epoch has an order of its own, and drops what fills no batch."""
    in_epoch = n // size

    @functools.lru_cache(maxsize=1)
    def order(epoch: int) -> np.ndarray:
        return fx.random.permutation(fx.random.fold_in(key, epoch), n)

    def batch(step: int) -> np.ndarray:
        epoch, i = divmod(step, in_epoch)
        return order(epoch)[i * size : (i + 1) * size]

    return batch


def windows(key: Any, text: np.ndarray, size: int, length: int) -> Callable[[int], Batch]:
    """step -> (ids,): `size` pieces of the text, each of length + 1 bytes: what is read, and what is to be predicted."""

    def batch(step: int) -> Batch:
        starts = fx.random.randint(fx.random.fold_in(key, step), (size,), 0, len(text) - length)
        return (pieces(text, starts, length),)

    return batch


def pieces(text: np.ndarray, starts: np.ndarray, length: int) -> np.ndarray:
    return text[starts[:, None] + np.arange(length + 1)].astype(np.int32)


def accuracy(apply: Callable[[Any, Any], Any], split: Split, shape: tuple[int, ...]) -> Callable[[Any], float]:
    """params -> the part of a split that `apply` gets right; images go in with this shape."""
    images = split.images.reshape(len(split.labels), *shape)
    predict = fx.jit(lambda params, x: fx.numpy.argmax(apply(params, x), axis=-1))
    return lambda params: float(np.mean(predict(params, images) == split.labels))


def bits_per_byte(
    loss: Callable[[Any, Any], Any], text: np.ndarray, size: int, length: int, batches: int
) -> Callable[[Any], float]:
    """params -> the mean loss on evenly spaced pieces of a text, in bits; `loss` answers nats."""
    starts = np.linspace(0, len(text) - length - 1, batches * size).astype(np.int64)
    inputs = [pieces(text, part, length) for part in np.split(starts, batches)]
    compiled = fx.jit(loss)
    return lambda params: float(np.mean([compiled(params, ids) for ids in inputs])) / math.log(2)


# ---- a run -----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Task:
    """What one example trains.

    init: key -> params. loss: (params, *batch) -> scalar. batch: step -> arrays. evaluate: params -> a number on data held out,
    which `measure` names. per_step: how many `unit`s (images, bytes) a batch has. describe: the model in words.
    """

    name: str
    describe: str
    init: Callable[[Any], Any]
    loss: Callable[..., Any]
    batch: Callable[[int], Batch]
    optimizer: fx.optim.Transformation
    evaluate: Callable[[Any], float]
    measure: str
    unit: str
    per_step: int


class Outcome(NamedTuple):
    """Parameters after the last step, and the figures of the run."""

    params: Any
    figures: dict[str, Any]


def classify_digits(
    args: argparse.Namespace, model: Any, config: Any, describe: str, optimizer: Any, shape: tuple[int, ...], size: int = 64
) -> Task:
    """The task of training a classifier, a module of fx.models, on the digits, given as arrays of this shape."""
    train_split, held_out = digits()
    images = train_split.images.reshape(-1, *shape)
    places = shuffled(fx.random.fold_in(fx.random.key(args.seed), 1), len(images), size)

    def batch(step: int) -> Batch:
        chosen = places(step)
        return images[chosen], train_split.labels[chosen]

    return Task(
        name=args.name,
        describe=describe,
        init=lambda key: model.init(key, config),
        loss=model.loss,
        batch=batch,
        optimizer=optimizer,
        evaluate=accuracy(model.apply, held_out, shape),
        measure="accuracy",
        unit="images",
        per_step=size,
    )


def make_update(task: Task) -> Callable[..., tuple[Any, Any, Any]]:
    """(params, state, *batch) -> (params, state, loss) after one step, compiled, in the memory of what goes in."""
    loss_of, optimizer = task.loss, task.optimizer  # not the task, which holds the data: jit watches what is within reach

    def update(params: Any, state: Any, *batch: Any) -> tuple[Any, Any, Any]:
        loss, gradients = fx.value_and_grad(loss_of)(params, *batch)
        updates, state = optimizer.update(gradients, state, params)
        return fx.optim.apply_updates(params, updates), state, loss

    return fx.jit(update, donate_argnums=(0, 1))


def settings(task: Task, args: argparse.Namespace) -> dict[str, Any]:
    """What decides the bits of a run."""
    return {"example": task.name, "model": task.describe, "size": args.size, "steps": args.steps, "seed": args.seed}


def start(task: Task, args: argparse.Namespace) -> dict[str, Any]:
    """The state of a run before its first step: all that a checkpoint holds."""
    params = task.init(fx.random.fold_in(fx.random.key(args.seed), 0))
    return {
        "settings": settings(task, args), "step": 0, "params": params, "optimizer": task.optimizer.init(params),
        "losses": np.zeros(args.steps, np.float32), "evaluations": [], "seconds": np.zeros(args.steps),
    }  # fmt: skip


def resume(task: Task, args: argparse.Namespace, file: Path) -> dict[str, Any]:
    """The state in a checkpoint, which must be of a run with these settings."""
    state = fx.io.load(file)
    wanted = settings(task, args)
    if state["settings"] != wanted:
        differ = [
            f"{k}: {state['settings'].get(k)!r} there, {v!r} here" for k, v in wanted.items() if state["settings"].get(k) != v
        ]
        sys.exit(f"{file} is of another run ({'; '.join(differ)}). Leave out --resume to start anew, or give another --out.")
    return state


def train(task: Task, args: argparse.Namespace) -> Outcome:
    """Train to the last step, with a checkpoint now and then; the result does not depend on how often it was interrupted."""
    out = Path(args.out)
    out.mkdir(parents=True, exist_ok=True)
    file = out / "checkpoint.safetensors"
    state = resume(task, args, file) if args.resume and file.exists() else start(task, args)
    count = sum(x.size for x in fx.tree.leaves(state["params"]))
    print(f"{task.name}: {task.describe}, {count:,} parameters, {args.steps} steps of {task.per_step:,} {task.unit}", flush=True)
    if state["step"]:
        print(f"resumed after step {state['step']}", flush=True)
    try:
        run(task, args, state, file)
    except KeyboardInterrupt:  # what was given to the step under way is gone: the checkpoint is what there is
        print(f"interrupted at step {state['step']}; --resume goes on from the last checkpoint", flush=True)
        sys.exit(130)
    fx.io.save(out / "model.safetensors", state["params"])
    figures = summary(task, args, state, count)
    curves(out / "curves.png", task, state)
    print_summary(figures, out)
    return Outcome(state["params"], figures)


def run(task: Task, args: argparse.Namespace, state: dict[str, Any], file: Path) -> None:
    """Bring `state` to the last step, in place."""
    update = make_update(task)
    every, look = args.checkpoint_every or max(1, args.steps // 20), max(1, args.steps // 20)
    progress = need("tqdm").tqdm(total=args.steps, initial=state["step"], unit="step", disable=None, dynamic_ncols=True)
    with progress as bar:
        warm = False  # the first step of a process compiles
        while state["step"] < args.steps:
            step = state["step"]
            batch = task.batch(step)
            begin = time.perf_counter()
            state["params"], state["optimizer"], loss = update(state["params"], state["optimizer"], *batch)
            if warm:
                state["seconds"][step] = time.perf_counter() - begin
            warm = True
            if not math.isfinite(loss):
                sys.exit(
                    f"the loss is {loss} at step {step}: the learning rate is too high, or the data is not what it should be"
                )
            state["losses"][step], state["step"] = loss, step + 1
            bar.update()
            if (step + 1) % look == 0 or step + 1 == args.steps:
                state["evaluations"].append((step + 1, task.evaluate(state["params"])))
                bar.set_postfix({"loss": f"{loss:.3f}", task.measure: f"{state['evaluations'][-1][1]:.3f}"})
            if (step + 1) % every == 0 or step + 1 == args.steps:
                fx.io.save(file, state)


# ---- what is left of it ------------------------------------------------------------------------------------------------------


def summary(task: Task, args: argparse.Namespace, state: dict[str, Any], count: int) -> dict[str, Any]:
    """The figures of a finished run, for people and for JSON."""
    last = max(1, args.steps // 20)
    timed = state["seconds"][state["seconds"] > 0]
    each = float(np.median(timed)) if timed.size else None
    return {
        **settings(task, args), "parameters": count, "unit": task.unit, "units_per_step": task.per_step,
        "training_loss": float(np.mean(state["losses"][-last:], dtype=np.float64)), "measure": task.measure,
        "held_out": state["evaluations"][-1][1], "evaluations": [list(e) for e in state["evaluations"]],
        "seconds_a_step": each, "units_a_second": None if each is None else task.per_step / each,
        "threads": fx.get_num_threads(), "cpu": cpu(), "python": platform.python_version(), "fxgrad": fx.__version__,
    }  # fmt: skip


def cpu() -> str:
    """The processor's name."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def print_summary(figures: dict[str, Any], out: Path) -> None:
    """The end of a run in two lines."""
    print(f"training loss {figures['training_loss']:.4f}, held out: {figures['held_out']:.4f} {figures['measure']}")
    if figures["units_a_second"] is not None:
        rate, each = figures["units_a_second"], figures["seconds_a_step"] * 1e3
        print(f"{rate:,.0f} {figures['unit']} a second ({each:.2f} ms a step), {figures['threads']} threads")
    print(f"model, checkpoint and curves are in {out}", flush=True)


def smooth(values: np.ndarray) -> np.ndarray:
    """Running means over a fiftieth of the values."""
    n = max(1, len(values) // 50)
    sums = np.cumsum(np.concatenate([[0.0], values]))
    low = np.maximum(np.arange(len(values)) + 1 - n, 0)
    return (sums[1:] - sums[low]) / (np.arange(1, len(values) + 1) - low)


def curves(path: Path, task: Task, state: dict[str, Any]) -> None:
    """A picture of the loss at every step and of what was measured on data held out."""
    figure = need("matplotlib.figure", "matplotlib").Figure(figsize=(9, 3.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    steps = np.arange(1, len(state["losses"]) + 1)
    left.plot(steps, state["losses"], color="#9db8d6", linewidth=0.6, label="each step")
    left.plot(steps, smooth(state["losses"]), color="#1f4e8c", linewidth=1.6, label="mean")
    right.plot(*zip(*state["evaluations"], strict=True), color="#b3541e", linewidth=1.6, marker="o", markersize=3)
    for axes, title, scale in ((left, "training loss (nats)", "log"), (right, f"held out: {task.measure}", "linear")):
        axes.set(title=title, xlabel="step", yscale=scale)
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    left.legend(frameon=False)
    figure.savefig(path, dpi=110)


def keep_sample(figures: dict[str, Any], tokens: np.ndarray, out: Path) -> None:
    """Print text that a model wrote, and keep it with the figures and in a file."""
    text = bytes(int(t) for t in tokens).decode("utf-8", "replace")
    figures["sample"] = "".join(c if c.isprintable() or c == "\n" else "\N{REPLACEMENT CHARACTER}" for c in text)
    (out / "sample.txt").write_text(figures["sample"] + "\n", encoding="utf-8")
    print(f"a sample:\n\n{figures['sample']}\n", flush=True)


def keep_figures(figures: dict[str, Any], args: argparse.Namespace) -> None:
    """Write the figures where `--figures` says, and the curves beside them."""
    if args.figures is None:
        return
    target = Path(args.figures)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps(figures, indent=1) + "\n")
    target.with_suffix(".png").write_bytes((Path(args.out) / "curves.png").read_bytes())
    print(f"figures are in {target}", flush=True)


def add_figures(more: dict[str, Any], args: argparse.Namespace) -> None:
    """Add to the figures that an earlier run left where `--figures` says."""
    if args.figures is not None:
        target = Path(args.figures)
        before = json.loads(target.read_text()) if target.exists() else {}
        target.write_text(json.dumps({**before, **more}, indent=1) + "\n")


# ---- options, the page -------------------------------------------------------------------------------------------------------


def parse(
    doc: str, name: str, steps: dict[str, int], add: Callable[[argparse.ArgumentParser], Any] | None = None
) -> argparse.Namespace:
    """The options of an example; `steps` says how many steps each --size has, `add` declares options of its own."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=steps, default="full", help="small is for tests: seconds")
    parser.add_argument("--steps", type=int, help=f"how many updates ({', '.join(f'{k}: {v}' for k, v in steps.items())})")
    parser.add_argument("--seed", type=int, default=0, help="decides parameters, data order and samples")
    parser.add_argument("--out", default=str(HERE / "out" / name), metavar="DIR", help="model, checkpoint, curves (examples/out)")
    parser.add_argument("--resume", action="store_true", help="go on from the checkpoint in DIR, if there is one")
    parser.add_argument("--checkpoint-every", type=int, metavar="N", help="steps between checkpoints (a twentieth of all)")
    parser.add_argument("--figures", metavar="FILE.json", help="write the figures there, and the curves beside them")
    if add is not None:
        add(parser)
    args = parser.parse_args()
    args.name, args.steps_given = name, args.steps is not None
    args.steps = args.steps if args.steps_given else steps[args.size]
    if args.steps < 1 or (args.checkpoint_every is not None and args.checkpoint_every < 1):
        parser.error("--steps and --checkpoint-every are at least 1")
    return args


def beside(c: dict[str, Any]) -> str:
    """What `train_gpt.py --compare` found, in a sentence."""
    ours, theirs = c["tokens_a_second"], c["pytorch_tokens_a_second"]
    return (
        f"Beside the same model in PyTorch {c['pytorch']}, same weights, same batches: {ours:,.0f} tokens a second, "
        f"there {theirs:,.0f} ({ours / theirs:.2f} times as many here); losses of {c['steps']} steps: {c['apart']:.1e} apart."
    )


def page(figures: list[dict[str, Any]]) -> str:
    """docs/examples/README.md."""
    lines = [
        "# Models trained by the examples", "",
        "Written by `python examples/zoo.py` from `python examples/train_NAME.py --figures docs/examples/NAME.json`.", "",
        "| example | model | parameters | steps | training loss | held out | ms a step | a second |",
        "|---|---|---:|---:|---:|---:|---:|---:|",
    ]  # fmt: skip
    for f in figures:
        cells = (
            f["example"], f["model"], f"{f['parameters']:,}", f["steps"], f"{f['training_loss']:.3f}",
            f"{f['held_out']:.3f} {f['measure']}", f"{f['seconds_a_step'] * 1e3:.2f}", f"{f['units_a_second']:,.0f} {f['unit']}",
        )  # fmt: skip
        lines.append(f"| {' | '.join(map(str, cells))} |")
    machines = sorted({f"{f['cpu']}, {f['threads']} threads, Python {f['python']}, fxgrad {f['fxgrad']}" for f in figures})
    lines += ["", f"Measured on: {'; '.join(machines)}."]
    for f in figures:
        lines += ["", f"## {f['example']}", "", f"![learning curves]({f['example']}.png)"]
        lines += ["", beside(f["compare"])] if "compare" in f else []
        lines += ["", "A sample:", "", "```", *f["sample"].split("\n"), "```"] if "sample" in f else []
    return "\n".join(line.rstrip() for line in lines) + "\n"


if __name__ == "__main__":
    found = [json.loads(p.read_text()) for p in sorted(DOCS.glob("*.json"))]
    (DOCS / "README.md").write_text(page(sorted(found, key=lambda f: f["parameters"])))
    print(f"{DOCS / 'README.md'}: {len(found)} runs")
