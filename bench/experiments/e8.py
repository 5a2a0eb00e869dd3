"""E8: what fusion saves. The headline of the laboratory: the answer can be derived in advance, so every gap is information."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import fxgrad as fx
import fxgrad.numpy as fnp
from bench.experiments.base import Prediction, Result, Table, shown
from bench.experiments.constants import Constants
from bench.experiments.inside import NEVER, compiled, threads_set
from bench.experiments.lab import Lab, best
from bench.experiments.pictures import GREY, beside, colour, figure, loglog
from fxgrad.runtime.buffers import forget_buffers

TITLE = "Fusion of relu(a*b + c) and of longer chains, derived and measured"
QUESTION = (
    "Fused, relu(a*b + c) moves half the bytes that it moves operation by operation. Is it twice as fast? And if "
    "not, where is the rest?"
)
DERIVATION = """
Operation by operation, N float32 elements move 12N bytes for `a*b` (two arrays read, one written), 12N for `+ c` and 8N for
`relu`: **32N**. One fused kernel reads a, b, c and writes the result: **16N**. Arithmetic is the same, 3N operations, and far
below what the machine can do a byte. So where time is bytes, fusion gives 32/16 = **2**.

That takes every byte for equal and everything else for free. A better derivation has four terms:

1. *Launch.* A compiled call costs so much before any element; each kernel beyond the first adds to it. It matters where N is
   small.
2. *Bytes at their price.* A byte read costs r, a byte written w, both measured by streams over a working set of the same size
   (`read`, `copy`: w = 2/copy - r). Fused: 12N r + 4N w. Unfused: 20N r + 12N w. With w = r that is 16N and 32N; a written byte
   is dearer, so the ratio moves towards 3, the ratio of the bytes written.
3. *Write-allocate.* A store that misses the caches reads its line first: 4N more bytes for every array written in memory, 20N
   fused, 44N unfused. fxgrad's kernels bypass the caches for results of 32 MB and more, which saves that read. An operation
   done in place never pays it: its line is there already; its write costs w - r, at the caches' w.
4. *Arithmetic.* Three operations an element at half the peak (no multiply-add is contracted): the floor under 2.

A chain of K operations on one array moves 8KN bytes unfused and 8N fused: a ratio of K, until K operations an element take
longer than 8 bytes do.
"""
SIZES = ((1_000, 10_000, 50_000, 200_000, 1_000_000, 3_000_000, 10_000_000, 20_000_000), (1_000, 50_000, 300_000))
ACCOUNT = ((1_000, 50_000, 1_000_000, 10_000_000), (1_000, 300_000))
CHAINS = ((1, 2, 4, 8, 16, 32), (1, 8))
LONG = (10_000_000, 300_000)  # elements of the chains
IN_L1 = (512, 2560)  # four float32 arrays of it fit in the first-level cache
FUSED, UNFUSED, EAGER, NUMPY, TORCH = "fxgrad jit", "fxgrad, fusion off", "fxgrad eager", "numpy", "torch eager"
STREAMED = 32 << 20


def relu_chain(xp: Any, a: Any, b: Any, c: Any) -> Any:
    return xp.maximum(a * b + c, 0)


def chain(k: int) -> Callable[[Any], Any]:
    """x and k operations on it, alternately a product and a sum with a constant."""

    def f(x: Any) -> Any:
        for i in range(k):
            x = x * np.float32(1.0001) if i % 2 == 0 else x + np.float32(0.0001)
        return x

    return f


# ---- the model -------------------------------------------------------------------------------------------------------------


class Model:
    """Seconds of kernels from constants: launch, bytes at their price for this size, floor of arithmetic."""

    def __init__(self, constants: Constants, threads: int):
        self.c, self.threads = constants, threads

    def prices(self, size: float, streamed: bool) -> tuple[float, float]:
        """Seconds for a byte read and a byte written, of a working set of so many bytes."""
        read, copy = (self.c.rate(size, form, self.threads) for form in ("read", "copy"))
        if streamed and self.threads == 1:
            stored_then, streamed_then = self.c.stores
            copy *= streamed_then / stored_then
        r = 1 / read
        return r, max(2 / copy - r, r)

    def bytes_time(self, n: int, kernels: Sequence[tuple[int, int, bool]], arrays: int, streams: bool = True) -> float:
        """Of kernels (arrays read, arrays written, in place), over a working set of so many arrays."""
        r, w = self.prices(4 * n * arrays, streams and 4 * n >= STREAMED)
        again = self.prices(4 * n * arrays, False)[1] - r  # in place a write goes through the caches, whose line is there
        return 4 * n * sum(reads * r + writes * (again if in_place else w) for reads, writes, in_place in kernels)

    def floor(self, n: int, operations: int) -> float:
        return n * operations / (self.c.limits(self.threads).peak_float32 / 2)

    def launch(self, kernels: int) -> float:
        return self.c.call + (kernels - 1) * self.c.kernel

    def fused(self, n: int) -> float:
        return self.launch(1) + max(self.bytes_time(n, [(3, 1, False)], 4), self.floor(n, 3))

    def unfused(self, n: int, in_place: bool) -> float:
        kernels = [(2, 1, False), (2, 1, in_place), (1, 1, in_place)]
        return self.launch(3) + max(self.bytes_time(n, kernels, 4 if in_place else 5), self.floor(n, 3))


def in_place(executable: Any) -> bool:
    """Whether the plan lets the second and third kernel write over what they read."""
    places = executable.memory.places
    steps = executable.steps[1:]
    return all(any(places[v] == places[s.writes[0]] for v in s.reads) for s in steps)


def arguments(n: int) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.standard_normal(n, dtype=np.float32) for _ in range(3)]


def planned_in_place(n: int) -> bool:
    return in_place(compiled(lambda a, b, c: relu_chain(np, a, b, c), arguments(n), fusion=False))


# ---- predict ---------------------------------------------------------------------------------------------------------------


def predict(lab: Lab) -> list[Prediction]:
    model, (small, middle, large) = Model(lab.constants, 1), tracked(lab)
    c, huge = lab.constants, lab.constants.faults[1]
    r, w = model.prices(16 * large, False)
    by_price = {n: model.unfused(n, planned_in_place(n)) / model.fused(n) for n in (small, middle, large)}
    k = lab.size(CHAINS, CHAINS)[lab.quick][-1]
    one = model.bytes_time(large, [(1, 1, False)], 2)
    long_ratio = (model.launch(k) + k * one) / (model.launch(1) + max(one, model.floor(large, k)))
    numpy_time = model.bytes_time(large, [(2, 1, False), (2, 1, False), (1, 1, False)], 5, False) + 12 * large * huge
    return [
        Prediction(
            "ratio_large_source", f"unfused over fused, N = {shown(large)}", 2.0, "x", "32N bytes against 16N.", 1.1, source="p13"
        ),
        Prediction(
            "ratio_large",
            f"unfused over fused, bytes at their price, N = {shown(large)}",
            by_price[large],
            "x",
            f"r = {1e-9 / r:.3g} GB/s, w = {1e-9 / w:.3g} GB/s through the caches, streamed where fxgrad streams.",
            1.15,
        ),
        Prediction(
            "ratio_middle",
            f"unfused over fused, N = {shown(middle)}, which fits in the second-level cache",
            by_price[middle],
            "x",
            "The same model at the prices of that cache.",
            1.25,
        ),
        Prediction(
            "ratio_small",
            f"unfused over fused, N = {shown(small)}",
            by_price[small],
            "x",
            f"A call costs {shown(c.call, 's')}, a further kernel {shown(c.kernel, 's')}.",
            1.25,
        ),
        Prediction(
            "allocate_fused",
            f"fused kernel with stores through the caches, over streamed, N = {shown(large)}",
            20 / 16,
            "x",
            "4N bytes more are read.",
            1.12,
        ),
        Prediction(
            "chain_ratio",
            f"a chain of {k} operations, unfused over fused, N = {shown(large)}",
            long_ratio,
            "x",
            f"K = {k}, or less if {k} operations take longer than 8 bytes.",
            1.25,
        ),
        Prediction(
            "numpy_ratio",
            f"NumPy over fused, N = {shown(large)}",
            numpy_time / model.fused(large),
            "x",
            f"44N bytes, and 12N bytes of fresh pages at {1e-9 / huge:.3g} GB/s (huge pages).",
            1.3,
        ),
        Prediction(
            "unexplained_large",
            f"left unexplained of the fused and unfused times, N = {shown(large)}",
            0.15,
            "%",
            "",
            kind="at most",
        ),
        Prediction(
            "speedup_threads",
            f"fused on {lab.threads} threads over one, N = {shown(large)}",
            model.fused(large) / Model(c, lab.threads).fused(large),
            "x",
            "The streams' own ratio.",
            1.2,
        ),
    ]


def tracked(lab: Lab) -> tuple[int, int, int]:
    """Elements for the smallest, a middle and the large case that predictions are about."""
    return lab.size((1_000, 50_000, 10_000_000), (1_000, 50_000, 300_000))


# ---- measure ---------------------------------------------------------------------------------------------------------------


def contenders(lab: Lab, args: list[np.ndarray]) -> dict[str, Callable[[], Any]]:
    f = lambda a, b, c: relu_chain(np, a, b, c)  # noqa: E731
    found: dict[str, Callable[[], Any]] = {}
    for name, options in {
        FUSED: {},
        UNFUSED: {"fusion": False},
        "fused, through caches": {"stream": NEVER},
        "unfused, through caches": {"fusion": False, "stream": NEVER},
    }.items():
        run = compiled(f, args, **options)
        found[name] = lambda run=run: run(*args)
    found[EAGER] = lambda: relu_chain(fnp, *args)
    found[NUMPY] = lambda: relu_chain(np, *args)
    torch = lab.peer("torch")
    if torch is not None:
        torch.set_num_threads(fx.get_num_threads())
        tensors = [torch.from_numpy(x) for x in args]
        found[TORCH] = lambda: torch.relu(tensors[0] * tensors[1] + tensors[2])
    return found


def fresh_pages(args: list[np.ndarray]) -> dict[str, float]:
    """Seconds that fresh pages add to a call: no memory of earlier calls is there."""
    out = {}
    for name, fusion in ((FUSED, True), (UNFUSED, False)):
        run = compiled(lambda a, b, c: relu_chain(np, a, b, c), args, fusion=fusion)
        run(*args)
        pooled = best(lambda run=run: run(*args), 7)
        out[name] = best(lambda run=run: run(*args), 7, forget_buffers) - pooled
    return out


def first_level() -> tuple[float, float]:
    """Seconds an element of the fused kernel in the first-level cache: contiguous, and element by element (stride 2)."""
    out = []
    for step in (1, 2):
        times = []
        for n in IN_L1:
            args = [np.ones(n * step, np.float32)[::step] for _ in range(3)]
            run = fx.jit(lambda a, b, c: relu_chain(np, a, b, c)) if step == 1 else fx.jit(lambda a, b, c: strided(a, b, c))
            given = args if step == 1 else [np.ones(n * step, np.float32) for _ in range(3)]
            run(*given)
            times.append(best(lambda run=run, given=given: run(*given), 2000))
        out.append(max(times[1] - times[0], 1e-12) / (IN_L1[1] - IN_L1[0]))
    return out[0], out[1]


def strided(a: Any, b: Any, c: Any) -> Any:
    """The chain over every second element, whose vectors have to be gathered."""
    return relu_chain(np, a[::2], b[::2], c[::2])


def measure(lab: Lab, result: Result) -> None:
    figures, (small, middle, large) = result.figures, tracked(lab)
    per: dict[tuple[int, int], dict[str, float]] = {}
    for threads in dict.fromkeys((1, lab.threads)):
        with threads_set(threads):
            for n in SIZES[lab.quick]:
                per[threads, n] = lab.times(contenders(lab, arguments(n)))
    names = list(dict.fromkeys(name for found in per.values() for name in found))
    for threads in dict.fromkeys((1, lab.threads)):
        rows = [
            [n, *(per[threads, n].get(x) for x in names), per[threads, n][UNFUSED] / per[threads, n][FUSED]]
            for n in SIZES[lab.quick]
        ]
        columns = [("N", ""), *((x, "s") for x in names), ("unfused / fused", "x")]
        result.tables[f"times_{threads}"] = Table(f"relu(a*b + c), {threads} thread{'s' * (threads > 1)}", columns, rows)
    with threads_set(1):
        plain, gathered = first_level()
        figures |= {"element_l1": plain, "element_gathered": gathered}
        result.tables["ladder"] = ladder(lab, per)
        result.tables["account"] = account(lab, per, plain, figures)
        result.tables["chains"] = chains(lab, figures)
    one = {n: per[1, n] for n in SIZES[lab.quick]}
    for name, n in (("ratio_small", small), ("ratio_middle", middle), ("ratio_large", large)):
        figures[name] = one[n][UNFUSED] / one[n][FUSED]
    figures["ratio_large_source"] = figures["ratio_large"]
    figures["allocate_fused"] = one[large]["fused, through caches"] / one[large][FUSED]
    figures["allocate_unfused"] = one[large]["unfused, through caches"] / one[large][UNFUSED]
    figures["numpy_ratio"] = one[large][NUMPY] / one[large][FUSED]
    figures["eager_ratio"] = one[large][EAGER] / one[large][FUSED]
    figures["speedup_threads"] = one[large][FUSED] / per[lab.threads, large][FUSED]
    figures["ratio_large_threads"] = per[lab.threads, large][UNFUSED] / per[lab.threads, large][FUSED]
    figures["large"], figures["middle"], figures["small"] = large, middle, small
    figures["fused_large"], figures["fused_rate"] = one[large][FUSED], 16 * large / one[large][FUSED]
    figures["unfused_large"] = one[large][UNFUSED]
    figures["bandwidth_triad"] = lab.constants.rate(16 * large, "triad", 1)


def ladder(lab: Lab, per: dict[tuple[int, int], dict[str, float]]) -> Table:
    """The predicted ratio, one cause after the other, and the measured one."""
    model, rows = Model(lab.constants, 1), []
    for n in SIZES[lab.quick]:
        rate = lab.constants.rate(16 * n, "triad", 1)
        with_launch = (model.launch(3) + 32 * n / rate) / (model.launch(1) + 16 * n / rate)
        flat = [(2, 1, False), (2, 1, False), (1, 1, False)]
        priced = (model.launch(3) + model.bytes_time(n, flat, 5)) / (model.launch(1) + model.bytes_time(n, [(3, 1, False)], 4))
        whole = model.unfused(n, planned_in_place(n)) / model.fused(n)
        found = per[1, n][UNFUSED] / per[1, n][FUSED]
        rows.append([n, 16 * n, 2.0, with_launch, priced, whole, found, found / whole - 1])
    columns = [
        ("N", ""),
        ("arrays", "B"),
        ("bytes alone", "x"),
        ("+ launch", "x"),
        ("+ price of reads and writes", "x"),
        ("+ in place and arithmetic", "x"),
        ("measured", "x"),
        ("left", "%"),
    ]
    return Table("The ratio, cause by cause, one thread", columns, rows)


def account(lab: Lab, per: dict[tuple[int, int], dict[str, float]], element: float, figures: dict[str, float]) -> Table:
    """Where the time of a call goes, each part by a probe of its own."""
    model, rows = Model(lab.constants, 1), []
    _, _, large = tracked(lab)
    for n in ACCOUNT[lab.quick]:
        args = arguments(n)
        pages = fresh_pages(args) if 4 * n >= 1 << 18 else {}
        for name, kernels, through in ((FUSED, 1, "fused, through caches"), (UNFUSED, 3, "unfused, through caches")):
            over = planned_in_place(n)
            moved = [(3, 1, False)] if kernels == 1 else [(2, 1, False), (2, 1, over), (1, 1, over)]
            data = model.bytes_time(n, moved, 4 if kernels == 1 or over else 5)
            launch, arithmetic = model.launch(kernels), n * element * (1 if kernels == 1 else 1.0)
            measured = per[1, n][name]
            whole = launch + max(data, arithmetic)
            left = measured / whole - 1
            if n == large:
                figures[f"left_{'fused' if kernels == 1 else 'unfused'}"] = left
            rows.append(
                [
                    n,
                    name,
                    measured,
                    launch,
                    data,
                    arithmetic,
                    per[1, n][through] - measured,
                    pages.get(name),
                    whole,
                    left,
                ]
            )
    figures["unexplained_large"] = max(abs(figures["left_fused"]), abs(figures["left_unfused"]))
    columns = [
        ("N", ""),
        ("", ""),
        ("measured", "s"),
        ("launch", "s"),
        ("bytes at their price", "s"),
        ("arithmetic, from L1", "s"),
        ("stores through caches would add", "s"),
        ("fresh pages would add", "s"),
        ("launch + the longer of two", "s"),
        ("left", "%"),
    ]
    return Table("The account of a call, one thread", columns, rows)


def chains(lab: Lab, figures: dict[str, float]) -> Table:
    model, n, rows = Model(lab.constants, 1), LONG[lab.quick], []
    args = [np.ones(n, np.float32)]
    for k in CHAINS[lab.quick]:
        fused, unfused = compiled(chain(k), args), compiled(chain(k), args, fusion=False)
        times = lab.times({FUSED: lambda f=fused: f(*args), UNFUSED: lambda f=unfused: f(*args)}, repeat=5)
        one = model.bytes_time(n, [(1, 1, False)], 2)
        expected = (model.launch(k) + k * one) / (model.launch(1) + max(one, model.floor(n, k)))
        ratio = times[UNFUSED] / times[FUSED]
        rows.append([k, 8 * k * n, 8 * n, times[UNFUSED], times[FUSED], expected, ratio, k * n / times[FUSED]])
        figures["chain_ratio"], figures["chain_operations"] = ratio, k
    figures["chain_l1"], figures["chain_element"] = chain_in_l1(k), times[FUSED] / n
    columns = [
        ("operations", ""),
        ("bytes unfused", "B"),
        ("bytes fused", "B"),
        (UNFUSED, "s"),
        (FUSED, "s"),
        ("predicted ratio", "x"),
        ("measured ratio", "x"),
        ("fused, flop a second", "flop/s"),
    ]
    return Table(f"Chains of K operations on one array of {shown(n)}, one thread", columns, rows)


def chain_in_l1(k: int) -> float:
    """Seconds an element of a fused chain in the first-level cache."""
    times = []
    for n in IN_L1:
        args = [np.ones(n, np.float32)]
        run = compiled(chain(k), args)
        run(*args)
        times.append(best(lambda run=run, args=args: run(*args), 2000))
    return max(times[1] - times[0], 1e-12) / (IN_L1[1] - IN_L1[0])


# ---- explain ---------------------------------------------------------------------------------------------------------------


def explain(result: Result) -> list[str]:
    f, predicted = result.figures, result.predicted_value
    table = result.tables["account"]
    launch = {row[1]: row[3] / row[2] for row in table.rows if row[0] == f["small"]}
    rows = {row[1]: row for row in table.rows if row[0] == f["large"]}
    r_gap = f["ratio_large"] / 2.0 - 1
    words = "more" if r_gap > 0 else "less"
    return [
        (
            f"**Large arrays.** The document's 2 became {shown(f['ratio_large'], 'x')}, {abs(r_gap):.0%} {words}. Bytes are "
            "not all alike: with reads and writes at their measured prices the derivation says "
            f"{shown(predicted('ratio_large'), 'x')}, and {f['ratio_large'] / predicted('ratio_large') - 1:+.0%} is left. The "
            f"fused kernel moves {shown(f['fused_rate'], 'B/s')}; a triad of this size {shown(f['bandwidth_triad'], 'B/s')}."
        ),
        (
            f"**Launch.** With {shown(f['small'])} elements the launch is {launch[FUSED]:.0%} of the fused call and "
            f"{launch[UNFUSED]:.0%} of the unfused one, which pays for one call too, not for three: all its kernels are one "
            f"native program. So the ratio there is {shown(f['ratio_small'], 'x')}, not 2; the launch, not the bytes, is what "
            "both versions share."
        ),
        (
            f"**Write-allocate.** With stores through the caches the fused kernel takes {shown(f['allocate_fused'], 'x')} of "
            f"the time (20N bytes over 16N would be 1.25x), the unfused kernels {shown(f['allocate_unfused'], 'x')}. "
        )
        + _allocate_words(f["allocate_unfused"]),
        (
            "**Page faults.** Results come from a pool, so no call of this table pays for fresh pages. Without it the fused "
            f"call would take {shown(rows[FUSED][7], 's')} more ({(rows[FUSED][7] or 0) / rows[FUSED][2]:.0%}), the unfused "
            f"one {shown(rows[UNFUSED][7], 's')}. NumPy, which gets fresh pages for each of its three results, takes "
            f"{shown(f['numpy_ratio'], 'x')} the time of the fused call."
        ),
        (
            f"**Vectorisation.** In the first-level cache an element takes {shown(f['element_l1'], 's')}, "
            f"{f['element_l1'] * f['large'] / f['fused_large']:.0%} of what it takes from memory: arithmetic hides behind the "
            "bytes and could be several times slower before it showed. Where vectors must be gathered (every second element) "
            f"an element takes {shown(f['element_gathered'], 's')} there, {f['element_gathered'] / f['element_l1']:.0f} times "
            "as long."
        ),
        (
            f"**Chains.** {f['chain_operations']:.0f} operations fused gain {shown(f['chain_ratio'], 'x')} over as many "
            f"kernels, of {f['chain_operations']:.0f} that bytes alone would give. In the first-level cache they take "
            f"{shown(f['chain_l1'], 's')} an element, from memory {shown(f['chain_element'], 's')}: the longer the chain, the "
            "more of its time is arithmetic, and where bytes and arithmetic take equally long they do not hide behind each "
            "other completely."
        ),
        (
            f"**Threads.** {result.threads} threads run the fused kernel {shown(f['speedup_threads'], 'x')} as fast as one, "
            f"since one core alone draws {1 / f['speedup_threads']:.0%} of what memory delivers to all; the ratio of unfused "
            f"to fused is {shown(f['ratio_large_threads'], 'x')} then."
        ),
    ]


def _allocate_words(unfused: float) -> str:
    if unfused > 1.03:
        return "Both gain from bypassing the caches."
    if unfused >= 0.97:
        return "Unfused it makes little difference: the second and third kernel write in place, which goes through the caches."
    return (
        "Unfused they *gain* from going through the caches: then the second and third kernel write over what they read, "
        "which costs no allocation and keeps the working set at four arrays, while results that bypass the caches get "
        "memory of their own."
    )


# ---- draw ------------------------------------------------------------------------------------------------------------------


def draw(result: Result) -> dict[str, Any]:
    made, (left, middle, right) = figure(3, width=13.5)
    steps = result.tables["ladder"]
    n = steps.column("N")
    left.axhline(2, color=GREY, linewidth=0.9, linestyle=":")
    beside(left, n[0], 2, "32N / 16N", va="bottom")
    left.plot(n, steps.column("+ in place and arithmetic"), color=GREY, linestyle="--", label="predicted, all causes")
    for i, (name, table) in enumerate((k, t) for k, t in result.tables.items() if k.startswith("times_")):
        threads = name.removeprefix("times_")
        left.plot(
            n,
            table.column("unfused / fused"),
            "o-",
            color=colour("", 1 - i),
            label=f"measured, {threads} thread{'s' * (threads != '1')}",
        )
    left.set(xscale="log", ylim=(0, None))
    loglog(middle, "elements N", "ns an element", "Time an element, one thread")
    left.set_title("Unfused over fused", fontsize=9.5, loc="left")
    left.set(xlabel="elements N", ylabel="ratio of times")
    left.legend(frameon=False, fontsize=8)
    times = result.tables["times_1"]
    for name in (UNFUSED, FUSED, EAGER, NUMPY, TORCH):
        if name in [c for c, _ in times.columns]:
            shade = "#e58a00" if name == UNFUSED else colour(name)
            middle.plot(
                n, [t / k * 1e9 for t, k in zip(times.column(name), n, strict=True)], "o-", color=shade, markersize=3, label=name
            )
    middle.legend(frameon=False, fontsize=8)
    table = result.tables["chains"]
    k = table.column("operations")
    right.plot(k, k, color=GREY, linestyle=":", label="bytes alone: K")
    right.plot(k, table.column("predicted ratio"), color=GREY, linestyle="--", label="predicted, with arithmetic")
    right.plot(k, table.column("measured ratio"), "o-", color=colour(FUSED), label="measured")
    loglog(right, "operations K", "ratio of times", "Chains of K operations: unfused over fused")
    right.legend(frameon=False, fontsize=8)
    return {"": made}
