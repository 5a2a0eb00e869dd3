"""What is known of a compiled function, as plain values that text and pages are made of: numbers, strings, tuples of them."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Block", "CacheFacts", "Facts", "KernelFacts", "Line", "MemoryFacts", "Speed", "StepFacts", "faster_than_limit"]


@dataclass(frozen=True)
class Line:
    """A line of the user's code that an operation comes from."""

    file: str
    line: int
    function: str
    text: str


@dataclass(frozen=True)
class Speed:
    """Work and time of a step or of a whole call.

    `limit` is the least time in seconds the machine allows: the larger of bytes over bandwidth and flops over peak, and `bound`
    says which ("bandwidth", "peak", or "nothing" without work). What was not measured or has no value (a ratio to zero) is None.
    """

    bytes_read: int
    bytes_written: int
    flops: int
    limit: float
    bound: str
    seconds: float | None
    intensity: float | None  # flops a byte
    bandwidth: float | None  # bytes a second
    rate: float | None  # flops a second
    share: float | None  # limit / seconds

    @property
    def bytes_moved(self) -> int:
        return self.bytes_read + self.bytes_written


@dataclass(frozen=True)
class StepFacts:
    """A step: what it does, of which arrays, why its results went to memory, where in the user's code it comes from."""

    number: int
    kind: str
    title: str
    kernels: tuple[str, ...]
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    why: tuple[str, ...]
    lines: tuple[Line, ...]
    speed: Speed
    inside: tuple[str, ...]  # of a loop or a branch: its bodies, a line for each step


@dataclass(frozen=True)
class KernelFacts:
    """A kernel: its name in this report, its text, the steps that run it, whether this process generated its machine code."""

    name: str
    text: str
    steps: tuple[int, ...]
    generated: bool


@dataclass(frozen=True)
class Block:
    """A part of the arena: which bytes, and from which step to which it is in use."""

    name: str
    offset: int
    size: int
    first: int
    last: int


@dataclass(frozen=True)
class MemoryFacts:
    """Bytes of a call: arguments, results, values in between, and the most there is at a time; the arena's blocks if known."""

    argument: int
    output: int
    temp: int
    peak: int
    blocks: tuple[Block, ...]


@dataclass(frozen=True)
class CacheFacts:
    """The jitted function's cache of traces, and why it missed: the last reasons, the latest last."""

    traces: int
    hits: int
    misses: int
    reasons: tuple[str, ...]


@dataclass(frozen=True)
class Facts:
    """All of it."""

    name: str
    arguments: tuple[str, ...]
    captured: tuple[str, ...]
    results: tuple[str, ...]
    operations: int
    threads: int
    groups: int  # calls are timed in groups, the fastest counts
    calls: int  # in a group; 0 if nothing was run
    speed: Speed
    steps: tuple[StepFacts, ...]
    kernels: tuple[KernelFacts, ...]
    memory: MemoryFacts
    cache: CacheFacts
    versions: tuple[tuple[str, str], ...]


def faster_than_limit(facts: Facts) -> bool:
    """Whether something took clearly less time than the limits allow, which then are wrong."""
    return any((s.share or 0) > 1.1 for s in (facts.speed, *(step.speed for step in facts.steps)))
