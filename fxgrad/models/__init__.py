"""Models as modules of functions: a frozen `Config`, `init(key, config) -> params`, `apply(params, x, ...) -> outputs`.

    config = fx.models.gpt.Config(vocab=256, layers=6)
    params = fx.models.gpt.init(fx.random.key(0), config)
    logits = fx.models.gpt.apply(params, ids)

Parameters are dicts and lists of arrays, nothing else: fx.grad, fx.optim and fx.io take them as they are. Their shapes say all
that `apply` needs to know, so a config is only for `init`. Every function is pure and works under every transform.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fxgrad.models import convnet, gpt, linear, mlp, rnn, transformer_block

__all__ = ["convnet", "gpt", "linear", "mlp", "rnn", "transformer_block"]


def __getattr__(name: str) -> Any:
    """A model, imported when it is first asked for: `import fxgrad` does not wait for it."""
    if name not in __all__:
        raise AttributeError(f"module 'fxgrad.models' has no attribute '{name}'; it has {', '.join(__all__)}")
    return import_module(f"fxgrad.models.{name}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
