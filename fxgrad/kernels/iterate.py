"""Loops inside kernel bodies, for series, continued fractions and rejection sampling."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fxgrad.kernels.vector import Vec, any_lane, select

__all__ = ["repeat_while"]


def repeat_while(going: Callable[..., Any], step: Callable[..., Sequence[Any]], state: Sequence[Any]) -> tuple[Any, ...]:
    """state = step(*state) as long as going(*state) holds, lane by lane.

    A lane that is done keeps its state while others go on, so what it gets does not depend on them, and neither do the bits.
    Each lane must come to an end, NaN included: a comparison with NaN is false, so `going` is best written to need one.
    """
    state = tuple(state)
    if not isinstance(state[0], Vec):
        state = tuple(np.asarray(x) for x in state)
        while any_lane(active := going(*state)):
            state = tuple(select(active, new, old) for new, old in zip(step(*state), state, strict=True))
        return state
    b = state[0].b
    entry, head, body, done = b.block, *(b.append_basic_block(n) for n in ("repeat", "again", "repeated"))
    b.branch(head)
    b.position_at_end(head)
    phis = []
    for x in state:
        phi = b.phi(x.v.type)
        phi.add_incoming(x.v, entry)
        phis.append(phi)
    held = tuple(Vec(b, phi, x.dtype) for phi, x in zip(phis, state, strict=True))
    active = going(*held)
    b.cbranch(any_lane(active), body, done)
    b.position_at_end(body)
    for phi, new, old in zip(phis, step(*held), held, strict=True):
        merged = select(active, new, old)
        phi.add_incoming(merged.v, b.block)  # select opens no block, step may
    b.branch(head)
    b.position_at_end(done)
    return held
