"""Training on several processes: `python examples/scale_out.py`, by dask.distributed and by joblib, with the same bits as alone.

fxgrad has no engine of its own for many processes. Its functions pickle, so the engines that exist run them:

- a data-parallel step: each shard's gradient is a task. The shards and the order in which their gradients are added are fixed, so
  that the parameters are the same to the bit for any number of workers;
- a sweep: each task trains a model with its own settings, and so each curve is what it is alone.

The functions below are sent by value, because they stand in `__main__`. Those of a module go by name, and are then traced
once in each worker instead of once whenever they arrive. A worker uses one thread unless FXGRAD_NUM_THREADS says otherwise.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from sklearn.datasets import load_digits

import fxgrad as fx

SHARDS = 6
Params = dict[str, np.ndarray]
Batch = tuple[np.ndarray, np.ndarray]  # images (n, 64), labels (n,)
Engine = Callable[
    [Callable[[Any], Any], Sequence[Any]], list[Any]
]  # a map: the results of a function, in the order of its arguments


# ---- the model and its gradient, as for one process ------------------------------------------------------------------------


def digits(seed: int = 0) -> Batch:
    """The 1797 images of scikit-learn, in an order drawn once, as float32 between 0 and 1."""
    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(seed).permutation(len(labels))
    return (images[order] / 16).astype(np.float32), labels[order].astype(np.int32)


def initial(width: int, seed: int = 0) -> Params:
    rng = np.random.default_rng(seed)
    scaled = {"hidden": (64, width), "out": (width, 10)}
    params = {name: (rng.standard_normal(shape) / np.sqrt(shape[0])).astype(np.float32) for name, shape in scaled.items()}
    return params | {"hidden_bias": np.zeros(width, np.float32), "out_bias": np.zeros(10, np.float32)}


def logits(params: Params, images: Any) -> Any:
    hidden = fx.nn.gelu(images @ params["hidden"] + params["hidden_bias"])
    return hidden @ params["out"] + params["out_bias"]


def loss(params: Params, images: Any, labels: Any) -> Any:
    """The sum over the images, not the mean, so that sums of shards are the sum of all."""
    scores = fx.nn.log_softmax(logits(params, images))
    return -np.sum(np.take_along_axis(scores, labels[:, None], axis=1))


@fx.jit
def gradient(params: Params, images: Any, labels: Any) -> tuple[Any, Params]:
    """Loss and gradient of a shard."""
    return fx.value_and_grad(loss)(params, images, labels)


# ---- data parallel -----------------------------------------------------------------------------------------------------


def train(engine: Engine, steps: int, width: int) -> tuple[Params, float]:
    """Parameters after full-batch steps of AdamW, and the last mean loss; gradients of the shards are the engine's tasks."""
    images, labels = digits()
    shards = list(zip(np.array_split(images, SHARDS), np.array_split(labels, SHARDS), strict=True))
    optimizer = fx.optim.adamw(1e-2)

    @fx.jit
    def apply(params: Params, state: Any, parts: list[tuple[Any, Params]]) -> tuple[Params, Any, Any]:
        total = parts[0]
        for part in parts[1:]:  # in the order of the shards, whoever was first
            total = fx.tree.map(lambda a, b: a + b, total, part)
        value, grads = fx.tree.map(lambda x: x / np.float32(len(labels)), total)
        updates, state = optimizer.update(grads, state, params)
        return fx.optim.apply_updates(params, updates), state, value

    params, value = initial(width), np.float32(0)
    state = optimizer.init(params)
    for _ in range(steps):
        # A task is the parameters with a shard. For large data, scatter the shards once and send their futures.
        parts = engine(lambda task: gradient(*task), [(params, *shard) for shard in shards])
        params, state, value = apply(params, state, parts)
    return params, float(value)


# ---- a sweep -----------------------------------------------------------------------------------------------------------


def trial(setting: tuple[float, float], steps: int, width: int = 32) -> float:
    """The accuracy, on the images it did not see, of a model trained with a learning rate and a weight decay."""
    rate, decay = setting
    images, labels = digits()
    optimizer = fx.optim.adamw(rate, weight_decay=decay)

    @fx.jit
    def step(params: Params, state: Any) -> tuple[Params, Any]:
        grads = fx.grad(loss)(params, images[:1200], labels[:1200])
        updates, state = optimizer.update(fx.tree.map(lambda g: g / 1200, grads), state, params)
        return fx.optim.apply_updates(params, updates), state

    params = initial(width)
    state = optimizer.init(params)
    for _ in range(steps):
        params, state = step(params, state)
    return float(np.mean(np.argmax(logits(params, images[1200:]), axis=1) == labels[1200:]))


SETTINGS = list(itertools.product((1e-3, 1e-2, 1e-1), (0.0, 1e-2)))


# ---- engines -----------------------------------------------------------------------------------------------------------


@contextmanager
def alone(workers: int) -> Iterator[Engine]:
    yield lambda f, items: list(map(f, items))


@contextmanager
def dask(workers: int) -> Iterator[Engine]:
    from distributed import Client, LocalCluster

    with (
        LocalCluster(n_workers=workers, threads_per_worker=1, processes=True, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        # pure=False: dask would take tasks with equal arguments for one.
        yield lambda f, items: client.gather(client.map(f, items, pure=False))


@contextmanager
def joblib(workers: int) -> Iterator[Engine]:
    from joblib import Parallel, delayed

    with Parallel(n_jobs=workers) as parallel:
        yield lambda f, items: parallel(delayed(f)(x) for x in items)


ENGINES = {"alone": alone, "dask": dask, "joblib": joblib}


def threads(_: Any) -> int:
    return fx.get_num_threads()


def digest(params: Params) -> str:
    """Equal for equal bits."""
    return hashlib.sha256(b"".join(x.tobytes() for x in fx.tree.leaves(params))).hexdigest()[:16]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--engines", nargs="+", choices=ENGINES, default=list(ENGINES))
    parser.add_argument("--workers", nargs="+", type=int, default=[1, 2, 3, 4])
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--sweep-steps", type=int, default=50)
    parser.add_argument("--width", type=int, default=64)
    args = parser.parse_args()
    found = set()
    print(f"{'engine':8} workers  threads  step [ms]  loss    digest of parameters  sweep [s]  accuracies")
    for name in args.engines:
        for workers in args.workers if name != "alone" else [1]:
            with ENGINES[name](workers) as engine:
                counts = engine(threads, range(workers))
                train(engine, 1, args.width)  # workers start, import and load kernels
                start = time.perf_counter()
                params, value = train(engine, args.steps, args.width)
                trained = time.perf_counter()
                accuracies = engine(lambda setting: trial(setting, args.sweep_steps), SETTINGS)
                swept = time.perf_counter() - trained
            found.add((digest(params), value, *accuracies))
            figures = f"{max(counts):7}  {(trained - start) / args.steps * 1e3:9.1f}  {value:.4f}  {digest(params)}  {swept:9.2f}"
            print(f"{name:8} {workers:7}  {figures}      {' '.join(f'{a:.3f}' for a in accuracies)}", flush=True)
    print("The same bits everywhere." if len(found) == 1 else "The bits DIFFER.")
    return len(found) != 1


if __name__ == "__main__":
    sys.exit(main())
