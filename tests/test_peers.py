"""What is checked against packages that only benchmarks install: `pytest -m peers`, which `make bench` begins with."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from fxgrad.testing import GradientError, check_grads, check_vjp

pytestmark = pytest.mark.peers

X, W = np.random.default_rng(0).standard_normal((3, 4)), np.random.default_rng(1).standard_normal(4)


def caught(f: Callable[[], Any]) -> GradientError:
    with pytest.raises(GradientError) as found:
        f()
    return found.value


def test_jax() -> None:
    import jax
    import jax.numpy as jnp

    f = jax.jit(lambda x, w: jnp.sum(jnp.tanh(x @ w)))
    found = check_grads(f, (X, W), order=1)  # NumPy arrays in, float32 inside
    assert found.library == "jax" and "double precision" in found.method
    check_vjp(f, partial(jax.vjp, f), (jnp.asarray(X), jnp.asarray(W)))

    @jax.custom_jvp
    def wrong(x: Any) -> Any:
        return jnp.sin(x)

    wrong.defjvp(lambda p, t: (wrong(p[0]), -jnp.cos(p[0]) * t[0]))
    error = caught(lambda: check_grads(wrong, ({"a": jnp.asarray(W)}["a"],), order=1))
    assert "the sign is wrong" in str(error)
    assert any(["double precision" in f.mode for f in error.findings]) and any(["its own" in f.mode for f in error.findings])
