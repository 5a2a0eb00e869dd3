"""The special cases of the standard's elementwise functions, as tables.

A row is "operands -> result". An operand is a number, or stands for several: `f` finite and positive, `-f` finite and negative,
`x` any number at all, `<1`, `>1` and so on. In a result `f` and the like repeat the operand; `~` leaves the sign open; pi is the
nearest float. Rows of complex functions give both parts of operand and result, a comma between them.
"""

from __future__ import annotations

import math

_SAME = "0 -> 0; -0 -> -0; inf -> inf; -inf -> -inf; nan -> nan"
REAL: dict[str, str] = {
    "abs": "nan -> nan; -0 -> 0; 0 -> 0; -inf -> inf; inf -> inf",
    "acos": "nan -> nan; >1 -> nan; <-1 -> nan; 1 -> 0",
    "acosh": "nan -> nan; <1 -> nan; 1 -> 0; inf -> inf",
    "asin": "nan -> nan; >1 -> nan; <-1 -> nan; 0 -> 0; -0 -> -0",
    "asinh": _SAME,
    "atan": "nan -> nan; 0 -> 0; -0 -> -0; inf -> pi/2; -inf -> -pi/2",
    "atanh": "nan -> nan; <-1 -> nan; >1 -> nan; -1 -> -inf; 1 -> inf; 0 -> 0; -0 -> -0",
    "ceil": _SAME + "; 3 -> 3; -0.5 -> -0",
    "cos": "nan -> nan; 0 -> 1; -0 -> 1; inf -> nan; -inf -> nan",
    "cosh": "nan -> nan; 0 -> 1; -0 -> 1; inf -> inf; -inf -> inf",
    "exp": "nan -> nan; 0 -> 1; -0 -> 1; inf -> inf; -inf -> 0",
    "expm1": "nan -> nan; 0 -> 0; -0 -> -0; inf -> inf; -inf -> -1",
    "floor": _SAME + "; -3 -> -3; 0.5 -> 0",
    "log": "nan -> nan; <0 -> nan; 0 -> -inf; -0 -> -inf; 1 -> 0; inf -> inf",
    "log1p": "nan -> nan; <-1 -> nan; -1 -> -inf; -0 -> -0; 0 -> 0; inf -> inf",
    "log2": "nan -> nan; <0 -> nan; 0 -> -inf; -0 -> -inf; 1 -> 0; inf -> inf; 8 -> 3",
    "log10": "nan -> nan; <0 -> nan; 0 -> -inf; -0 -> -inf; 1 -> 0; inf -> inf; 1000 -> 3",
    "negative": "nan -> nan; inf -> -inf; 0 -> -0; -0 -> 0",
    "positive": _SAME,
    "reciprocal": "inf -> 0; -inf -> -0; 0 -> inf; -0 -> -inf; nan -> nan",
    "round": _SAME + "; 2.5 -> 2; -0.5 -> -0; 3.5 -> 4; 7 -> 7",
    "sign": "<0 -> -1; 0 -> 0; -0 -> ~0; >0 -> 1; nan -> nan",
    "sin": "nan -> nan; 0 -> 0; -0 -> -0; inf -> nan; -inf -> nan",
    "sinh": _SAME,
    "sqrt": "nan -> nan; <0 -> nan; 0 -> 0; -0 -> -0; inf -> inf",
    "square": "nan -> nan; -0 -> 0; inf -> inf; -inf -> inf",
    "tan": "nan -> nan; 0 -> 0; -0 -> -0; inf -> nan; -inf -> nan",
    "tanh": "nan -> nan; 0 -> 0; -0 -> -0; inf -> 1; -inf -> -1",
    "trunc": _SAME + "; -0.5 -> -0; 0.5 -> 0; 3 -> 3",
    # of two operands
    "add": """nan x -> nan; x nan -> nan; inf -inf -> nan; -inf inf -> nan; inf inf -> inf; -inf -inf -> -inf; inf f -> inf;
        -inf f -> -inf; f inf -> inf; f -inf -> -inf; -0 -0 -> -0; -0 0 -> 0; 0 -0 -> 0; 0 0 -> 0; 1 -1 -> 0""",
    "atan2": """nan x -> nan; x nan -> nan; f 0 -> pi/2; f -0 -> pi/2; 0 f -> 0; 0 0 -> 0; 0 -0 -> pi; 0 -f -> pi; -0 f -> -0;
        -0 0 -> -0; -0 -0 -> -pi; -0 -f -> -pi; -f 0 -> -pi/2; -f -0 -> -pi/2; f inf -> 0; f -inf -> pi; -f inf -> -0;
        -f -inf -> -pi; inf f -> pi/2; -inf f -> -pi/2; inf inf -> pi/4; inf -inf -> 3pi/4; -inf inf -> -pi/4;
        -inf -inf -> -3pi/4""",
    "copysign": "3 -0 -> -3; 3 0 -> 3; -3 0 -> 3; -3 -0 -> -3; 3 -2 -> -3; inf -1 -> -inf; 0 -1 -> -0",
    "divide": """nan x -> nan; x nan -> nan; inf inf -> nan; -inf inf -> nan; 0 0 -> nan; 0 -0 -> nan; 0 f -> 0; -0 f -> -0;
        0 -f -> -0; -0 -f -> 0; f 0 -> inf; f -0 -> -inf; -f 0 -> -inf; -f -0 -> inf; inf f -> inf; inf -f -> -inf;
        -inf f -> -inf; -inf -f -> inf; f inf -> 0; f -inf -> -0; -f inf -> -0; -f -inf -> 0; 6 3 -> 2; 6 -3 -> -2""",
    "hypot": "inf x -> inf; x inf -> inf; -inf x -> inf; x -inf -> inf; nan f -> nan; f nan -> nan; 3 4 -> 5; 0 0 -> 0",
    "logaddexp": "nan f -> nan; f nan -> nan; inf f -> inf; f inf -> inf; -inf -inf -> -inf",
    "maximum": "nan x -> nan; x nan -> nan; 1 2 -> 2; -inf 3 -> 3; inf 3 -> inf",
    "minimum": "nan x -> nan; x nan -> nan; 1 2 -> 1; -inf 3 -> -inf; inf 3 -> 3",
    "multiply": """nan x -> nan; x nan -> nan; inf 0 -> nan; -inf -0 -> nan; 0 inf -> nan; inf f -> inf; inf -f -> -inf;
        -inf f -> -inf; -inf -f -> inf; inf inf -> inf; inf -inf -> -inf; 2 -3 -> -6; 0 -3 -> -0; -0 -3 -> 0""",
    "nextafter": "nan x -> nan; x nan -> nan; 0 -0 -> -0; -0 0 -> 0; 3 3 -> 3",
    "pow": """x 0 -> 1; x -0 -> 1; nan f -> nan; nan -f -> nan; 2 nan -> nan; >1 inf -> inf; >1 -inf -> 0; 1 inf -> 1;
        -1 inf -> 1;
        -1 -inf -> 1; 1 -inf -> 1; 0.5 inf -> 0; 0.5 -inf -> inf; -0.5 inf -> 0; inf f -> inf; inf -f -> 0; -inf 3 -> -inf;
        -inf 2 -> inf; -inf 2.5 -> inf; -inf -3 -> -0; -inf -2 -> 0; 0 f -> 0; 0 -f -> inf; -0 3 -> -0; -0 2 -> 0; -0 -3 -> -inf;
        -0 -2 -> inf; -2 0.5 -> nan;
        -2 3 -> -8; 1 x -> 1""",
    "remainder": "nan x -> nan; x nan -> nan; inf f -> nan; -inf f -> nan; f 0 -> nan; 0 f -> 0; 5 3 -> 2; -5 3 -> 1; 5 -3 -> -1",
    "subtract": "nan x -> nan; x nan -> nan; inf inf -> nan; -inf -inf -> nan; inf f -> inf; f inf -> -inf; 0 0 -> 0; -0 0 -> -0",
}

# Both parts of the operand, then of the result. Below, each function also has f(conj z) = conj f(z), where the sign is told.
COMPLEX: dict[str, str] = {
    "acos": """0,0 -> pi/2,-0; -0,0 -> pi/2,-0; 0,nan -> pi/2,nan; -0,nan -> pi/2,nan; f,inf -> pi/2,-inf; -f,inf -> pi/2,-inf;
        f,nan -> nan,nan; -inf,f -> pi,-inf; inf,f -> 0,-inf; -inf,inf -> 3pi/4,-inf; inf,inf -> pi/4,-inf; inf,nan -> nan,~inf;
        -inf,nan -> nan,~inf; nan,f -> nan,nan; nan,inf -> nan,-inf; nan,nan -> nan,nan""",
    "acosh": """0,0 -> 0,pi/2; -0,0 -> 0,pi/2; f,inf -> inf,pi/2; 0,nan -> nan,pi/2; f,nan -> nan,nan; -inf,f -> inf,pi;
        inf,f -> inf,0; -inf,inf -> inf,3pi/4; inf,inf -> inf,pi/4; inf,nan -> inf,nan; -inf,nan -> inf,nan; nan,f -> nan,nan;
        nan,inf -> inf,nan; nan,nan -> nan,nan""",
    "asinh": """0,0 -> 0,0; f,inf -> inf,pi/2; f,nan -> nan,nan; inf,f -> inf,0; inf,inf -> inf,pi/4; inf,nan -> inf,nan;
        nan,0 -> nan,0; nan,f -> nan,nan; nan,inf -> ~inf,nan; nan,nan -> nan,nan""",
    "atanh": """0,0 -> 0,0; 0,nan -> 0,nan; 1,0 -> inf,0; f,inf -> 0,pi/2; f,nan -> nan,nan; inf,f -> 0,pi/2; inf,inf -> 0,pi/2;
        inf,nan -> 0,nan; nan,f -> nan,nan; nan,inf -> ~0,pi/2; nan,nan -> nan,nan""",
    "cosh": """0,0 -> 1,0; 0,inf -> nan,~0; 0,nan -> nan,~0; f,inf -> nan,nan; f,nan -> nan,nan; inf,0 -> inf,0;
        inf,inf -> ~inf,nan; inf,nan -> inf,nan; nan,0 -> nan,~0; nan,f -> nan,nan; nan,nan -> nan,nan""",
    "exp": """0,0 -> 1,0; -0,0 -> 1,0; f,inf -> nan,nan; f,nan -> nan,nan; inf,0 -> inf,0; -inf,inf -> ~0,~0; inf,inf -> ~inf,nan;
        -inf,nan -> ~0,~0; inf,nan -> ~inf,nan; nan,0 -> nan,0; nan,f -> nan,nan; nan,nan -> nan,nan""",
    "expm1": """0,0 -> 0,0; f,inf -> nan,nan; f,nan -> nan,nan; inf,0 -> inf,0; -inf,inf -> -1,~0; inf,inf -> ~inf,nan;
        -inf,nan -> -1,~0; inf,nan -> ~inf,nan; nan,0 -> nan,0; nan,f -> nan,nan; nan,nan -> nan,nan""",
    "log": """-0,0 -> -inf,pi; 0,0 -> -inf,0; f,inf -> inf,pi/2; f,nan -> nan,nan; -inf,f -> inf,pi; inf,f -> inf,0;
        -inf,inf -> inf,3pi/4; inf,inf -> inf,pi/4; inf,nan -> inf,nan; -inf,nan -> inf,nan; nan,f -> nan,nan;
        nan,inf -> inf,nan; nan,nan -> nan,nan""",
    "log1p": """-1,0 -> -inf,0; f,inf -> inf,pi/2; f,nan -> nan,nan; -inf,f -> inf,pi; inf,f -> inf,0; -inf,inf -> inf,3pi/4;
        inf,inf -> inf,pi/4; inf,nan -> inf,nan; -inf,nan -> inf,nan; nan,f -> nan,nan; nan,inf -> inf,nan; nan,nan -> nan,nan""",
    "sign": "0,0 -> 0,~0; nan,f -> nan,nan; f,nan -> nan,nan; -3,0 -> -1,0; 0,2 -> 0,1",
    "sinh": """0,0 -> 0,0; 0,inf -> ~0,nan; 0,nan -> ~0,nan; f,inf -> nan,nan; f,nan -> nan,nan; inf,0 -> inf,0;
        inf,inf -> ~inf,nan; inf,nan -> ~inf,nan; nan,0 -> nan,0; nan,f -> nan,nan; nan,nan -> nan,nan""",
    "sqrt": """0,0 -> 0,0; -0,0 -> 0,0; x,inf -> inf,inf; f,nan -> nan,nan; -inf,f -> 0,inf; inf,f -> inf,0; -inf,nan -> nan,~inf;
        inf,nan -> inf,nan; nan,f -> nan,nan; nan,nan -> nan,nan""",
    "tanh": """0,0 -> 0,0; 0,inf -> 0,nan; f,inf -> nan,nan; 0,nan -> 0,nan; f,nan -> nan,nan; inf,1 -> 1,0; inf,inf -> 1,~0;
        inf,nan -> 1,~0; nan,0 -> nan,0; nan,f -> nan,nan; nan,nan -> nan,nan""",
}

_MANY: dict[str, list[float]] = {
    "f": [0.75, 3.0, 1e6],
    "-f": [-0.75, -3.0, -1e6],
    "x": [math.nan, -math.inf, -3.5, -0.0, 0.0, 1.0, math.inf],
    ">0": [0.5, 4.0, math.inf],
    "<0": [-0.5, -4.0, -math.inf],
    ">1": [1.5, 1e6, math.inf],
    "<1": [0.5, -0.0, -2.0, -math.inf],
    "<-1": [-1.5, -1e6, -math.inf],
}
_PI = {"pi": math.pi, "pi/2": math.pi / 2, "pi/4": math.pi / 4, "3pi/4": 3 * math.pi / 4}


def operands(word: str) -> list[float]:
    return _MANY[word] if word in _MANY else [float(word)]


def number(word: str) -> float:
    """The value a result's word stands for, without its ~."""
    word = word.lstrip("~")
    return -_PI[word[1:]] if word[:1] == "-" and word[1:] in _PI else _PI[word] if word in _PI else float(word)


def rows(table: str) -> list[tuple[list[str], str]]:
    """(words of the operands, word of the result)."""
    pairs = [row.split("->") for row in table.split(";")]
    return [(left.split(), right.strip()) for left, right in pairs]
