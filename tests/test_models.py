"""fx.models beside PyTorch, loss and every parameter's gradient; in every mode, to the bit; generation; messages."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fxgrad as fx
import fxgrad.numpy as fnp
from fxgrad.models import convnet, gpt, linear, mlp, rnn, transformer_block
from fxgrad.testing.bits import assert_same_bits
from tests.four_parts import assert_four_parts

torch = pytest.importorskip("torch")
F = torch.nn.functional
torch.set_num_threads(1)

LIMITS = {"float32": 1e-5, "float64": 1e-11}
KEY = fx.random.key(0)
rng = np.random.default_rng(0)

SMALL = {"vocab": 17, "context": 16, "layers": 2, "heads": 2, "width": 8}
IDS = rng.integers(0, 17, (3, 13))
IMAGES = rng.standard_normal((5, 8, 9, 2))
X, LABELS = rng.standard_normal((5, 6)), rng.integers(0, 4, 5)
SEQUENCES, TARGETS = rng.standard_normal((3, 7, 6)), rng.integers(0, 4, (3, 7))


def same(mine: Any, other: Any) -> None:
    """Trees of one structure, with the same bits."""
    fx.tree.check_same(fx.tree.structure(mine), fx.tree.structure(other), "the two")
    for a, b in zip(fx.tree.leaves(mine), fx.tree.leaves(other), strict=True):
        assert_same_bits(a, b)


def moved(params: Any, scale: float = 0.3) -> Any:
    """Parameters of which none is zero or one, so that no gradient is zero and no factor can be missed."""
    r = np.random.default_rng(1)
    return fx.tree.map(lambda p: (p * 3 + scale * r.standard_normal(p.shape)).astype(p.dtype), params)


# ---- the same models in PyTorch ----------------------------------------------------------------------------------------------


def torch_dense(p: Any, x: Any) -> Any:
    return F.linear(x, p["w"].T, p["b"])


def torch_mlp(p: Any, x: Any, labels: Any) -> Any:
    for layer in p["layers"][:-1]:
        x = F.relu(torch_dense(layer, x))
    return F.cross_entropy(torch_dense(p["layers"][-1], x), labels)


def torch_convnet(p: Any, x: Any, labels: Any) -> Any:
    x = x.movedim(-1, 1)
    for layer in p["convs"]:
        x = F.max_pool2d(F.relu(F.conv2d(x, layer["w"].permute(3, 2, 0, 1), layer["b"], padding="same")), 2)
    return F.cross_entropy(torch_dense(p["head"], x.movedim(1, -1).reshape(len(x), -1)), labels)


def torch_rnn(p: Any, x: Any, labels: Any) -> Any:
    """torch.nn's own modules, with our parameters in their places."""
    for cell in p["cells"]:
        n, gates, hidden = cell["input"]["w"].shape
        module = {1: torch.nn.RNN, 3: torch.nn.GRU, 4: torch.nn.LSTM}[gates](n, hidden, batch_first=True).to(x.dtype)
        weights = {
            f"{kind}_{ours}_l0": value.movedim(0, -1).reshape(gates * hidden, -1) if kind == "weight" else value.reshape(-1)
            for ours, part in (("ih", cell["input"]), ("hh", cell["recurrent"]))
            for kind, value in (("weight", part["w"]), ("bias", part["b"]))
        }
        x, _ = torch.func.functional_call(module, weights, (x,))
    return F.cross_entropy(torch_dense(p["head"], x).reshape(-1, 4), labels.reshape(-1))


def torch_block(p: Any, x: Any) -> Any:
    width = x.shape[-1]
    w, b = p["attention"]["qkv"]["w"], p["attention"]["qkv"]["b"]
    h = F.layer_norm(x, (width,), p["norm1"]["scale"], p["norm1"]["bias"])
    qkv = (h @ w.reshape(width, -1) + b.reshape(-1)).reshape(*x.shape[:-1], *b.shape)
    q, k, v = (qkv[..., i, :, :].transpose(-3, -2) for i in range(3))
    mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(-3, -2).reshape(x.shape)
    x = x + torch_dense(p["attention"]["out"], mixed)
    h = F.layer_norm(x, (width,), p["norm2"]["scale"], p["norm2"]["bias"])
    return x + torch_dense(p["mlp"]["down"], F.gelu(torch_dense(p["mlp"]["up"], h), approximate="tanh"))


def torch_gpt(p: Any, ids: Any) -> Any:
    inputs = ids[..., :-1]
    x = F.embedding(inputs, p["tokens"]) + p["positions"][: inputs.shape[-1]]
    for q in p["blocks"]:
        x = torch_block(q, x)
    x = F.layer_norm(x, x.shape[-1:], p["norm"]["scale"], p["norm"]["bias"])
    logits = x @ (p["head"] if "head" in p else p["tokens"].T)
    return F.cross_entropy(logits.reshape(-1, logits.shape[-1]), ids[..., 1:].reshape(-1))


def weighted(y: Any) -> Any:
    """A loss of a block's outputs that treats each differently."""
    wave = np.cos(np.arange(8))
    return (y * (torch.from_numpy(wave).to(y.dtype) if isinstance(y, torch.Tensor) else wave.astype(y.dtype))).mean()


CELLS = {cell: rnn.Config(6, 4, hidden=5, layers=2, cell=cell) for cell in rnn.GATES}
# name: (module, config, our loss, PyTorch's, data)
MODELS: dict[str, tuple[Any, Any, Any, Any, tuple[np.ndarray, ...]]] = {
    "linear": (linear, linear.Config(6, 4), linear.loss, lambda p, x, y: F.cross_entropy(torch_dense(p, x), y), (X, LABELS)),
    "mlp": (mlp, mlp.Config(6, 4, (7, 5)), mlp.loss, torch_mlp, (X, LABELS)),
    "convnet": (convnet, convnet.Config((8, 9, 2), 4, (3, 5)), convnet.loss, torch_convnet, (IMAGES, LABELS)),
    **{cell: (rnn, config, rnn.loss, torch_rnn, (SEQUENCES, TARGETS)) for cell, config in CELLS.items()},
    "transformer_block": (
        transformer_block,
        transformer_block.Config(8, 2),
        lambda p, x: weighted(transformer_block.apply(p, x)),
        lambda p, x: weighted(torch_block(p, x)),
        (rng.standard_normal((3, 6, 8)),),
    ),
    "gpt": (gpt, gpt.Config(**SMALL), gpt.loss, torch_gpt, (IDS,)),
    "gpt untied": (gpt, gpt.Config(**SMALL, tied=False), gpt.loss, torch_gpt, (IDS,)),
}


def problem(name: str, dtype: str) -> tuple[Any, list[np.ndarray]]:
    module, config, _, _, data = MODELS[name]
    import dataclasses

    params = moved(module.init(KEY, dataclasses.replace(config, dtype=dtype)))
    return params, [d.astype(dtype) if d.dtype.kind == "f" else d for d in data]


@pytest.mark.parametrize("dtype", LIMITS)
@pytest.mark.parametrize("name", MODELS)
def test_loss_and_gradients_are_pytorchs(name: str, dtype: str) -> None:
    _, _, ours, theirs, _ = MODELS[name]
    params, data = problem(name, dtype)
    y, gradients = fx.value_and_grad(ours)(params, *data)
    tensors = fx.tree.map(lambda p: torch.from_numpy(p.copy()).requires_grad_(), params)
    expected = theirs(tensors, *[torch.from_numpy(d) for d in data])
    expected.backward()
    assert y.dtype == dtype and abs(y - expected.item()) <= LIMITS[dtype] * abs(expected.item())
    flat, _ = fx.tree.flatten_with_path(gradients)
    for (path, g), t in zip(flat, fx.tree.leaves(tensors), strict=True):
        other = t.grad.numpy()
        assert g.shape == other.shape and g.dtype == dtype
        # relative to the whole array: the key's bias has no gradient but rounding, the query's beside it does
        assert np.abs(g - other).max() <= LIMITS[dtype] * np.abs(other).max(), path


@pytest.mark.parametrize("name", MODELS)
def test_modes_have_the_same_bits(name: str) -> None:
    _, _, ours, _, _ = MODELS[name]
    params, data = problem(name, "float32")
    step = fx.value_and_grad(ours)
    want = step(params, *data)
    compiled = fx.jit(step)
    same(compiled(params, *data), want)
    same(fx.value_and_grad(fx.checkpoint(ours))(params, *data), want)
    several = [np.stack([d, d[::-1]]) for d in data]
    batched = fx.jit(fx.vmap(step, in_axes=(None, *(0 for _ in data))))(params, *several)
    same(fx.tree.map(lambda v: v[0], batched), want)
    same(fx.tree.map(lambda v: v[1], batched), step(params, *[d[::-1] for d in data]))


@pytest.mark.parametrize("name", MODELS)
def test_ensembles_are_their_members(name: str) -> None:
    """vmap over parameters: several models at once on the same data, each with the bits it has alone."""
    _, _, ours, _, _ = MODELS[name]
    params, data = problem(name, "float32")
    members = [params, fx.tree.map(lambda p: p[::-1].copy(), params)]
    step = fx.value_and_grad(ours)
    together = fx.vmap(step, in_axes=(0, *(None for _ in data)))(fx.tree.map(lambda *p: np.stack(p), *members), *data)
    for i, member in enumerate(members):
        same(fx.tree.map(lambda v, i=i: v[i], together), step(member, *data))


@pytest.mark.parametrize("name", MODELS)
def test_configs_and_parameters(name: str) -> None:
    module, config, _, _, _ = MODELS[name]
    assert hash(config) == hash(module.Config(**vars(config))) and config == module.Config(**vars(config))
    params = module.init(KEY, config)
    assert all(type(p) is np.ndarray and p.dtype == np.float32 for p in fx.tree.leaves(params))
    same(fx.jit(lambda key: module.init(key, config))(KEY), params)
    keys = fx.random.split(KEY, 2)
    ensembles = fx.vmap(lambda key: module.init(key, config))(keys)
    same(fx.tree.map(lambda v: v[1], ensembles), module.init(keys[1], config))


# ---- gpt -----------------------------------------------------------------------------------------------------------------------


def small_gpt(**changes: Any) -> Any:
    return moved(gpt.init(KEY, gpt.Config(**{**SMALL, **changes})))


def test_checkpointed_blocks_have_the_same_bits() -> None:
    params = small_gpt()
    plain = fx.value_and_grad(gpt.loss)(params, IDS)
    for mode in ("block", "sqrt", "log"):
        kept = fx.value_and_grad(lambda p, mode=mode: gpt.loss(p, IDS, checkpoint=mode))
        same(kept(params), plain)
        same(fx.jit(kept)(params), plain)
    dropped = [fx.value_and_grad(lambda p, c=c: gpt.loss(p, IDS, c, dropout=0.3, key=KEY))(params) for c in ("block", None)]
    same(*dropped)
    assert dropped[0][0] != plain[0]


def test_checkpointed_blocks_need_less_memory() -> None:
    params = gpt.init(KEY, gpt.Config(vocab=32, context=64, layers=6, heads=2, width=32))
    ids = np.zeros((4, 65), int)

    def temp(mode: str | None) -> int:
        step = fx.jit(fx.value_and_grad(lambda p, ids: gpt.loss(p, ids, mode)))
        return step.lower(params, ids).compile().memory_analysis().temp_bytes

    assert temp("block") < 0.5 * temp(None)


def test_training_learns() -> None:
    """A few steps of AdamW on one sequence: the loss falls far below that of guessing."""
    params, optimizer = gpt.init(KEY, gpt.Config(**SMALL)), fx.optim.adamw(1e-2)

    @fx.jit
    def step(params: Any, state: Any) -> Any:
        loss, g = fx.value_and_grad(gpt.loss)(params, IDS)
        updates, state = optimizer.update(g, state, params)
        return fx.optim.apply_updates(params, updates), state, loss

    state = optimizer.init(params)
    losses = []
    for _ in range(60):
        params, state, loss = step(params, state)
        losses.append(float(loss))
    assert abs(losses[0] - np.log(17)) < 0.1 and losses[-1] < 0.3 * losses[0]


@pytest.mark.parametrize("shape", [(5,), (2, 1)])
@pytest.mark.parametrize("tied", [True, False])
def test_generated_tokens_are_those_of_the_logits(shape: tuple[int, ...], tied: bool) -> None:
    """With kept keys and values each step has the very logits of the whole sequence, padded to its final length."""
    params, prompt, steps = small_gpt(tied=tied), IDS[0, : np.prod(shape)].reshape(shape), 6
    greedy = gpt.generate(params, prompt, steps, temperature=0.0)
    total = shape[-1] + steps
    assert greedy.shape == (*shape[:-1], total) and greedy.dtype == prompt.dtype
    same(greedy[..., : shape[-1]], prompt)
    for t in range(shape[-1], total):
        padded = np.where(np.arange(total) < t, greedy, 0)
        same(greedy[..., t], np.argmax(gpt.apply(params, padded)[..., t - 1, :], axis=-1))


def test_cached_logits_have_the_bits_of_the_whole_sequence() -> None:
    params, ids = small_gpt(), IDS[:, :9]
    whole = gpt.apply(params, ids)
    cache = [transformer_block.empty_cache(p, (3,), 9) for p in params["blocks"]]
    first, cache = gpt._continue(params, ids[:, :4], cache, 0)
    same(first, whole[:, 3])
    for t in range(4, 9):
        logits, cache = gpt._continue(params, ids[:, t : t + 1], cache, t)
        same(logits, whole[:, t])


def test_sampling() -> None:
    params, prompt = small_gpt(), IDS[:2, :3]
    many = gpt.generate(params, prompt, 8, KEY, 0.7, 4)
    compiled = fx.jit(gpt.generate, static_argnames=("steps", "temperature", "top_k"))
    same(compiled(params, prompt, steps=8, key=KEY, temperature=0.7, top_k=4), many)
    same(gpt.generate(params, prompt, 5, KEY, 0.7, 4)[:, :4], many[:, :4])
    assert (gpt.generate(params, prompt, 8, fx.random.key(1), 0.7, 4) != many).any()
    same(gpt.generate(params, prompt, 8, KEY, 3.0, 1), gpt.generate(params, prompt, 8, temperature=0))
    same(gpt.generate(params, prompt, 0, KEY), prompt)
    both = fx.vmap(lambda p: gpt.generate(params, p, 4, KEY, 0.7))(prompt)
    same(both, np.stack([gpt.generate(params, p, 4, KEY, 0.7) for p in prompt]))
    logits = np.log(np.array([0.5, 0.3, 0.15, 0.05]))
    draws = fx.vmap(lambda k: gpt._sample(logits, k, 0, 1.0, 2))(fx.random.split(KEY, 2000))
    assert set(draws.tolist()) == {0, 1} and abs((draws == 0).mean() - 0.625) < 0.04


def test_step_of_rnn_is_apply() -> None:
    for config in CELLS.values():
        params = moved(rnn.init(KEY, config))
        x = SEQUENCES.astype(np.float32)
        state, ys = rnn.initial_state(params, (3,)), []
        for t in range(7):
            state, y = rnn.step(params, state, x[:, t])
            ys.append(y)
        same(np.stack(ys, 1), rnn.apply(params, x))
    last, labels = rnn.apply(params, x)[:, -1], TARGETS[:, -1]
    same(rnn.loss(params, x, labels), fnp.mean(fx.nn.softmax_cross_entropy_with_integer_labels(last, labels)))


# ---- messages ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "make, what",
    [
        (lambda: linear.Config(0, 3), "models.linear.Config got inputs=0"),
        (lambda: linear.Config(3, 2.0), "outputs=2.0"),
        (lambda: mlp.Config(3, 2, hidden=[4]), "hidden=[4]"),
        (lambda: mlp.Config(3, 2, hidden=(4, -1)), "hidden=(4, -1)"),
        (lambda: convnet.Config((8, 8), 10), "shape=(8, 8)"),
        (lambda: convnet.Config((8, 8, 1), 10, ()), "channels=()"),
        (lambda: convnet.Config((8, 8, 1), 10, (4, 4, 4, 4)), "channels=(4, 4, 4, 4)"),
        (lambda: convnet.Config((8, 8, 1), 10, window=0), "window=0"),
        (lambda: rnn.Config(3, 2, cell="transformer"), "cell='transformer'"),
        (lambda: transformer_block.Config(10, 3), "heads=3"),
        (lambda: gpt.Config(width=100, heads=6), "heads=6"),
        (lambda: gpt.Config(layers=True), "layers=True"),
        (lambda: gpt.Config(dtype="int64"), "models.gpt.Config got dtype='int64'"),
    ],
)
def test_config_messages(make: Any, what: str) -> None:
    with pytest.raises(ValueError, match="Config got") as caught:
        make()
    parts = str(caught.value).split("\n  ")
    assert len(parts) == 4 and what in parts[0] and parts[3].startswith("Pass ")


@pytest.mark.parametrize("shape", [(8, 9), (2, 8, 9, 3), (2, 16, 9, 2), (2, 2, 9, 2)])
def test_convnet_messages(shape: tuple[int, ...]) -> None:
    params = convnet.init(KEY, convnet.Config((8, 9, 2), 4, (3, 5)))
    with pytest.raises(ValueError, match="images") as caught:
        convnet.apply(params, np.zeros(shape, np.float32))  # others
    assert_four_parts(caught.value, what=f"images of shape {shape}", line="others", why="channels last", fix="x[..., None]")


def test_gpt_messages() -> None:
    params = small_gpt()
    with pytest.raises(ValueError, match="context") as caught:
        gpt.apply(params, np.zeros((2, 17), int))  # long
    assert_four_parts(
        caught.value, what="ids of shape (2, 17), its context is 16", line="long", why="position", fix="ids[..., -16:]"
    )
    with pytest.raises(ValueError, match="checkpoint") as caught:
        gpt.apply(params, IDS, checkpoint="layer")  # unknown
    assert_four_parts(caught.value, what="checkpoint='layer'", line="unknown", why="computed again", fix='"block"')
    with pytest.raises(IndexError, match="17 is out of bounds"):
        gpt.apply(params, np.full((2, 3), 17))
    with pytest.raises(ValueError, match="rnn") as caught:
        rnn.apply(rnn.init(KEY, CELLS["gru"]), np.zeros(6))  # no time
    assert_four_parts(caught.value, what="x of shape (6,)", line="no time", why="sequences", fix="models.rnn.step")


@pytest.mark.parametrize(
    "kwargs, what",
    [
        ({"steps": -1}, "steps=-1"),
        ({"temperature": -1.0}, "temperature=-1.0"),
        ({"top_k": 0}, "top_k=0"),
        ({"key": None}, "no key"),
        ({"prompt": np.zeros((2, 0), int)}, "a prompt of shape (2, 0)"),
        ({"steps": 14}, "and 14 steps, its context is 16"),
    ],
)
def test_generate_messages(kwargs: dict[str, Any], what: str) -> None:
    with pytest.raises(ValueError, match="models.gpt") as caught:
        gpt.generate(small_gpt(), **{"prompt": IDS[:, :3], "steps": 2, "key": KEY, **kwargs})  # wrong
    fix = "ids[..., -16:]" if "context" in what else "generate(params"
    assert_four_parts(caught.value, what=what, line="wrong", why="of", fix=fix)


def test_models_are_imported_when_asked_for() -> None:
    """`import fxgrad` has the names, and does not pay for them."""
    import subprocess
    import sys

    code = (
        "import sys, fxgrad as fx; assert 'fxgrad.models.gpt' not in sys.modules; "
        "assert set(fx.models.__all__) <= set(dir(fx.models)); [getattr(fx.models, m).Config for m in fx.models.__all__]"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    with pytest.raises(AttributeError, match="no attribute 'resnet'; it has convnet, gpt"):
        _ = fx.models.resnet
