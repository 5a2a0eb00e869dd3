"""Models as modules of functions: a frozen `Config`, `init(key, config) -> params`, `apply(params, x, ...) -> outputs`.

    config = fx.models.gpt.Config(vocab=256, layers=6)
    params = fx.models.gpt.init(fx.random.key(0), config)
    logits = fx.models.gpt.apply(params, ids)

Parameters are dicts and lists of arrays, nothing else: fx.grad, fx.optim and fx.io take them as they are. Their shapes say all
that `apply` needs to know, so a config is only for `init`. Every function is pure and works under every transform.
"""

from fxgrad.models import convnet, gpt, linear, mlp, rnn, transformer_block

__all__ = ["convnet", "gpt", "linear", "mlp", "rnn", "transformer_block"]
