"""einsum: any sum of products, each step one `dot`."""

from __future__ import annotations

from typing import Any

import numpy as np

from fxgrad import errors
from fxgrad.numpy import elementwise as ew
from fxgrad.numpy.core import as_dtype, refuse_out, result_type, tensor
from fxgrad.numpy.linalg import contract, out_dtype
from fxgrad.numpy.manipulation import reshape, transpose
from fxgrad.numpy.reductions import sum as _sum
from fxgrad.numpy.selection import diagonal as _diagonal

__all__ = ["einsum"]


def einsum(subscripts: Any, *operands: Any, out: Any = None, optimize: Any = False, **kwargs: Any) -> Any:
    """Sums of products named by subscripts, as numpy.einsum, with explicit and implicit form, ellipsis and repeated indices.

    Each step is one `dot`. The order of steps is the one numpy.einsum_path gives for `optimize`: "greedy" (also for True and
    False: fxgrad always contracts in pairs), "optimal", or a path.
    """
    refuse_out("einsum", out)
    dtype = out_dtype("einsum", dict(kwargs))
    if not isinstance(subscripts, str):
        subscripts, listed = _interleaved((subscripts, *operands))
        operands = tuple(listed)
    xs = [tensor(x) for x in operands]
    common = result_type(*xs) if dtype is None else np.dtype(dtype)
    xs = [as_dtype(x, common) for x in xs]
    inputs, output = _parse_einsum(subscripts, xs)
    sizes = _einsum_sizes(inputs, xs)
    terms = [_diagonal_term(x, labels, sizes) for x, labels in zip(xs, inputs, strict=True)]
    for step in _einsum_path(inputs, output, sizes, optimize):
        chosen = [terms[i] for i in sorted(step)]
        terms = [t for i, t in enumerate(terms) if i not in step]
        wanted = set(output).union(*[labels for _, labels in terms])
        term = chosen[0]
        for other in chosen[1:]:
            term = _pair(term, other, wanted if other is chosen[-1] else wanted | set().union(*[c[1] for c in chosen]))
        terms.append(term)
    x, labels = _sum_out(terms[0], set(output))
    missing = [c for c in output if c not in labels]  # labels that were of length 1 in every operand that has them
    x = reshape(x, (*x.shape, *(sizes[c] for c in missing))) if missing else x
    labels = labels + "".join(missing)
    return transpose(x, [labels.index(c) for c in output])


def _interleaved(args: tuple) -> tuple[str, list[Any]]:
    """einsum(x, [0, 1], y, [1, 2], [0, 2])."""
    pairs, rest = (args[:-1], args[-1]) if len(args) % 2 else (args, None)
    letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
    text = lambda sub: "".join("..." if i is Ellipsis else letters[i] for i in sub)  # noqa: E731
    left = ",".join(text(sub) for sub in pairs[1::2])
    return (left if rest is None else f"{left}->{text(rest)}"), list(pairs[::2])


def _parse_einsum(subscripts: str, xs: list[Any]) -> tuple[list[str], str]:
    """The labels of each operand and of the result, an ellipsis replaced by labels of its own."""
    text = subscripts.replace(" ", "")
    left, arrow, right = text.partition("->")
    inputs = left.split(",")
    if len(inputs) != len(xs):
        count = "more" if len(xs) > len(inputs) else "fewer"
        raise ValueError(f"{count} operands provided to einstein sum function than specified in the subscripts string")
    rank, dots = 0, "\u0100"
    for term, x in zip(inputs, xs, strict=True):
        if any(not (c.isalpha() or c == ".") for c in term) or (
            ("." in term) and (term.count("...") != 1 or term.count(".") != 3)
        ):
            raise ValueError(f"invalid subscripts '{term}' in einstein sum")
        extra = x.ndim - len(term.replace("...", ""))
        if extra < 0 or (extra and "..." not in term):
            raise errors.FxValueError(
                f"einsum: operand of shape {x.shape} does not have the axes of subscripts '{term}'",
                why=f"It has rank {x.ndim}, the subscripts name {len(term.replace('...', ''))} axes.",
                fix="Name every axis, or write ... for those in front.",
            )
        rank = max(rank, extra) if "..." in term else rank
    labels = [chr(ord(dots) + i) for i in range(rank)]
    full = [
        t.replace("...", "".join(labels[rank - (x.ndim - len(t.replace("...", ""))) :])) for t, x in zip(inputs, xs, strict=True)
    ]
    names = "".join(inputs).replace(".", "")
    if not arrow:
        return full, "".join(labels) + "".join(sorted(c for c in set(names) if names.count(c) == 1))
    output = right.replace("...", "".join(labels))
    for c in output:
        if output.count(c) > 1:
            raise ValueError(f"einstein sum subscripts string includes output subscript '{c}' multiple times")
        if all(c not in t for t in full):
            raise ValueError(f"einstein sum subscripts string included output subscript '{c}' which never appeared in an input")
    if rank and "..." not in right:
        raise ValueError("output has no ellipsis, but an operand's ellipsis stands for axes")
    return full, output


def _einsum_sizes(inputs: list[str], xs: list[Any]) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for term, x in zip(inputs, xs, strict=True):
        for c, n in zip(term, x.shape, strict=True):
            if sizes.get(c, 1) == 1:
                sizes[c] = n
            elif n not in (1, sizes[c]):
                raise errors.FxValueError(
                    f"einsum: index '{c}' stands for lengths {sizes[c]} and {n}",
                    why="An index has one length in all operands (or 1, which broadcasts).",
                    fix="Give axes of different lengths different letters, or slice one of the operands.",
                )
    return sizes


def _diagonal_term(x: Any, labels: str, sizes: dict[str, int]) -> tuple[Any, str]:
    """Repeated labels become one by taking diagonals; axes of length 1 that broadcast are dropped."""
    drop = [i for i, c in enumerate(labels) if x.shape[i] == 1 and sizes[c] != 1]
    if drop:
        x = reshape(x, tuple(n for i, n in enumerate(x.shape) if i not in drop))
        labels = "".join(c for i, c in enumerate(labels) if i not in drop)
    for c in dict.fromkeys(labels):
        while labels.count(c) > 1:
            i = labels.index(c)
            j = labels.index(c, i + 1)
            x = _diagonal(x, 0, i, j)
            labels = labels[:i] + labels[i + 1 : j] + labels[j + 1 :] + c
    return x, labels


def _einsum_path(inputs: list[str], output: str, sizes: dict[str, int], optimize: Any) -> list[tuple[int, ...]]:
    """The contractions as numpy.einsum_path gives them."""
    optimize = "greedy" if isinstance(optimize, bool) or optimize is None else optimize
    if len(inputs) <= 2 and isinstance(optimize, str):
        return [tuple(range(len(inputs)))]
    letters = dict(zip(sizes, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ", strict=False))
    if len(letters) < len(sizes):
        raise ValueError("too many subscripts in einsum")
    terms = ["".join(letters[c] for c in t) for t in inputs]
    dummies = [np.broadcast_to(np.float64(0), tuple(sizes[c] for c in t)) for t in inputs]
    path = np.einsum_path(f"{','.join(terms)}->{''.join(letters[c] for c in output)}", *dummies, optimize=optimize)[0]
    return [tuple(step) for step in path[1:]]


def _sum_out(term: tuple[Any, str], wanted: set[str]) -> tuple[Any, str]:
    """Sum over the labels nobody needs."""
    x, labels = term
    axes = tuple(i for i, c in enumerate(labels) if c not in wanted)
    return (_sum(x, axes, dtype=x.dtype), "".join(c for c in labels if c in wanted)) if axes else term


def _pair(a: tuple[Any, str], b: tuple[Any, str], wanted: set[str]) -> tuple[Any, str]:
    """Two operands contracted over the labels they share and nobody else needs."""
    x, xl = _sum_out(a, wanted | set(b[1]))
    y, yl = _sum_out(b, wanted | set(a[1]))
    batch = [c for c in xl if c in yl and c in wanted]
    over = [c for c in xl if c in yl and c not in wanted]
    labels = "".join(batch) + "".join(c for c in xl if c not in yl) + "".join(c for c in yl if c not in xl)
    if not over and len(labels) == len(batch):
        return ew.multiply(x, transpose(y, [yl.index(c) for c in xl])), xl
    z = contract(
        x,
        y,
        ([xl.index(c) for c in over], [yl.index(c) for c in over]),
        ([xl.index(c) for c in batch], [yl.index(c) for c in batch]),
    )
    return z, labels
