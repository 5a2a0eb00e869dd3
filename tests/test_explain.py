"""fx.explain: figures counted by hand, lines, reasons, text, page, errors. No test looks at how long anything took."""

from __future__ import annotations

import dataclasses
import functools
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fxgrad as fx
from fxgrad.explain import report
from fxgrad.explain.facts import Block
from fxgrad.explain.html import format_page
from fxgrad.explain.report import Explanation, _speed
from fxgrad.explain.units import amount, percent, ratio, seconds_of
from fxgrad.runtime import machine
from fxgrad.runtime.machine import Limits, Stream, machine_limits
from fxgrad.testing.bits import assert_same_bits
from tests.four_parts import assert_four_parts, raised

ones = np.ones(1000, np.float32)


def quietly(f: Any, *args: Any, **kwargs: Any) -> Explanation:
    """The explanation; what was printed is its text."""
    import contextlib
    import io

    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        found = fx.explain(f, *args, **kwargs)
    assert out.getvalue() == f"{found}\n"
    return found


# ---- figures -----------------------------------------------------------------------------------------------------------


def figures(found: Explanation) -> list[tuple[str, int, int, int]]:
    return [(s.kind, s.speed.bytes_read, s.speed.bytes_written, s.speed.flops) for s in found.facts.steps]


def test_a_chain_is_one_step() -> None:
    found = quietly(fx.jit(lambda a, b, c: np.maximum(a * b + c, np.float32(0))), ones, ones, ones)
    assert figures(found) == [("kernel", 3 * 4000, 4000, 3000)]
    speed, step = found.facts.speed, found.facts.steps[0]
    assert (speed.bytes_moved, speed.flops, speed.intensity) == (16000, 3000, 3000 / 16000)
    assert step.title == "mul add maximum" and step.kernels == ("K1",) and step.why == ("output of the program",)
    assert step.reads == ("f32[1000]",) * 3 and step.writes == ("f32[1000]",)
    assert found.facts.operations == 3 and len(found.facts.kernels) == 1 and "t2: f32 = maximum" in found.facts.kernels[0].text
    assert (found.facts.memory.argument, found.facts.memory.output) == (12000, 4000)


def test_reductions_and_broadcasts() -> None:
    x = np.ones((40, 50))
    assert figures(quietly(fx.jit(lambda x: np.sum(x * x)), x)) == [("kernel", 16000, 8, 4000)]
    assert figures(quietly(fx.jit(lambda x, v: x * v), x, np.ones(50))) == [("kernel", 16000 + 400, 16000, 2000)]
    assert figures(quietly(fx.jit(lambda x: x + 1.0), x[::1, :1])) == [("kernel", 320, 320, 40)]


@pytest.mark.parametrize(
    "a, b, flops",
    [
        (np.ones((5, 7)), np.ones((7, 3)), 2 * 5 * 7 * 3),
        (np.ones((4, 5, 7), np.float32), np.ones((4, 7, 3), np.float32), 2 * 4 * 5 * 7 * 3),
        (np.ones(9), np.ones(9), 18),
        (np.ones((6, 9)), np.ones(9), 2 * 6 * 9),
        (np.ones((5, 7), complex), np.ones((7, 3), complex), 8 * 5 * 7 * 3 + 2 * 5 * 3),
    ],
)
def test_products(a: np.ndarray, b: np.ndarray, flops: int) -> None:
    found = quietly(fx.jit(np.matmul), a, b)
    assert found.facts.speed.flops == flops
    assert found.facts.speed.bytes_moved >= a.nbytes + b.nbytes + np.matmul(a, b).nbytes


def test_operands_brought_in_order_say_why() -> None:
    def reasons_of(*operands: np.ndarray) -> dict[str, tuple[str, ...]]:
        return {s.title: s.why for s in quietly(fx.jit(np.matmul), *operands).facts.steps}

    assert reasons_of(np.ones((512, 512)), np.ones((512, 512)))["pack"] == ("packed once, for all rows and threads",)


def test_library_calls() -> None:
    x = np.ones((10, 20))
    assert figures(quietly(fx.jit(lambda x: np.cumsum(x, axis=1)), x)) == [("host", 1600, 1600, 200)]
    sort = quietly(fx.jit(np.sort), x)
    assert sort.facts.speed.flops == 0 and sort.facts.speed.intensity == 0
    kinds = [s.kind for s in sort.facts.steps]  # the order is a library's, what stands in it is taken by a kernel
    assert kinds.count("host") == 1 and kinds[-1] == "kernel" and "runs as a library call" in str(sort)


def test_totals_are_those_of_the_steps() -> None:
    found = quietly(fx.jit(fx.grad(lambda w, x: np.sum(fx.nn.softmax(np.tanh(x @ w)) ** 2))), np.ones((8, 4)), np.ones((30, 8)))
    steps, speed = [s.speed for s in found.facts.steps], found.facts.speed
    for name in ("bytes_read", "bytes_written", "flops"):
        assert getattr(speed, name) == sum(getattr(s, name) for s in steps) > 0
    assert speed.limit == pytest.approx(sum(s.limit for s in steps)) and speed.bound in ("bandwidth", "peak")
    assert speed.seconds and speed.rate == speed.flops / speed.seconds and speed.share == speed.limit / speed.seconds
    costs = fx.jit(fx.grad(lambda w: np.sum(np.tanh(w)))).lower(np.ones(3)).compile().cost_analysis()
    assert set(costs) == {"flops", "bytes accessed"}


# ---- where from --------------------------------------------------------------------------------------------------------


def lines(found: Explanation) -> list[tuple[str, ...]]:
    assert {x.file for s in found.facts.steps for x in s.lines} <= {__file__}
    return [tuple(x.text for x in s.lines) for s in found.facts.steps]


def test_lines_are_the_users() -> None:
    def f(x: Any) -> Any:
        y = np.exp(x)  # one
        z = y + 1  # two
        return np.sum(z)  # three

    (found,) = lines(quietly(fx.jit(f), ones))
    assert found == ("y = np.exp(x)  # one", "z = y + 1  # two", "return np.sum(z)  # three")
    (grad,) = lines(quietly(fx.jit(fx.grad(f)), ones))
    assert grad[0] == "y = np.exp(x)  # one"
    text = str(quietly(fx.jit(f), ones))
    assert re.search(r"line +test_explain\.py:\d+ in f   y = np\.exp\(x\)  # one\n", text)


def test_equal_programs_have_lines_of_their_own() -> None:
    def first(x: Any) -> Any:
        return np.cosh(x) * 3  # the first

    def second(x: Any) -> Any:
        return np.cosh(x) * 3  # the second

    assert lines(quietly(fx.jit(first), ones)) == [("return np.cosh(x) * 3  # the first",)]
    assert lines(quietly(fx.jit(second), ones)) == [("return np.cosh(x) * 3  # the second",)]


def test_an_expansion_comes_from_the_line_that_asked_for_it() -> None:
    """logsumexp is traced once for all its uses, while something compiles."""

    def f(x: Any) -> Any:
        return fx.nn.logsumexp(x)  # here

    for x in (np.ones((3, 5)), np.ones((4, 5))):
        found = lines(quietly(fx.jit(f), x))
        assert found and set(found) == {("return fx.nn.logsumexp(x)  # here",)}


# ---- what can be explained ---------------------------------------------------------------------------------------------


def test_trees_statics_and_keywords() -> None:
    def f(w: Any, n: int, *, scale: Any = 1.0) -> Any:
        return {"out": w["a"] ** n * scale}

    found = quietly(fx.jit(f, static_argnums=1), {"a": ones, "b": [np.ones(2)]}, 3, scale=2.0)
    assert found.facts.arguments == ("f32[1000]", "f64[2]", "f64[]") and found.facts.results == ("f32[1000]",)


@fx.tree.register_dataclass
@dataclasses.dataclass
class Model:
    w: Any

    @fx.jit
    def apply(self, x: Any) -> Any:
        return self.w * x


def test_methods_and_partials() -> None:
    assert quietly(Model(ones).apply, ones).facts.arguments == ("f32[1000]",) * 2
    assert quietly(functools.partial(fx.jit(lambda x, y: x - y), y=ones), ones).facts.arguments == ("f32[1000]",) * 2
    captured = quietly(fx.jit(lambda x: x * ones), ones).facts
    assert (captured.arguments, captured.captured) == (("f32[1000]",), ("f32[1000]",))


@pytest.mark.parametrize(
    "f,args,steps",
    [
        (lambda x: x, (ones,), [("copy", 4000, 4000, 0)]),
        (lambda x: np.float64(3), (ones,), []),
        (lambda x: np.sum(np.exp(x)), (np.ones((0, 3)),), []),
        (lambda: 1.0, (), []),
        (lambda x: x * 2.0, (np.ones((0, 3)),), [("fill", 0, 0, 0)]),
    ],
)
def test_no_kernel_at_all(f: Any, args: tuple[Any, ...], steps: list[tuple[str, int, int, int]]) -> None:
    found = quietly(fx.jit(f), *args)
    assert figures(found) == steps and not found.facts.kernels
    json.dumps(found.as_dict(), allow_nan=False)
    well_formed(found.to_html())


def test_scalars_and_avals() -> None:
    assert figures(quietly(fx.jit(lambda x: x * 2.0 + 1.0), 1.5)) == [("kernel", 8, 8, 2)]
    calls: list[int] = []

    def f(x: Any) -> Any:
        calls.append(1)
        return np.tanh(x) * 2

    jitted = fx.jit(f)
    found = quietly(jitted, fx.Aval((1000, 1000), np.float32))
    assert found.facts.calls == 0 and found.facts.speed.seconds is None and found.facts.speed.limit > 0
    assert "Nothing was run" in str(found) and "Least time" in found.to_html()
    assert_same_bits(jitted(np.ones((1000, 1000), np.float32))[0, 0], np.float32(fx.numpy.tanh(np.float32(1)) * np.float32(2)))
    assert calls == [1]


def test_steps_are_timed_one_by_one() -> None:
    found = quietly(fx.jit(lambda x: np.sort(np.tanh(x) @ x)), np.ones((20, 20)))
    assert all(s.speed.seconds and s.speed.share and s.speed.bandwidth for s in found.facts.steps)
    assert {s.kind for s in found.facts.steps} >= {"kernel", "host"} and found.facts.threads == fx.get_num_threads()


def test_the_memory_plan_is_the_executables() -> None:
    f = fx.jit(lambda x: np.sort(np.tanh(np.cumsum(x)))[::-1] * np.sum(x))
    x = np.arange(500.0)
    memory, planned = quietly(f, x).facts.memory, f.lower(x).compile().memory_analysis()
    assert (memory.argument, memory.output, memory.peak) == (4000, 4000, planned.peak_bytes)
    assert memory.temp == planned.temp_bytes + planned.host_bytes > 0
    assert all(1 <= b.first <= b.last and b.offset + b.size <= planned.temp_bytes for b in memory.blocks) and memory.blocks


def test_donated_arguments_are_not_given_up() -> None:
    f = fx.jit(lambda x, y: x * y + 1, donate_argnums=0)
    x, y = np.arange(1000.0), np.arange(1000.0)
    kept = x.copy()
    memory = quietly(f, x, y).facts.memory
    assert_same_bits(x, kept)
    assert x.flags.writeable and memory.peak == 2 * 8000  # the result lies in x
    assert_same_bits(f(x, y), kept * y + 1)


def test_results_and_counts_stay_as_they_are() -> None:
    x = np.linspace(0, 1, 50)
    f = fx.jit(lambda x: np.sin(x) + 1)
    want, kept = f(x), x.copy()
    f(x)
    before = f.cache_info()
    quietly(f, x)
    f.lower(x)
    assert f.cache_info() == before == (1, 1, 1)
    assert_same_bits(f(x), want)
    assert_same_bits(x, kept)
    quietly(f, x[:3])  # traced for explain: a miss, and held
    assert f.cache_info() == (2, 2, 2)


# ---- the cache of traces -----------------------------------------------------------------------------------------------


def reasons(f: Any, *args: Any) -> tuple[str, ...]:
    return quietly(f, *args).facts.cache.reasons


def test_misses_say_which_part_of_the_key_changed() -> None:
    k = 1.0
    f = fx.jit(lambda w, n: w["a"] * n * k, static_argnames="n")
    f({"a": ones}, 2)
    f({"a": ones[:3]}, 2)
    f({"a": ones[:3]}, 2.0)
    f({"a": np.float64(1)}, 2.0)
    f({"a": 1.0}, 2.0)
    f({"a": 1.0, "b": ones}, 2.0)
    k = 3.0
    assert reasons(f, {"a": 1.0, "b": ones}, 2.0) == (
        "no trace was held",
        "w['a']: f32[1000] -> f32[3]",
        "static n: 2 -> 2.0",
        "w['a']: f32[3] -> f64[]",
        "w['a']: an array -> a Python number",
        "structure of w (first: before, second: now): only the second has 'b'",
        "k changed",
    )
    f.clear_cache()
    assert reasons(f, {"a": 1.0}, 2.0) == ("no trace was held",)


def test_many_changes_are_cut_and_many_misses_dropped() -> None:
    f = fx.jit(lambda *xs: sum(xs))
    f(*[ones] * 6), f(*[ones[:2]] * 6)
    assert reasons(f, *[ones] * 6)[1] == "; ".join(f"xs[{i}]: f32[1000] -> f32[2]" for i in range(4)) + ", and 2 more"
    for n in range(1, 41):
        f(np.ones(n))
    found = quietly(f, np.ones(40))
    assert len(found.facts.cache.reasons) == 32 and found.facts.cache.misses == 42
    assert "the last 32 misses:\n  miss 11: xs[0]: f64[8] -> f64[9]" in str(found)


def test_static_arguments_print_only_when_asked() -> None:
    class Silent:
        def __repr__(self) -> str:
            raise RuntimeError("printed")

    f = fx.jit(lambda x, s: x + 1, static_argnums=1)
    f(ones, Silent()), f(ones, Silent())
    with pytest.raises(RuntimeError, match="printed"):
        quietly(f, ones, Silent())


# ---- text, page, figures as JSON -----------------------------------------------------------------------------------------


class Checker(HTMLParser):
    """Every element is closed in order; collects attributes, text, and which elements there are."""

    VOID = frozenset({"meta", "br", "hr", "img", "link", "input"})

    def __init__(self) -> None:
        super().__init__()
        self.stack: list[str] = []
        self.seen: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.words: list[tuple[str, str]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        self.attributes += attrs
        if tag not in self.VOID:
            self.stack.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        assert self.stack.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append((self.stack[-1] if self.stack else "", data))


def well_formed(page: str) -> Checker:
    checker = Checker()
    checker.feed(page)
    checker.close()
    assert checker.stack == []
    assert not {"script", "img", "link", "iframe", "object"} & set(checker.seen)
    assert not [v for k, v in checker.attributes if k in ("src", "href") or k.startswith("on")]
    assert "url(" not in page and "@import" not in page and "http" not in page
    return checker


def sample() -> Explanation:
    f = fx.jit(fx.grad(lambda w, x: np.sum(fx.nn.softmax(np.tanh(x @ w)) ** 2)))
    return quietly(f, np.ones((8, 4)), np.ones((30, 8)))


def test_page_is_well_formed_and_needs_nothing(tmp_path: Path) -> None:
    found = sample()
    page = found.to_html(tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text(encoding="utf-8") == page
    checker = well_formed(page)
    assert (
        page.startswith("<!DOCTYPE html>") and "prefers-color-scheme: dark" in page and ("name", "viewport") in checker.attributes
    )
    pictures = 3 if found.facts.memory.blocks else 2  # roofline, bars, arena
    assert checker.seen.count("svg") == 2 * pictures  # for wide and for narrow screens
    assert checker.seen.count("tbody") >= len(found.facts.steps) and checker.seen.count("details") == len(found.facts.kernels)
    assert [w for tag, w in checker.words if tag == "th" and w.isdigit()] == [str(s.number) for s in found.facts.steps]
    assert well_formed(found._repr_html_()).seen[0] == "div"


def test_every_picture_has_a_title() -> None:
    page = timed(sample()).to_html()
    pictures = re.findall(r"<svg [^>]*>\n<title>[^<]+</title>", page)
    assert len(pictures) == page.count("<svg ") == 6 and all('role="img"' in p and "aria-label" in p for p in pictures)


def test_all_is_escaped() -> None:
    def f(x: Any, s: str) -> Any:
        return np.exp(x) if s == "<script>alert(1)</script>" else np.log(x) * 2  # <b>&amp;</b>

    f.__name__ = "<i>&f"
    jitted = fx.jit(f, static_argnums=1)
    jitted(ones, "a&b")
    page = quietly(jitted, ones, "<script>alert(1)</script>").to_html()
    checker = well_formed(page)
    text = "".join(w for _, w in checker.words)
    assert "<i>&f: 1 step for 1 operation" in text and "'a&b' -> '<script>alert(1)</script>'" in text
    assert "# <b>&amp;</b>" in text and "i" not in checker.seen


def timed(found: Explanation) -> Explanation:
    """The same with times for the steps and blocks in an arena."""
    steps = tuple(
        dataclasses.replace(s, speed=_speed(p.bytes_read, p.bytes_written, p.flops, p.limit, p.bound, 2 * p.limit))
        for s in found.facts.steps
        for p in [s.speed]
    )
    blocks = tuple(Block(f"v{i}", 640 * i, 640, i + 1, i + 2) for i in range(len(steps) - 1))
    memory = dataclasses.replace(found.facts.memory, blocks=blocks)
    return Explanation(dataclasses.replace(found.facts, steps=steps, memory=memory), found.limits)


def test_pictures_of_times_and_arena() -> None:
    found = timed(sample())
    page = found.to_html()
    checker = well_formed(page)
    assert checker.seen.count("svg") == 6
    assert page.count('class="time"') == page.count('class="least"') == 2 * len(found.facts.steps)
    assert page.count('class="block shade') == 2 * len(found.facts.memory.blocks) > 0
    assert "v0: 640 B at 0, steps 1 to 2" in page and "50 % of its limit" in page
    steps = sum(s.speed.seconds or 0 for s in found.facts.steps)
    assert f"\n  steps      {seconds_of(steps)}, each run by itself\n" in str(found)
    assert "  50 %  " in str(found) and "v1: 640 B at 640, steps 2 to 3" in str(found)


def test_a_long_program_shows_its_longest_steps() -> None:
    found = sample()
    steps = tuple(
        dataclasses.replace(s, number=n, title=f"op{n}", speed=dataclasses.replace(s.speed, limit=float(n), seconds=None))
        for n in range(1, 101)
        for s in found.facts.steps[:1]
    )
    page = format_page(dataclasses.replace(found.facts, steps=steps), found.limits)
    assert page.count('class="least"') == 2 * 60 and "step 40, op40: -" not in page and "step 41, op41: -" in page


def test_text_and_dict_of_a_sample() -> None:
    found = sample()
    text = str(found)
    assert re.match(r"grad\(<lambda>\): \d+ steps for \d+ operations, \d+ kernels\n", text)
    for part in ("\nsteps\n", "\nkernels\nK1, step", "\njit cache: 1 trace held, 0 hits, 1 miss\n", "\nmachine: ", "fxgrad "):
        assert part in text
    assert all(k.text in text for k in found.facts.kernels)
    ours = text.split("\nkernels\n")[0].splitlines()  # kernels print as they do everywhere
    assert max(len(line) for line in ours if "test_explain.py" not in line) <= 120
    data = json.loads(json.dumps(found.as_dict(), allow_nan=False))
    assert data["name"] == "grad(<lambda>)" and len(data["steps"]) == len(found.facts.steps)
    assert data["steps"][0]["speed"]["flops"] == found.facts.steps[0].speed.flops
    assert data["limits"]["streams"][-1]["level"] == "memory" and data["versions"]["fxgrad"] == fx.__version__
    assert repr(found) == f"<Explanation of grad(<lambda>): {len(found.facts.steps)} steps>"


def test_quantities() -> None:
    assert [amount(x, "B") for x in (0, 8, 999, 1000, 8192, 99_950, 999_600, 1e9, 2.5e18)] == [
        "0 B", "8 B", "999 B", "1.00 kB", "8.19 kB", "100 kB", "1.00 MB", "1.00 GB", "2500 PB",
    ]  # fmt: skip
    assert [seconds_of(x) for x in (None, 0.0, 3e-10, 4.12e-5, 0.9999, 12.34)] == [
        "-",
        "0.00 ns",
        "0.30 ns",
        "41.2 us",
        "1.00 s",
        "12.3 s",
    ]
    assert [percent(x) for x in (None, 0.004, 0.0996, 1.2)] == ["-", "0.4 %", "10 %", "120 %"]
    assert [ratio(x) for x in (None, 0, 0.0123, 1.2345, 512.3)] == ["-", "0", "0.012", "1.23", "512"]


# ---- beaten limits -----------------------------------------------------------------------------------------------------


def test_limits_that_are_beaten_are_measured_again_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = Limits("a cpu", 1, "2026-01-01", (Stream("memory", 10**6, 1.0, 1.0, 1.0),), 1.0, 1.0)
    fast = Limits("a cpu", 1, "2026-01-01", (Stream("memory", 10**6, 1e18, 1e18, 1e18),), 1e18, 1e18)
    monkeypatch.setattr(fx.config, "cache_dir", str(tmp_path))
    answers, count = [slow, fast], fx.get_num_threads()
    monkeypatch.setattr(machine, "_measure", lambda n: answers.pop(0))
    monkeypatch.setattr(machine, "_kept", {})
    monkeypatch.setattr(report, "_renewed", set())
    f = fx.jit(lambda x: np.exp(x))
    found = quietly(f, ones)
    assert found.limits == fast == machine_limits(count) and not answers and "Something is faster" not in str(found)
    answers.append(slow)
    machine_limits(count, again=True)
    found = quietly(f, ones)
    assert found.limits == slow and "Something is faster" in str(found) and "Something is faster" in found.to_html()


# ---- errors ------------------------------------------------------------------------------------------------------------


def plain(x: Any) -> Any:
    return x


@pytest.mark.parametrize(
    "bad, what, fix",
    [
        (plain, "got 'plain', a function", "fx.explain(fx.jit(plain), ...)"),
        (np.sin, "got 'sin', a ufunc", "fx.explain(fx.jit(sin), ...)"),
        (fx.grad(fx.jit(plain)), "got 'grad(jit(plain))', a Transformed", "fx.explain(fx.jit(f), ...)"),
        (3, "got int 3", "fx.explain(fx.jit(f), ...)"),
    ],
)
def test_what_is_not_jitted(bad: Any, what: str, fix: str) -> None:
    error = raised(lambda: fx.explain(bad, ones), TypeError)
    assert_four_parts(error, what=what, line="fx.explain(bad, ones)", why="only fx.jit compiles", fix=fix)


def test_inside_a_transform() -> None:
    f = fx.jit(plain)

    def g(x: Any) -> Any:
        fx.explain(f, x)
        return x

    error = raised(lambda: fx.grad(g)(1.0), TypeError)
    assert_four_parts(
        error, what="'plain' was called inside a transform", line="fx.explain(f, x)", why="to time it", fix="outside"
    )
