"""A multilayer perceptron on scikit-learn's handwritten digits: `python examples/train_mlp.py`.

Two hidden layers, trained by Adam with a rate that falls along a cosine; a few seconds.
"""

from __future__ import annotations

import zoo

import fxgrad as fx


def task(args: zoo.argparse.Namespace) -> zoo.Task:
    model = fx.models.mlp
    optimizer = fx.optim.adam(fx.optim.cosine_decay_schedule(2e-3, args.steps))
    return zoo.classify_digits(args, model, model.Config(64, 10, (128, 64)), "mlp, 64-128-64-10", optimizer, shape=(64,))


if __name__ == "__main__":
    options = zoo.parse(__doc__, "mlp", {"small": 60, "full": 2000})
    zoo.keep_figures(zoo.train(task(options), options).figures, options)
