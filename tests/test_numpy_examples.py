"""The programs of examples/numpy_programs run with one changed import: gradients right, and one answer in every mode.

Outside every transform `a @ b` of plain arrays is NumPy's own; what the modes are compared with is the traced program op by op.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fxgrad as fx
from bench import programs
from fxgrad.testing.bits import assert_same_bits

STEP = 1e-6  # of central differences, for arguments of about 1


def loaded(name: str) -> tuple[Any, tuple[Any, ...]]:
    return programs.load(name, "fxgrad.numpy"), programs.problem(name)


def test_there_are_thirty() -> None:
    assert len(programs.NAMES) == 30
    for name in programs.NAMES:
        lines = (programs.FOLDER / f"{name}.py").read_text().splitlines()
        assert 20 <= len(lines) <= 150, name


@pytest.mark.parametrize("name", programs.NAMES)
def test_one_answer(name: str) -> None:
    """Plain NumPy's value up to rounding; eager, compiled, compiled gradient, gradient of the compiled: the same bits."""
    program, args = loaded(name)
    jitted = fx.jit(program.run)
    with fx.disable_jit():
        value = jitted(*args)
    np.testing.assert_allclose(value, programs.load(name).run(*args), rtol=1e-9)
    assert_same_bits(jitted(*args), value)
    gradient = fx.grad(program.run)(*args)
    assert_same_bits(fx.jit(fx.grad(program.run))(*args), gradient)
    assert_same_bits(fx.grad(jitted)(*args), gradient)
    direction = np.random.default_rng(1).standard_normal(args[0].shape)
    ahead, behind = (program.run(args[0] + s * STEP * direction, *args[1:]) for s in (1, -1))
    np.testing.assert_allclose(np.sum(gradient * direction), (ahead - behind) / (2 * STEP), rtol=2e-4, atol=1e-7)


@pytest.mark.parametrize("name", programs.NAMES)
def test_batched(name: str) -> None:
    """vmap over the first argument equals a loop, to the bit; and so do gradients."""
    program, args = loaded(name)
    many = np.stack([args[0], args[0] * 1.01])
    axes = (0, *[None] * (len(args) - 1))
    for f in (fx.jit(program.run), fx.grad(program.run)):
        assert_same_bits(fx.vmap(f, axes)(many, *args[1:]), np.stack([f(one, *args[1:]) for one in many]))


@pytest.mark.parametrize("name", programs.NAMES)
def test_arguments_stay(name: str) -> None:
    """Programs that work in place on copies leave their arguments alone."""
    program, args = loaded(name)
    before = [np.copy(a) for a in args]
    fx.grad(program.run)(*args)
    for a, b in zip(args, before, strict=True):
        assert_same_bits(a, b)
