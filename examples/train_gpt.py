"""A GPT that writes Python, trained on the source text of Python's standard library: `python examples/train_gpt.py`.

A decoder-only transformer over bytes (fx.models.gpt), trained by AdamW with clipped gradients and a rate that warms up and falls
along a cosine; some minutes on two cores. It states bits per byte on files it was not trained on, and writes text of its own.

With --compare nothing is kept: the same weights, batches and optimizer run here and in PyTorch in turn, and losses and tokens a
second are printed side by side. The exit code is 1 if the losses part.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import zoo

import fxgrad as fx

CONTEXTS = {"small": 32, "full": 128}
BATCHES = {"small": 4, "full": 16}
MODELS = {"small": {"layers": 2, "heads": 2, "width": 32}, "full": {"layers": 4, "heads": 4, "width": 192}}
DECAY, CLIP, PEAK = 0.1, 1.0, 2e-3
TURN = 10  # steps before it is the other's turn, in --compare
APART = 1e-5  # how far losses may be from PyTorch's, relatively, in the first turn: rounding grows with every step


def config_of(args: zoo.argparse.Namespace) -> fx.models.gpt.Config:
    return fx.models.gpt.Config(vocab=256, context=CONTEXTS[args.size], **MODELS[args.size])


def schedule(args: zoo.argparse.Namespace) -> Any:
    return fx.optim.warmup_cosine_decay_schedule(0.0, PEAK, max(1, args.steps // 20), args.steps + 1, PEAK / 20)


def decays(params: Any) -> Any:
    """Matrices decay; biases and the scales of norms do not. (Biases of one product for all heads have more axes than one.)"""
    return fx.tree.unflatten(
        fx.tree.structure(params),
        [path[-1].key not in ("b", "bias", "scale") for path, _ in fx.tree.flatten_with_path(params)[0]],
    )


def task(args: zoo.argparse.Namespace) -> zoo.Task:
    size, length, config = BATCHES[args.size], CONTEXTS[args.size], config_of(args)
    small = args.size == "small"
    text, held_out = zoo.python_sources(200_000 if small else None)
    return zoo.Task(
        name=args.name,
        describe=f"GPT, {config.layers} layers of width {config.width}, {config.heads} heads, context {length}, bytes",
        init=lambda key: fx.models.gpt.init(key, config),
        loss=fx.models.gpt.loss,
        batch=zoo.windows(fx.random.fold_in(fx.random.key(args.seed), 1), text, size, length),
        optimizer=fx.optim.chain(
            fx.optim.clip_by_global_norm(CLIP), fx.optim.adamw(schedule(args), b2=0.95, weight_decay=DECAY, mask=decays)
        ),
        evaluate=zoo.bits_per_byte(fx.models.gpt.loss, held_out, size, length, 2 if small else 16),
        measure="bits/byte",
        unit="tokens",
        per_step=size * length,
    )


def write(params: Any, args: zoo.argparse.Namespace) -> np.ndarray:
    """As much text as the context holds, after `def `."""
    prompt = np.frombuffer(b"def ", np.uint8).astype(np.int32)
    generate = fx.jit(fx.models.gpt.generate, static_argnames=("steps", "temperature", "top_k"))
    key = fx.random.fold_in(fx.random.key(args.seed), 2)
    return generate(params, prompt, CONTEXTS[args.size] - len(prompt), key, temperature=0.7, top_k=50)


# ---- the same in PyTorch -----------------------------------------------------------------------------------------------------


class Torch(NamedTuple):
    """The model in PyTorch: its tensors, as a tree like our parameters, and one step: (ids, rate) -> loss."""

    params: Any
    step: Any


def torch_loss(torch: Any, p: Any, ids: Any) -> Any:
    f = torch.nn.functional
    batch, length = ids.shape[0], ids.shape[1] - 1
    width = p["tokens"].shape[1]

    def norm(q: Any, x: Any) -> Any:
        return f.layer_norm(x, (width,), q["scale"], q["bias"], 1e-5)

    def dense(q: Any, x: Any) -> Any:
        return torch.addmm(q["b"], x.reshape(-1, x.shape[-1]), q["w"]).reshape(*x.shape[:-1], -1)

    x = f.embedding(ids[:, :-1], p["tokens"]) + p["positions"][:length]
    for b in p["blocks"]:
        qkv = b["attention"]["qkv"]
        heads = qkv["w"].shape[2]
        y = dense({"w": qkv["w"].reshape(width, -1), "b": qkv["b"].reshape(-1)}, norm(b["norm1"], x))
        q, k, v = y.reshape(batch, length, 3, heads, width // heads).permute(2, 0, 3, 1, 4)
        mixed = f.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(batch, length, width)
        x = x + dense(b["attention"]["out"], mixed)
        x = x + dense(b["mlp"]["down"], f.gelu(dense(b["mlp"]["up"], norm(b["norm2"], x)), approximate="tanh"))
    logits = norm(p["norm"], x) @ p["tokens"].T
    return f.cross_entropy(logits.reshape(-1, logits.shape[-1]), ids[:, 1:].reshape(-1))


def in_torch(torch: Any, params: Any) -> Torch:
    """The model in PyTorch with these weights; PyTorch's own layers, clipping, and fused AdamW."""
    tensors = fx.tree.map(lambda a: torch.from_numpy(np.array(a)).requires_grad_(), params)
    leaves, masks = fx.tree.leaves(tensors), fx.tree.leaves(decays(params))
    groups = [
        {"params": [t for t, m in zip(leaves, masks, strict=True) if m is wanted], "weight_decay": DECAY if wanted else 0.0}
        for wanted in (True, False)
    ]
    optimizer = torch.optim.AdamW(groups, lr=1.0, betas=(0.9, 0.95), eps=1e-8, fused=True)

    def step(ids: np.ndarray, rate: float) -> float:
        optimizer.zero_grad(set_to_none=True)
        loss = torch_loss(torch, tensors, torch.from_numpy(ids.astype(np.int64)))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(leaves, CLIP)
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.step()
        return loss.item()

    return Torch(tensors, step)


def compare(args: zoo.argparse.Namespace) -> int:
    """Train here and in PyTorch, from the same weights on the same batches; print losses and tokens a second.

    Some steps here, then the same in PyTorch, and so on: what else the machine does meets both, and the threads of one, which
    wait awake for a moment, do not stand in the way of the other but at the turns.
    """
    torch = zoo.need("torch")
    torch.set_num_threads(fx.get_num_threads())
    setup, rate = task(args), schedule(args)
    state = zoo.start(setup, args)
    params, optimizer = state["params"], state["optimizer"]
    other, update = in_torch(torch, params), zoo.make_update(setup)
    print(f"{setup.describe}; fxgrad {fx.__version__} and PyTorch {torch.__version__}, {fx.get_num_threads()} threads each\n")
    print(f"{'step':>5} {'loss here':>12} {'in PyTorch':>12} {'apart':>9} {'ms here':>9} {'PyTorch':>9}")
    ours: list[tuple[float, float]] = []  # (loss, seconds) of each step
    theirs: list[tuple[float, float]] = []
    for block in range(0, args.steps, TURN):
        steps = range(block, min(block + TURN, args.steps))
        batches = [setup.batch(step)[0] for step in steps]
        for ids in batches:
            begin = time.perf_counter()
            params, optimizer, loss = update(params, optimizer, ids)
            ours.append((float(loss), time.perf_counter() - begin))
        for step, ids in zip(steps, batches, strict=True):
            begin = time.perf_counter()
            theirs.append((other.step(ids, float(rate(step))), time.perf_counter() - begin))
        (a, s), (b, t) = ours[-1], theirs[-1]
        print(f"{steps[-1]:5} {a:12.6f} {b:12.6f} {abs(a - b) / abs(b):9.1e} {s * 1e3:9.1f} {t * 1e3:9.1f}", flush=True)
    apart = [abs(a - b) / abs(b) for (a, _), (b, _) in zip(ours, theirs, strict=True)]
    worst = max(apart[:TURN])
    rates = [setup.per_step / np.median([s for _, s in steps[1:] or steps]) for steps in (ours, theirs)]
    print(f"\ntokens a second: {rates[0]:,.0f} here, {rates[1]:,.0f} in PyTorch, {rates[0] / rates[1]:.2f} times as many")
    verdict = "PASS" if worst < APART else "FAIL"
    print(f"losses of {TURN} steps are at most {worst:.1e} apart, relatively: {verdict} (limit {APART:g}); all {max(apart):.1e}")
    found = {"tokens_a_second": rates[0], "pytorch_tokens_a_second": rates[1], "apart": worst, "steps": min(TURN, args.steps)}
    zoo.add_figures({"compare": {**found, "pytorch": torch.__version__}}, args)
    return 0 if worst < APART else 1


def main() -> int:
    args = zoo.parse(
        __doc__,
        "gpt",
        {"small": 30, "full": 1500},
        lambda p: p.add_argument(
            "--compare", action="store_true", help="the same in PyTorch, side by side (100 steps unless --steps)"
        ),
    )
    if args.compare:
        args.steps = args.steps if args.steps_given else min(args.steps, 100)
        return compare(args)
    params, figures = zoo.train(task(args), args)
    print(f"held out: {figures['held_out']:.3f} bits per byte")
    zoo.keep_sample(figures, write(params, args), Path(args.out))
    zoo.keep_figures(figures, args)
    return 0


if __name__ == "__main__":
    sys.exit(main())
