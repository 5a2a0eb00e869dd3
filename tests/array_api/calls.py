"""Calls of the standard's functions by its parameter names; NumPy 2 has the same ones and answers for the values."""

from __future__ import annotations

from typing import Any

import numpy as np

INTEGERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
FLOATS, COMPLEX, BOOL = ["float32", "float64"], ["complex64", "complex128"], ["bool"]
KINDS = {
    "b": BOOL, "i": INTEGERS, "f": FLOATS, "c": COMPLEX, "r": INTEGERS + FLOATS, "n": INTEGERS + FLOATS + COMPLEX,
    "fc": FLOATS + COMPLEX, "bi": BOOL + INTEGERS, "all": BOOL + INTEGERS + FLOATS + COMPLEX,
}  # fmt: skip

UNARY: dict[str, str] = {
    **dict.fromkeys(["abs", "negative", "positive", "square", "sign"], "n"),
    **dict.fromkeys(
        ["acos", "acosh", "asin", "asinh", "atan", "atanh", "cos",
         "cosh", "exp", "expm1", "log", "log1p", "log2", "log10", "reciprocal", "sin", "sinh", "sqrt", "tan", "tanh"], "fc"
    ),
    **dict.fromkeys(["ceil", "floor", "trunc"], "r"),
    **dict.fromkeys(["isfinite", "isinf", "isnan", "round"], "n"),
    **dict.fromkeys(["conj", "imag", "real"], "n"),
    "signbit": "f", "bitwise_invert": "bi", "logical_not": "b",
}  # fmt: skip
BINARY: dict[str, str] = {
    **dict.fromkeys(["add", "multiply", "subtract"], "n"),
    **dict.fromkeys(["equal", "not_equal"], "all"),
    **dict.fromkeys(["less", "less_equal", "greater", "greater_equal", "maximum", "minimum", "remainder", "floor_divide"], "r"),
    **dict.fromkeys(["divide", "pow"], "fc"),
    **dict.fromkeys(["atan2", "copysign", "hypot", "logaddexp", "nextafter"], "f"),
    **dict.fromkeys(["bitwise_and", "bitwise_or", "bitwise_xor"], "bi"),
    **dict.fromkeys(["bitwise_left_shift", "bitwise_right_shift"], "i"),
    **dict.fromkeys(["logical_and", "logical_or", "logical_xor"], "b"),
}

SHAPES = [((), ()), ((3,), ()), ((2, 1), (3,)), ((0,), (1,)), ((2, 0), (2, 1)), ((2, 3), (2, 3))]


def values(dtype: str, shape: tuple[int, ...], seed: int, low: float = 0.25, high: float = 0.9) -> np.ndarray:
    """Numbers that every function takes; integers from 1 to 5."""
    rng = np.random.default_rng(seed)
    kind = np.dtype(dtype).kind
    if kind == "b":
        return rng.random(shape) < 0.5
    if kind in "iu":
        return rng.integers(1, 6, shape).astype(dtype)
    x = rng.uniform(low, high, shape)
    return (x + 1j * rng.uniform(low, high, shape) if kind == "c" else x).astype(dtype)


x = values("float64", (2, 3, 4), 0)
v = values("float64", (6,), 1)
z = values("complex64", (3, 4), 2)
n = np.array([[3, 1, 2], [1, 1, 5]], np.int16)
b = np.array([[True, False, True], [False, False, True]])
spd = np.array([[4.0, 1, 0.5], [1, 3, 0.25], [0.5, 0.25, 2]])
stack = np.stack([spd, spd + np.eye(3)])
i = np.array([2, 0, 1])
LINALG, FFT = "linalg", "fft"

# (namespace, name, positional arguments, keywords); arrays are traced under jit, all else is static
CALLS: list[tuple[str, str, tuple, dict[str, Any]]] = [
    # creation
    ("", "zeros", ((2, 3),), {"dtype": np.float32}), ("", "ones", (3,), {}), ("", "full", ((2,), 1j), {}),
    ("", "eye", (3, 4), {"k": 1}),
    ("", "arange", (1, 7, 2), {"dtype": np.float32}), ("", "linspace", (0.0, 1.0, 5), {"endpoint": False}),
    ("", "arange", (3,), {}),
    ("", "linspace", (1j, 2.0, 3), {"dtype": np.complex64}), ("", "zeros_like", (z,), {}),
    ("", "ones_like", (n,), {"dtype": np.float64}),
    ("", "full_like", (x, 7), {}), ("", "tril", (x,), {"k": 1}), ("", "triu", (z,), {"k": -1}),
    ("", "meshgrid", (v, i), {"indexing": "ij"}),
    ("", "asarray", (n,), {"dtype": np.float32, "copy": True}), ("", "full", ((), True), {"dtype": bool}),
    ("", "empty_like", (b[:0],), {}),
    # data types
    ("", "astype", (n, np.complex64), {"copy": False}), ("", "astype", (x, np.int32), {}), ("", "astype", (z, bool), {}),
    ("", "isdtype", (np.dtype(np.int8), ("real floating", "integral")), {}),
    ("", "can_cast", (np.dtype("f4"), np.dtype("f8")), {}),
    ("", "result_type", (np.dtype("f4"), np.dtype("c8")), {}),
    # indexing, searching, sorting, sets
    ("", "take", (x, i), {"axis": 2}), ("", "take_along_axis", (n, np.array([[0, 2], [1, 1]])), {"axis": 1}),
    ("", "argmax", (x,), {"axis": 1, "keepdims": True}),
    ("", "argmin", (n,), {}), ("", "count_nonzero", (n - 1,), {"axis": 0, "keepdims": True}),
    ("", "searchsorted", (np.sort(v), v), {"side": "right"}),
    ("", "searchsorted", (v, x), {"sorter": np.argsort(v)}), ("", "where", (b, n, n + 0.5), {}),
    ("", "where", (b, z[0, :3], 2), {}),
    ("", "argsort", (x,), {"axis": 0, "stable": True}), ("", "sort", (z,), {"axis": -1}),
    ("", "sort", (n,), {"axis": 0, "stable": False}),
    # manipulation
    ("", "broadcast_arrays", (x, v[:4]), {}), ("", "broadcast_to", (v, (2, 6)), {}),
    ("", "concat", ((n, n.astype("f4")),), {"axis": 1}),
    ("", "concat", ((b, b),), {"axis": None}), ("", "expand_dims", (z,), {"axis": -1}), ("", "flip", (x,), {"axis": (0, 2)}),
    ("", "flip", (z,), {}),
    ("", "moveaxis", (x, (0, 1), (-1, 0)), {}), ("", "permute_dims", (x, (2, 0, 1)), {}), ("", "repeat", (v, 2), {}),
    ("", "repeat", (z, 3), {"axis": 1}),
    ("", "reshape", (z, (2, -1)), {}), ("", "roll", (x, (1, -2)), {"axis": (0, 2)}), ("", "roll", (n, 4), {}),
    ("", "squeeze", (x[:1], 0), {}),
    ("", "stack", ((z, z),), {"axis": -1}), ("", "tile", (n, (2, 1, 2)), {}), ("", "unstack", (x,), {"axis": 1}),
    ("", "matrix_transpose", (x,), {}), ("", "diff", (x,), {"axis": 1, "n": 2}), ("", "diff", (z,), {"append": z[:, :1]}),
    # statistics and logic
    ("", "max", (n,), {"axis": 1}), ("", "min", (x,), {"axis": (0, 2), "keepdims": True}), ("", "mean", (x,), {"axis": -1}),
    ("", "mean", (z,), {}),
    ("", "prod", (n,), {"axis": 0}), ("", "prod", (z,), {"dtype": np.complex128}),
    ("", "std", (x,), {"axis": 0, "correction": 1.0}),
    ("", "sum", (b,), {"axis": None}), ("", "sum", (n,), {"dtype": np.float32, "keepdims": True}),
    ("", "sum", (z,), {"axis": (0, 1)}), ("", "sum", (x[:0],), {}),
    ("", "var", (x,), {"correction": 0.5, "axis": (0, 1), "keepdims": True}),
    ("", "cumulative_sum", (x,), {"axis": 1, "include_initial": True}),
    ("", "cumulative_prod", (n,), {"axis": 0, "include_initial": True, "dtype": np.int64}), ("", "all", (b,), {"axis": 0}),
    ("", "any", (x[:, :0],), {"axis": 1}),
    ("", "clip", (x, 0.3, 0.6), {}), ("", "clip", (n, 2, None), {}), ("", "clip", (x,), {"max": 0.5}),
    # products
    ("", "matmul", (x, x[0].T), {}), ("", "matmul", (z, z.T), {}), ("", "tensordot", (x, x), {"axes": ((0, 1), (0, 1))}),
    ("", "vecdot", (z, z), {"axis": 0}),
    # linear algebra
    (LINALG, "cholesky", (stack,), {"upper": True}), (LINALG, "cross", (x[..., :3], x[0, 0, :3]), {}),
    (LINALG, "det", (stack,), {}),
    (LINALG, "diagonal", (x,), {"offset": 1}), (LINALG, "eigvalsh", (stack,), {}), (LINALG, "inv", (stack,), {}),
    (LINALG, "matmul", (spd, spd), {}),
    (LINALG, "matrix_norm", (x,), {"ord": "fro", "keepdims": True}), (LINALG, "matrix_norm", (stack,), {"ord": 1}),
    (LINALG, "matrix_power", (spd, 3), {}),
    (LINALG, "matrix_rank", (stack,), {}), (LINALG, "matrix_transpose", (z,), {}), (LINALG, "outer", (v, v), {}),
    (LINALG, "pinv", (x[0],), {"rtol": 1e-12}),
    (LINALG, "slogdet", (stack,), {}), (LINALG, "solve", (spd, spd[0]), {}), (LINALG, "svdvals", (x[0],), {}),
    (LINALG, "tensordot", (spd, spd), {"axes": 1}),
    (LINALG, "trace", (x,), {"offset": -1, "dtype": np.float32}), (LINALG, "vecdot", (z, z), {}),
    (LINALG, "vector_norm", (x,), {"axis": 1, "ord": 3, "keepdims": True}),
    (LINALG, "vector_norm", (z,), {"axis": 0}), (LINALG, "vector_norm", (z,), {"ord": 0}), (LINALG, "matrix_norm", (z,), {}),
    (LINALG, "vector_norm", (z,), {"ord": 3.0, "axis": 1}), (LINALG, "vector_norm", (z,), {"ord": np.inf}),
    # Fourier transforms
    (FFT, "fft", (x,), {"n": 5, "axis": 0, "norm": "ortho"}), (FFT, "ifft", (z,), {}),
    (FFT, "fftn", (x,), {"s": (2, 5), "axes": (0, 1)}), (FFT, "ifftn", (z,), {}),
    (FFT, "rfft", (x,), {"norm": "forward"}), (FFT, "irfft", (z,), {"n": 6}), (FFT, "rfftn", (x,), {}),
    (FFT, "irfftn", (z,), {}), (FFT, "hfft", (z,), {}),
    (FFT, "ihfft", (v,), {}), (FFT, "fftfreq", (6,), {"d": 0.5}), (FFT, "rfftfreq", (7,), {}),
    (FFT, "fftshift", (x,), {"axes": 1}), (FFT, "ifftshift", (x,), {}),
]  # fmt: skip

# Shapes of results depend on values: not under jit
BY_VALUE: list[tuple[str, tuple]] = [
    ("nonzero", (n - 1,)), ("unique_all", (n,)), ("unique_counts", (v,)), ("unique_inverse", (n,)), ("unique_values", (b,)),
]  # fmt: skip

# Parameters as the standard names them: positional-only / others / keyword-only
SIGNATURES: dict[str, str] = {
    "arange": "start / stop step / dtype device", "asarray": "obj / / dtype device copy", "empty": "/ shape / dtype device",
    "empty_like": "x / / dtype device", "eye": "n_rows n_cols / / k dtype device", "from_dlpack": "x / / device copy",
    "full": "/ shape fill_value / dtype device", "full_like": "x / fill_value / dtype device",
    "linspace": "start stop / num / dtype device endpoint", "ones": "/ shape / dtype device", "ones_like": "x / / dtype device",
    "tril": "x / / k", "triu": "x / / k", "zeros": "/ shape / dtype device", "zeros_like": "x / / dtype device",
    "astype": "x dtype / / copy device", "broadcast_to": "x / shape /", "can_cast": "from_ to / /", "isdtype": "/ dtype kind /",
    "take": "x indices / / axis", "take_along_axis": "x indices / / axis", "concat": "arrays / / axis",
    "expand_dims": "x / / axis",
    "flip": "x / / axis", "moveaxis": "x source destination / /", "permute_dims": "x / axes /", "repeat": "x repeats / / axis",
    "reshape": "x / shape / copy", "roll": "x / shift / axis", "squeeze": "x / axis /", "stack": "arrays / / axis",
    "tile": "x repetitions / /",
    "unstack": "x / / axis", "argmax": "x / / axis keepdims", "argmin": "x / / axis keepdims",
    "count_nonzero": "x / / axis keepdims",
    "nonzero": "x / /", "searchsorted": "x1 x2 / / side sorter", "where": "condition x1 x2 / /", "unique_all": "x / /",
    "unique_counts": "x / /", "unique_inverse": "x / /", "unique_values": "x / /", "argsort": "x / / axis descending stable",
    "sort": "x / / axis descending stable", "cumulative_prod": "x / / axis dtype include_initial",
    "cumulative_sum": "x / / axis dtype include_initial", "max": "x / / axis keepdims", "mean": "x / / axis keepdims",
    "min": "x / / axis keepdims",
    "prod": "x / / axis dtype keepdims", "std": "x / / axis correction keepdims", "sum": "x / / axis dtype keepdims",
    "var": "x / / axis correction keepdims", "all": "x / / axis keepdims", "any": "x / / axis keepdims",
    "diff": "x / / axis n prepend append",
    "clip": "x / min max /", "matmul": "x1 x2 / /", "matrix_transpose": "x / /", "tensordot": "x1 x2 / / axes",
    "vecdot": "x1 x2 / / axis",
    "linalg.cholesky": "x / / upper", "linalg.cross": "x1 x2 / / axis", "linalg.det": "x / /",
    "linalg.diagonal": "x / / offset",
    "linalg.eigh": "x / /", "linalg.eigvalsh": "x / /", "linalg.inv": "x / /", "linalg.matrix_norm": "x / / keepdims ord",
    "linalg.matrix_power": "x n / /", "linalg.matrix_rank": "x / / rtol", "linalg.outer": "x1 x2 / /",
    "linalg.pinv": "x / / rtol",
    "linalg.qr": "x / / mode", "linalg.slogdet": "x / /", "linalg.solve": "x1 x2 / /", "linalg.svd": "x / / full_matrices",
    "linalg.svdvals": "x / /", "linalg.trace": "x / / offset dtype", "linalg.vecdot": "x1 x2 / / axis",
    "linalg.vector_norm": "x / / axis keepdims ord", "fft.fft": "x / / n axis norm", "fft.ifft": "x / / n axis norm",
    "fft.fftn": "x / / s axes norm", "fft.ifftn": "x / / s axes norm", "fft.rfft": "x / / n axis norm",
    "fft.irfft": "x / / n axis norm",
    "fft.rfftn": "x / / s axes norm", "fft.irfftn": "x / / s axes norm", "fft.hfft": "x / / n axis norm",
    "fft.ihfft": "x / / n axis norm",
    "fft.fftfreq": "n / / d dtype device", "fft.rfftfreq": "n / / d dtype device", "fft.fftshift": "x / / axes",
    "fft.ifftshift": "x / / axes",
}  # fmt: skip
