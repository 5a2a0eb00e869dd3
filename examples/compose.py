"""Transformations compose in any order and keep their bits: `python examples/compose.py`, a small regression in plain NumPy.

Each paragraph of the output is one claim, checked here by an assertion. "Same bits" means equal in every bit; where two ways
add numbers in a different order, only closeness can hold, and the text says so.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

import fxgrad as fx

Params = dict[str, Any]


def predict(p: Params, x: Any) -> Any:
    """A network with one hidden layer for one example x of shape (features,)."""
    hidden = np.tanh(np.sum(x[:, None] * p["inner"], axis=0) + p["shift"])
    return np.sum(hidden * p["outer"])


def loss_of_one(p: Params, x: Any, y: Any) -> Any:
    return (predict(p, x) - y) ** 2


def loss(p: Params, xs: Any, ys: Any) -> Any:
    """Mean squared error over a batch, and a ridge penalty."""
    errors = fx.vmap(loss_of_one, in_axes=(None, 0, 0))(p, xs, ys)
    return np.mean(errors) + 1e-3 * sum(np.sum(w * w) for w in p.values())


def make_data(examples: int, features: int, hidden: int) -> tuple[Params, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    xs = rng.standard_normal((examples, features))
    ys = np.sin(xs[:, 0]) + 0.1 * rng.standard_normal(examples)
    params = {
        "inner": rng.standard_normal((features, hidden)) / np.sqrt(features),
        "shift": np.zeros(hidden),
        "outer": rng.standard_normal(hidden) / np.sqrt(hidden),
    }
    return params, xs, ys


def same_bits(a: Any, b: Any) -> bool:
    """Whether two trees of arrays have the same structure, dtypes, shapes and bits."""
    pairs = list(zip(fx.tree.leaves(a), fx.tree.leaves(b), strict=True))
    return fx.tree.structure(a) == fx.tree.structure(b) and all(
        np.asarray(x).dtype == np.asarray(y).dtype
        and np.shape(x) == np.shape(y)
        and np.asarray(x).tobytes() == np.asarray(y).tobytes()
        for x, y in pairs
    )


def largest_difference(a: Any, b: Any) -> float:
    return max(float(np.max(np.abs(x - y))) for x, y in zip(fx.tree.leaves(a), fx.tree.leaves(b), strict=True))


def say(claim: str) -> None:
    print(f"  {claim}")


def gradients_and_jit(p: Params, xs: np.ndarray, ys: np.ndarray) -> None:
    print("\nCompiling")
    g = fx.grad(loss)(p, xs, ys)
    assert same_bits(g, fx.grad(fx.jit(loss))(p, xs, ys))
    assert same_bits(g, fx.jit(fx.grad(loss))(p, xs, ys))
    assert same_bits(g, fx.jit(fx.grad(fx.jit(loss)))(p, xs, ys))
    say("grad(f) == grad(jit(f)) == jit(grad(f)) == jit(grad(jit(f))): same bits")
    h = 1e-5
    direction = {k: np.ones_like(w) for k, w in p.items()}
    ahead, behind = (loss({k: p[k] + s * h * direction[k] for k in p}, xs, ys) for s in (1, -1))
    slope = sum(np.sum(g[k] * direction[k]) for k in p)
    assert abs(slope - (ahead - behind) / (2 * h)) < 1e-7
    say(f"the slope along all ones is {slope:.6f}, by central differences {(ahead - behind) / (2 * h):.6f}")


def memory(p: Params, xs: np.ndarray, ys: np.ndarray) -> None:
    print("\nCheckpointing")

    def checkpointed(p: Params, xs: Any, ys: Any) -> Any:
        errors = fx.vmap(fx.checkpoint(loss_of_one), in_axes=(None, 0, 0))(p, xs, ys)
        return np.mean(errors) + 1e-3 * sum(np.sum(w * w) for w in p.values())

    g = fx.grad(loss)(p, xs, ys)
    assert same_bits(g, fx.grad(checkpointed)(p, xs, ys))
    assert same_bits(g, fx.jit(fx.grad(fx.checkpoint(loss)))(p, xs, ys))
    say("grad(checkpoint(f)) == grad(vmap(checkpoint(f))) == grad(f): recomputed on the way back, same bits")


def examples_one_by_one(p: Params, xs: np.ndarray, ys: np.ndarray) -> None:
    print("\nPer-example gradients")
    one = fx.grad(loss_of_one)
    many = fx.vmap(one, in_axes=(None, 0, 0))
    rows = many(p, xs, ys)
    for i in range(len(xs)):
        assert same_bits({k: np.ascontiguousarray(w[i]) for k, w in rows.items()}, one(p, xs[i], ys[i]))
    say(f"vmap(grad(f)) == grad(f) in a Python loop over {len(xs)} examples: same bits")
    assert same_bits(rows, fx.jit(many)(p, xs, ys))
    assert same_bits(rows, fx.jit(fx.vmap(fx.grad(fx.checkpoint(loss_of_one)), in_axes=(None, 0, 0)))(p, xs, ys))
    say("jit(vmap(grad(checkpoint(f)))) == vmap(grad(f)): same bits")
    mean = {k: np.mean(w, axis=0) + 2e-3 * p[k] for k, w in rows.items()}
    difference = largest_difference(mean, fx.grad(loss)(p, xs, ys))
    assert difference < 1e-14
    say(f"their mean, with the penalty's part, is the gradient of the mean to {difference:.0e} (sums in another order)")
    norms = np.sqrt(sum(np.sum(w.reshape(len(xs), -1) ** 2, axis=1) for w in rows.values()))
    say(f"their norms run from {norms.min():.3f} to {norms.max():.3f}: example {norms.argmax()} pulls hardest")


def second_order(p: Params, xs: np.ndarray, ys: np.ndarray) -> None:
    print("\nSecond derivatives")

    def of_outer(w: Any) -> Any:
        return loss({**p, "outer": w}, xs, ys)

    w = p["outer"]
    hessian = fx.hessian(of_outer)(w)
    assert same_bits(hessian, fx.jit(fx.hessian(of_outer))(w))
    assert same_bits(hessian, fx.jacfwd(fx.jacrev(of_outer))(w))
    say("hessian(f) == jacfwd(jacrev(f)) == jit(hessian(f)): same bits")
    twice = fx.jacrev(fx.grad(of_outer))(w)
    apart, asymmetry = largest_difference(hessian, twice), largest_difference(hessian, hessian.T)
    assert max(apart, asymmetry) < 1e-13
    say(f"reverse over reverse agrees to {apart:.0e}; H and its transpose differ by {asymmetry:.0e}")
    v = np.linspace(-1.0, 1.0, len(w))
    _, pushed = fx.jvp(fx.grad(of_outer), (w,), (v,))
    assert same_bits(pushed, fx.hvp(of_outer, (w,), (v,)))
    assert same_bits(pushed, fx.jit(lambda w, v: fx.jvp(fx.grad(of_outer), (w,), (v,))[1])(w, v))
    apart = largest_difference(pushed, hessian @ v)
    assert apart < 1e-13
    say(f"jvp(grad(f)) along v == hvp == jit of it: same bits; it is H @ v to {apart:.0e}, without forming H")
    step = np.linalg.solve(hessian, fx.grad(of_outer)(w))
    after = np.max(np.abs(fx.grad(of_outer)(w - step)))
    assert after < 1e-13
    say(f"f is quadratic in the outer weights: one Newton step leaves a gradient of {after:.0e}")


def training(p: Params, xs: np.ndarray, ys: np.ndarray, steps: int) -> None:
    print("\nTraining")
    step = fx.value_and_grad(loss)
    results = {}
    for name, run in (("eager", step), ("jit", fx.jit(step))):
        q, value = p, None
        for _ in range(steps):
            value, g = run(q, xs, ys)
            q = {k: q[k] - 0.3 * g[k] for k in q}
        results[name] = (q, value)
    assert same_bits(results["eager"], results["jit"])
    start, end = loss(p, xs, ys), results["jit"][1]
    assert end < start
    say(f"{steps} steps take the loss from {start:.4f} to {end:.4f}; eager and jit arrive at the same weights: same bits")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=30, help="training steps of the last part")
    args = parser.parse_args()
    p, xs, ys = make_data(examples=40, features=3, hidden=8)
    print(f"Regression on {len(xs)} examples with a network of {sum(w.size for w in p.values())} weights, float64")
    gradients_and_jit(p, xs, ys)
    memory(p, xs, ys)
    examples_one_by_one(p, xs, ys)
    second_order(p, xs, ys)
    training(p, xs, ys, args.steps)
    print("\nAll of it holds.")


if __name__ == "__main__":
    main()
