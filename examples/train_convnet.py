"""A convolutional network on scikit-learn's handwritten digits: `python examples/train_convnet.py`.

Two stages of convolution and pooling, trained by AdamW with a rate that falls along a cosine; well under a minute.
"""

from __future__ import annotations

import zoo

import fxgrad as fx


def task(args: zoo.argparse.Namespace) -> zoo.Task:
    model = fx.models.convnet
    config = model.Config((8, 8, 1), 10, (8, 16) if args.size == "small" else (32, 64))
    optimizer = fx.optim.adamw(fx.optim.cosine_decay_schedule(4e-3, args.steps), weight_decay=1e-3)
    channels = "-".join(map(str, config.channels))
    return zoo.classify_digits(args, model, config, f"convnet, 3x3 filters {channels}", optimizer, shape=config.shape)


if __name__ == "__main__":
    options = zoo.parse(__doc__, "convnet", {"small": 120, "full": 1000})
    zoo.keep_figures(zoo.train(task(options), options).figures, options)
