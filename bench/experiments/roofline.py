"""The roofline of the transformer block: every kernel of its step under the ceilings of this machine."""

from __future__ import annotations

import contextlib
import io
from typing import Any

import fxgrad as fx
from bench.block import Problem
from bench.experiments.base import Prediction, Result, Table, shown
from bench.experiments.lab import Lab

TITLE = "Roofline of the transformer block"
QUESTION = "How near to its own ceiling, of bandwidth or of arithmetic, does every kernel of the block's step come?"
DERIVATION = """
A step that moves Q bytes and does W operations takes at least max(Q / B, W / P): B is the bandwidth of the level in which its
arrays fit, P the peak of multiply-adds. It is bound by bandwidth while W / Q, its intensity, is below the ridge P / B, and by
arithmetic beyond. The block's products have an intensity of tens of operations a byte and lie beyond the ridge of the caches,
its row kernels (layer norm, softmax) and its sums over rows have about one and lie below.

Estimates: a product counts two operations for each term, an elementwise operation one, exp and tanh 20. A product that is cut
into panels moves its operands more than once, which the count of bytes leaves out, and a packed operand is written and read
besides.
"""
_drawn: dict[str, str] = {}  # the picture is fx.explain's own and is made of its facts, which are no part of the result
BLOCK = ((8, 128, 256, 8), (1, 16, 32, 2))


def predict(lab: Lab) -> list[Prediction]:
    limits = lab.constants.limits()
    ridge = limits.peak_float32 / limits.streams[0].best
    return [
        Prediction(
            "beyond_ridge",
            "share of the step's operations that lie beyond the ridge of the second-level cache",
            0.9,
            "%",
            f"The ridge is at {ridge:.1f} flop a byte.",
            kind="at least",
        ),
        Prediction(
            "share",
            "least time by the roofs over the time of the call",
            0.75,
            "%",
            "What was asked of the compiler for matmul's limit.",
            kind="at least",
        ),
        Prediction(
            "largest",
            "the five longest steps, of their own roofs, together",
            0.7,
            "%",
            "Products near the peak.",
            kind="at least",
        ),
    ]


def measure(lab: Lab, result: Result) -> None:
    problem = Problem(BLOCK[lab.quick], "float32")
    step = fx.jit(fx.value_and_grad(problem.example.loss_of(problem.size.heads, problem.target), (0, 1)))
    with contextlib.redirect_stdout(io.StringIO()):
        found = fx.explain(step, problem.params, problem.x)
    facts, limits, figures = found.facts, found.limits, result.figures
    rows = [
        [
            s.number,
            cut(s.title),
            s.speed.seconds,
            s.speed.share,
            s.speed.intensity,
            s.speed.bandwidth,
            s.speed.rate,
            s.speed.bound,
        ]
        for s in facts.steps
    ]
    columns = [
        ("step", ""),
        ("does", ""),
        ("time", "s"),
        ("of its limit", "%"),
        ("flop a byte", ""),
        ("reached", "B/s"),
        ("reached ", "flop/s"),
        ("bound by", ""),
    ]
    result.tables["steps"] = Table(
        f"Steps of the block's step, B,T,D,H = {','.join(map(str, problem.size))}, float32", columns, rows
    )
    ridge = limits.peak_float32 / limits.streams[0].best
    flops = sum(s.speed.flops for s in facts.steps)
    figures["beyond_ridge"] = sum(s.speed.flops for s in facts.steps if (s.speed.intensity or 0) > ridge) / flops
    figures["share"] = facts.speed.limit / (facts.speed.seconds or float("inf"))
    longest = sorted(facts.steps, key=lambda s: -(s.speed.seconds or 0))[:5]
    figures["largest"] = sum(s.speed.limit for s in longest) / sum(s.speed.seconds or 0 for s in longest)
    figures["ridge"], figures["steps"], figures["seconds"] = ridge, len(facts.steps), facts.speed.seconds or 0.0
    figures["rate"], figures["peak"] = facts.speed.rate or 0.0, limits.peak_float32
    figures["bandwidth"] = limits.streams[-1].best
    result.tables["picture"] = Table(
        "The roofs",
        [("level", ""), ("size", "B"), ("read", "B/s"), ("copy", "B/s"), ("triad", "B/s")],
        [[s.level, s.size, s.read, s.copy, s.triad] for s in limits.streams],
    )
    _drawn[result.name] = picture(facts, limits)


def cut(title: str) -> str:
    return title if len(title) <= 60 else f"{title[:57]}..."


def picture(facts: Any, limits: Any) -> str:
    """fx.explain's own roofline, as a file of its own."""
    from fxgrad.explain.html import _STYLE
    from fxgrad.explain.pictures import roofline

    size = 'viewBox="0 0 920 360" width="920" height="360"'
    ground = "<rect width='100%' height='100%' fill='var(--paper)'/>"
    style = f'<svg xmlns="http://www.w3.org/2000/svg" {size} class="fx"><style>{_STYLE}</style>{ground}'
    return f"{style}\n{roofline(facts, limits, 920)}\n</svg>\n"


def explain(result: Result) -> list[str]:
    f, steps = result.figures, result.tables["steps"]
    timed = [r for r in steps.rows if r[2]]
    total = sum(r[2] for r in timed)
    worst = sorted((r for r in timed if r[3] is not None), key=lambda r: -(r[2] * (1 - min(r[3], 1.0))))[:3]
    lost = "; ".join(f"step {r[0]} ({r[1]}), {shown(r[2], 's')} at {r[3]:.0%} of its limit" for r in worst)
    return [
        (
            f"The call takes {shown(f['seconds'], 's')} for {f['steps']:.0f} steps and reaches {shown(f['rate'], 'flop/s')} "
            f"of {shown(f['peak'], 'flop/s')}; by the roofs it could take {f['share']:.0%} of that time. "
            f"{f['beyond_ridge']:.0%} of its operations are in steps beyond the ridge of {f['ridge']:.1f} flop a byte."
        ),
        f"Most is lost in {lost}; run one by one all steps take {shown(total, 's')}.",
    ]


def draw(result: Result) -> dict[str, Any]:
    return {"": _drawn[result.name]}
