"""Functions and trees that travel to other processes: pickle by name, cloudpickle by value, kernels by the cache on disk."""

from __future__ import annotations

import copy
import io
import os
import pickle
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pytest

import fxgrad as fx
from fxgrad.testing.bits import assert_same_bits
from tests.four_parts import assert_four_parts, raised

ROOT = Path(__file__).resolve().parent.parent

# What a user defines in a script or a notebook. The parent computes and pickles, the child must find the same.
MAIN = """
import dataclasses
import numpy as np
import fxgrad as fx

x = np.array([1.0, 2.0, 3.0])
weights = np.array([0.5, -1.0, 2.0])

@fx.jit
def cubes(x):
    return np.sum(x ** 3 * weights)

@fx.checkpoint
def power(x, n=3):
    return x if n == 1 else x * power(x, n - 1)

@fx.custom_vjp
def clipped(x):
    return x
clipped.defvjp(lambda x: (x, None), lambda res, g: (np.clip(g, -1.0, 1.0),))

@fx.custom_jvp
def doubled(x):
    return np.sin(x)
doubled.defjvps(lambda t, y, x: 2.0 * t)

class Model:
    def __init__(self, scale):
        self.scale = scale

    @fx.jit
    def scaled(self_scale, x):
        return self_scale * x

    def loss(self, x):
        return self.scale * np.sum(x * x)

class Pair:
    def __init__(self, a, b):
        self.a, self.b = a, b
fx.tree.register_node(Pair, lambda p: ((p.a, p.b), None), lambda aux, xs: Pair(*xs))

@fx.tree.register_dataclass
@dataclasses.dataclass
class Layer:
    w: object
    rate: float = dataclasses.field(metadata={"static": True})

def scaled_by(c):
    return lambda x: np.sum(c * x * x)

optimizer = fx.optim.chain(
    fx.optim.clip_by_global_norm(1.0),
    fx.optim.adamw(fx.optim.warmup_cosine_decay_schedule(0.0, 1e-2, 5, 10), mask=lambda p: fx.tree.map(lambda w: w.ndim > 0, p)),
)

def step(params, state, x):
    loss, grads = fx.value_and_grad(lambda p: np.sum((p["w"] * x - 1.0) ** 2))(params)
    updates, state = optimizer.update(grads, state, params)
    return fx.optim.apply_updates(params, updates), state, loss

params = {"w": x.copy()}
CASES = {
    "lambda": (fx.jit(lambda x: np.tanh(x) * 2), (x,)),
    "closure": (fx.jit(fx.grad(scaled_by(3.0))), (x,)),
    "nested": (fx.jit(fx.vmap(fx.grad(fx.checkpoint(lambda x: np.sin(np.sin(x)))))), (x,)),
    "decorated": (cubes, (x,)),
    "grad of decorated": (fx.grad(cubes), (x,)),
    "recursive": (fx.vmap(fx.grad(power)), (x,)),
    "custom_vjp": (fx.jit(fx.grad(lambda x: np.sum(5.0 * clipped(x)))), (x,)),
    "custom_jvp": (fx.vmap(fx.grad(doubled)), (x,)),
    "jvp and hvp": (lambda x: fx.hvp(scaled_by(2.0), (x,), (x,)), (x,)),
    "hessian": (fx.jit(fx.hessian(lambda x: np.prod(x))), (x,)),
    "method": (fx.jit(fx.grad(Model(2.0).loss)), (x,)),
    "jitted method": (Model(2.0).scaled.__func__, (2.0, x)),
    "pullback": (fx.vjp(lambda x: np.sin(x) * x, x)[1], (x,)),
    "linearized": (fx.linearize(lambda x: np.sin(x) * x, x)[1], (x,)),
    "optimizer": (fx.jit(step, donate_argnums=(0, 1)), (params, optimizer.init(params), x)),
    "node": (fx.jit(lambda p: Pair(p.b, p.a * 2)), (Pair(x, weights),)),
    "dataclass": (fx.grad(lambda layer: np.sum(layer.w ** 2) * layer.rate), (Layer(x, 0.5),)),
}
"""
CHILD = """
import pickle, sys
import numpy as np
import fxgrad as fx
from fxgrad.testing.bits import assert_same_bits
for name, f, args, want in pickle.load(open(sys.argv[1], "rb")):
    got = f(*args)
    assert_same_bits(fx.tree.leaves(got), want)
from fxgrad.compile import cache
print(len(cache.generated), "numba" in sys.modules)
"""


def python(*arguments: str, **env: str) -> str:
    variables = {**os.environ, "PYTHONPATH": str(ROOT), **env}
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, timeout=120, env=variables, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_what_a_script_defines_travels_by_value_and_compiles_nothing(tmp_path: Path) -> None:
    """Every transform, also where a decorator replaced its function, as fresh process; its kernels come from the disk."""
    end = """
        import sys, copy, cloudpickle
        found = []
        for name, (f, args) in CASES.items():
            sent = cloudpickle.loads(cloudpickle.dumps(args))
            found.append((name, f, sent, fx.tree.leaves(f(*args))))
        with open(sys.argv[1], "wb") as file:
            cloudpickle.dump(found, file)
    """
    script, sent = tmp_path / "script.py", tmp_path / "sent.pickle"
    script.write_text(MAIN + textwrap.dedent(end))
    python(str(script), str(sent), FXGRAD_CACHE_DIR=str(tmp_path / "cache"))
    assert python("-c", CHILD, str(sent), FXGRAD_CACHE_DIR=str(tmp_path / "cache")).split() == ["0", "False"]


def test_plain_pickle_finds_what_a_script_defines_by_its_name(tmp_path: Path) -> None:
    """As multiprocessing does, whose children have the script as their own `__main__`."""
    end = """
        import pickle
        for f in (cubes, clipped, doubled, power):
            assert pickle.loads(pickle.dumps(f)) is f
        print(len(pickle.dumps(cubes)))
    """
    script = tmp_path / "script.py"
    script.write_text(MAIN + textwrap.dedent(end))
    assert int(python(str(script))) < 100


@fx.jit
def imported(x: Any) -> Any:
    return x * 2.0


def test_what_a_module_holds_travels_by_name() -> None:
    for dumps in (pickle.dumps, cloudpickle.dumps):
        assert pickle.loads(dumps(imported)) is imported
        assert len(dumps(imported)) < 100
    assert copy.deepcopy(imported) is imported


def test_modules_registered_to_travel_by_value_do(monkeypatch: pytest.MonkeyPatch) -> None:
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    try:
        other = pickle.loads(cloudpickle.dumps(imported))
    finally:
        cloudpickle.unregister_pickle_by_value(sys.modules[__name__])
    assert other is not imported
    assert_same_bits(other(np.ones(3)), imported(np.ones(3)))


def test_a_pickler_that_overrides_nothing_writes_names() -> None:
    class Pickler(pickle.Pickler):
        def dump(self, x: Any) -> None:
            super().dump(x)

        def reducer_override(self, x: Any) -> Any:
            return NotImplemented

    out = io.BytesIO()
    Pickler(out).dump(imported)
    assert pickle.loads(out.getvalue()) is imported


def test_options_of_jit_travel() -> None:
    f = pickle.loads(
        cloudpickle.dumps(fx.jit(lambda x, n, *, flag: x * n if flag else x, static_argnums=1, static_argnames="flag"))
    )
    assert f(np.ones(2), 3, flag=True)[0] == 3.0
    donating = pickle.loads(cloudpickle.dumps(fx.jit(lambda x: x + 1.0, donate_argnums=0)))
    x = np.ones(1000)
    donating(x)
    assert not x.flags.writeable


def test_what_belongs_to_this_process_says_so() -> None:
    lowered = fx.jit(lambda x: np.sin(x), donate_argnums=0).lower(np.ones(3))
    plain = fx.jit(lambda x: np.sin(x)).lower(np.ones(3))
    fix = "Pickle the jitted function"
    for x, kind in ((lowered, "lowered"), (lowered.compile(), "compiled"), (plain.compile(), "compiled")):
        error = raised(lambda x=x: pickle.dumps(x), fx.errors.FxTypeError)
        assert_four_parts(error, what=f"a {kind} program", line="pickle.dumps(x)", why="of this process", fix=fix)
        with pytest.raises(fx.errors.FxTypeError, match=kind):
            cloudpickle.dumps(x)

    def sends(x: Any) -> Any:
        pickle.dumps({"x": x})
        return x

    for transform in (fx.jit, fx.grad, fx.vmap):
        error = raised(lambda t=transform: t(sends)(np.ones(3)), fx.errors.FxTypeError)
        assert_four_parts(error, what="a traced f64[", line='pickle.dumps({"x": x})', why="this process", fix="Send arrays")
