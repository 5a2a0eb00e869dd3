"""Logistic regression on scikit-learn's handwritten digits: `python examples/train_logistic_regression.py`.

A linear model of 64 pixels, trained by Nesterov's momentum; a few seconds.
"""

from __future__ import annotations

import zoo

import fxgrad as fx


def task(args: zoo.argparse.Namespace) -> zoo.Task:
    model = fx.models.linear
    optimizer = fx.optim.sgd(0.1, momentum=0.9, nesterov=True)
    return zoo.classify_digits(args, model, model.Config(64, 10), "linear, 64 to 10", optimizer, shape=(64,))


if __name__ == "__main__":
    options = zoo.parse(__doc__, "logistic_regression", {"small": 60, "full": 2000})
    zoo.keep_figures(zoo.train(task(options), options).figures, options)
