"""What a full Jacobian costs by forward and by reverse mode: `python examples/forward_vs_reverse.py`, a table and a picture.

Forward mode (jacfwd) pushes one tangent for each of the n inputs, reverse mode (jacrev) pulls one cotangent back for each of
the m outputs, all of them at once through vmap. So the cost of the first grows with n, that of the second with m, and they
should meet near n = m. This measures where they do, for a chain of three matrix products with tanh between them.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

# One thread: waking another for products this small costs more than it saves, and blurs the comparison.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

import fxgrad as fx

WIDTH = 256
Results = dict[tuple[int, int], tuple[float, float]]  # (n, m) -> seconds of (jacfwd, jacrev)


def chain(n: int, m: int) -> Callable[[Any], Any]:
    """A function of n inputs and m outputs through two hidden layers of WIDTH."""
    rng = np.random.default_rng(0)
    a, b, c = (rng.standard_normal(s) / np.sqrt(s[1]) for s in ((WIDTH, n), (WIDTH, WIDTH), (m, WIDTH)))
    return lambda x: np.tanh(c @ np.tanh(b @ np.tanh(a @ x)))


def measure(fs: list[Callable[[Any], Any]], x: np.ndarray, rounds: int, block: float) -> list[float]:
    """Seconds a call of each function, the best of interleaved blocks of about `block` seconds, after a call that compiles."""
    counts = []
    for f in fs:
        f(x)
        start = time.perf_counter()
        f(x)
        counts.append(max(1, round(block / (time.perf_counter() - start))))
    samples: list[list[float]] = [[] for _ in fs]
    for _ in range(rounds):
        for f, count, found in zip(fs, counts, samples, strict=True):
            start = time.perf_counter()
            for _ in range(count):
                f(x)
            found.append((time.perf_counter() - start) / count)
    return [min(found) for found in samples]


def run(sizes: list[int], rounds: int, block: float) -> Results:
    """(n, m) -> seconds of (jacfwd, jacrev), both compiled, and checked against each other."""
    results = {}
    for n in sizes:
        x = np.random.default_rng(1).standard_normal(n)
        for m in sizes:
            f = chain(n, m)
            forward, reverse = fx.jit(fx.jacfwd(f)), fx.jit(fx.jacrev(f))
            assert np.max(np.abs(forward(x) - reverse(x))) < 1e-12, "the two modes disagree"
            results[n, m] = tuple(measure([forward, reverse], x, rounds, block))
    return results


def slope(points: list[tuple[int, float]]) -> float:
    """Exponent of a power law fitted to the last three points."""
    xs, ys = np.log([p[0] for p in points[-3:]]), np.log([p[1] for p in points[-3:]])
    return float(np.polyfit(xs, ys, 1)[0])


def crossover(sizes: list[int], ratios: list[float]) -> float | None:
    """The n at which forward / reverse passes 1, interpolated in logarithms; None if it does not within the grid."""
    logs = np.log(ratios)
    for i in range(len(sizes) - 1):
        if logs[i] < 0 <= logs[i + 1]:
            t = -logs[i] / (logs[i + 1] - logs[i])
            return float(np.exp(np.log(sizes[i]) + t * (np.log(sizes[i + 1]) - np.log(sizes[i]))))
    return None


def print_table(sizes: list[int], results: Results) -> dict[int, float | None]:
    print(f"{'outputs m':>10} {'inputs n':>9} {'jacfwd':>11} {'jacrev':>11} {'fwd/rev':>8}   cheaper")
    crossings = {}
    for m in sizes:
        for n in sizes:
            forward, reverse = results[n, m]
            winner = "forward" if forward < reverse else "reverse"
            print(f"{m:10} {n:9} {forward * 1e6:8.1f} us {reverse * 1e6:8.1f} us {forward / reverse:8.2f}   {winner}")
        crossings[m] = crossover(sizes, [results[n, m][0] / results[n, m][1] for n in sizes])
        if crossings[m] is None:
            print(f"{'':10} for m = {m}: they do not cross within this grid\n")
        else:
            print(f"{'':10} for m = {m}: they cross at n = {crossings[m]:.0f}\n")
    big = sizes[-1]
    by_n = slope([(n, results[n, sizes[0]][0]) for n in sizes])
    by_m = slope([(m, results[sizes[0], m][1]) for m in sizes])
    print(f"Growth at the large end: jacfwd like n^{by_n:.2f} (m = {sizes[0]}), jacrev like m^{by_m:.2f} (n = {sizes[0]});")
    print("an exponent of 1 means that each further input or output costs a pass of its own.")
    wide, tall = results[big, sizes[0]], results[sizes[0], big]
    print(f"For a scalar function of {big} inputs jacfwd costs {wide[0] / wide[1]:.1f} times jacrev;")
    print(f"for {big} outputs of one input jacrev costs {tall[1] / tall[0]:.1f} times jacfwd.")
    return crossings


BLUE, RED, GREY = "#2166ac", "#b2182b", "#555555"


def draw_costs(axes: Any, sizes: list[int], m: int, results: Results, crossing: float | None) -> None:
    """Both costs against the number of inputs, for m outputs."""
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    forward, reverse = ([results[n, m][i] * 1e6 for n in sizes] for i in (0, 1))
    axes.loglog(sizes, forward, "o-", color=BLUE, lw=2)
    axes.loglog(sizes, reverse, "s-", color=RED, lw=2)
    low, high = min(forward + reverse), max(forward + reverse)
    axes.set_ylim(low / 1.4, high * 1.5)
    beside = {"textcoords": "offset points", "xycoords": "data"}
    axes.annotate(
        "forward: a tangent\nfor each input", (sizes[-1], forward[-1]), (-26, 4), color=BLUE, ha="right", va="top", **beside
    )
    axes.annotate(
        "reverse: a cotangent\nfor each output", (sizes[0], max(reverse[:2])), (0, 12), color=RED, va="bottom", **beside
    )
    if crossing is not None:
        axes.axvline(crossing, color=GREY, lw=1, ls=":", zorder=0)
        axes.annotate(f"they meet at n = {crossing:.0f} ", (crossing, high * 1.4), color=GREY, ha="right", va="top")
    axes.set(xlabel="inputs n", ylabel="microseconds", title=f"Cost of the Jacobian, {m} outputs")
    axes.set_xticks(sizes, [str(n) for n in sizes])
    axes.minorticks_off()
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:.0f}"))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.grid(alpha=0.25)


def draw_ratios(axes: Any, sizes: list[int], results: Results) -> Any:
    """The ratio of the two for every grid point, with n = m framed; the image, for its colour bar."""
    from matplotlib.colors import TwoSlopeNorm
    from matplotlib.patches import Rectangle

    ratios = np.array([[results[n, m][0] / results[n, m][1] for n in sizes] for m in sizes])
    reach = max(float(np.abs(np.log2(ratios)).max()), 0.1)
    image = axes.imshow(np.log2(ratios), origin="lower", cmap="RdBu_r", norm=TwoSlopeNorm(0, -reach, reach), aspect="auto")
    for (i, j), ratio in np.ndenumerate(ratios):
        text = f"{ratio:.1f}x" if ratio >= 1 else f"1/{1 / ratio:.1f}"
        color = "white" if abs(np.log2(ratio)) > 0.6 * reach else "black"
        axes.text(j, i, text, ha="center", va="center", fontsize=9, color=color)
    for i in range(len(sizes)):
        axes.add_patch(Rectangle((i - 0.47, i - 0.47), 0.94, 0.94, fill=False, lw=1.2, edgecolor=GREY))
    axes.set_xticks(range(len(sizes)), [str(n) for n in sizes])
    axes.set_yticks(range(len(sizes)), [str(m) for m in sizes])
    axes.set(xlabel="inputs n", ylabel="outputs m", title="Time of forward over time of reverse (n = m framed)")
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)
    return image


def draw(sizes: list[int], results: Results, crossings: dict[int, float | None], out: Path) -> None:
    try:
        import matplotlib as mpl
    except ImportError:
        print("No picture: matplotlib is not installed (pip install matplotlib).")
        return
    mpl.use("Agg")
    from matplotlib import pyplot as plt

    plt.rcParams.update({"font.size": 10, "axes.spines.top": False, "axes.spines.right": False, "axes.titlelocation": "left"})
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.6), layout="constrained", width_ratios=(1, 1.1))
    m = sizes[len(sizes) // 2]
    draw_costs(left, sizes, m, results, crossings[m])
    image = draw_ratios(right, sizes, results)
    reach = image.norm.vmax
    bar = figure.colorbar(image, ax=right, ticks=[-0.85 * reach, 0, 0.85 * reach])
    bar.ax.set_yticklabels(["forward\ncheaper", "equal", "reverse\ncheaper"])
    bar.outline.set_visible(False)
    bar.ax.tick_params(length=0)
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out, dpi=150)
    print(f"Picture: {out}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("docs/pictures/forward_vs_reverse.png"))
    parser.add_argument("--quick", action="store_true", help="a small grid and short blocks, for tests")
    parser.add_argument("--no-picture", action="store_true")
    args = parser.parse_args()
    sizes = [1, 4, 16] if args.quick else [1, 4, 16, 64, 256]
    rounds, start = 3 if args.quick else 9, time.perf_counter()
    print(f"Jacobian of tanh(C tanh(B tanh(A x))), hidden width {WIDTH}, float64, jit, one BLAS thread")
    print(f"the best of {rounds} interleaved blocks each\n")
    results = run(sizes, rounds, block=0.005 if args.quick else 0.02)
    crossings = print_table(sizes, results)
    if not args.no_picture:
        draw(sizes, results, crossings, args.out)
    print(f"{time.perf_counter() - start:.1f} s in all")


if __name__ == "__main__":
    main()
