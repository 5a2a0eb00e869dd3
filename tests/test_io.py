"""fx.io: what is saved comes back to the bit, or the file is refused; and a file is replaced whole or not at all."""

from __future__ import annotations

import dataclasses
import errno
import json
import math
import os
import pickle
import signal
import stat
import struct
import subprocess
import sys
import time
import types
import zipfile
from collections import OrderedDict, defaultdict, namedtuple
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import safetensors
import safetensors.numpy
from hypothesis import given, settings
from hypothesis import strategies as st

import fxgrad as fx
from fxgrad.io import atomic, files, layout, structure
from tests.four_parts import assert_four_parts, raised

ROOT = Path(__file__).resolve().parents[1]
DTYPES = sorted(structure.KEPT_DTYPES, key=str)


class Pair(NamedTuple):
    first: Any
    second: Any


@fx.tree.register_dataclass(meta_fields=["rate", "name"])
@dataclasses.dataclass
class Layer:
    w: Any
    rate: Any
    name: Any
    b: Any = None


class Ring:
    def __init__(self, *items: Any, label: Any = None):
        self.items, self.label = items, label


fx.tree.register_node(Ring, lambda r: (r.items, r.label), lambda label, items: Ring(*items, label=label))


def same(a: Any, b: Any, where: str = "tree") -> None:
    """Equal in types, order of keys, and every bit, those of NaN too."""
    assert type(a) is type(b), (where, type(a), type(b))
    if isinstance(a, (np.ndarray, np.generic)):
        assert a.dtype == b.dtype and a.shape == b.shape, where
        assert a.tobytes() == b.tobytes(), where
    elif isinstance(a, dict):
        assert list(map(repr, a)) == list(map(repr, b)), where
        assert getattr(a, "default_factory", None) is getattr(b, "default_factory", None)
        for (k, x), y in zip(a.items(), b.values(), strict=True):
            same(x, y, f"{where}[{k!r}]")
    elif isinstance(a, (list, tuple)):
        assert len(a) == len(b), where
        for i, (x, y) in enumerate(zip(a, b, strict=True)):
            same(x, y, f"{where}[{i}]")
    elif isinstance(a, (Layer, Ring)):
        same(vars(a), vars(b), where)
    elif isinstance(a, float):
        assert struct.pack("d", a) == struct.pack("d", b), where
    elif isinstance(a, complex):
        same((a.real, a.imag), (b.real, b.imag), where)
    else:
        assert a == b, where


def around(path: Path, tree: Any, **options: Any) -> Any:
    fx.io.save(path, tree)
    return fx.io.load(path, **options)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tree.safetensors"


# ---- what comes back ---------------------------------------------------------------------------------------------------


def some_bits(dtype: np.dtype, shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    """Any bits at all: NaN of every payload, subnormals, infinities."""
    rng = np.random.default_rng(seed)
    n = math.prod(shape)
    if dtype == np.bool_:
        return rng.integers(0, 2, n).astype(bool).reshape(shape)
    return np.frombuffer(rng.bytes(n * dtype.itemsize), dtype, n).reshape(shape).copy()


@pytest.mark.parametrize("mmap", [False, True])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_dtype_and_shape(path: Path, dtype: np.dtype, mmap: bool) -> None:
    base = some_bits(dtype, (4, 6, 2))
    tree = {
        "rank 0": np.array(base[0, 0, 0]), "scalar": base[1, 1, 1], "empty": base[:0], "empty inside": base[:, :0],
        "odd": some_bits(dtype, (7,), 1), "plain": base, "fortran": np.asfortranarray(base), "strided": base[::2, ::-1, 1],
        "broadcast": np.broadcast_to(base[0, 0], (3, 2)), "transposed": base.T,
        "big-endian": base.astype(dtype.newbyteorder(">")),
    }  # fmt: skip
    swapped = tree["big-endian"].astype(dtype.newbyteorder("<"))  # astype may quiet a NaN, so it is asked what it did
    got = around(path, tree, mmap=mmap)
    same({**tree, "big-endian": swapped}, got)
    assert all(x.dtype.isnative for x in got.values())
    assert isinstance(got["scalar"], np.generic) and isinstance(got["rank 0"], np.ndarray)


def test_big_endian_nan_payloads(path: Path) -> None:
    words = np.array([0x7FF0000000000001, 0xFFF8DEADBEEF0001, 0x7FF8000000000000], ">u8")
    assert around(path, words.view(">f8")).view("<u8").tolist() == words.tolist()


def test_python_values(path: Path) -> None:
    signalling = struct.unpack("<d", struct.pack("<Q", 0xFFF0000000000003))[0]
    tree = [
        None, True, False, 0, -1, 2**63 - 1, -(2**63), 2**63, -(2**200), 10**6000, 0.0, -0.0, 1.5, 5e-324, math.inf,
        -math.inf, math.nan, signalling, 1j, complex(-0.0, math.nan), "", "text", 'quote " \\ \n\0', "snow ☃ 𝄞", "\ud800 alone",
        b"",        b"\0\xff", np.dtype(np.float32), np.float16, np.bool_, (), [], {}, ((),), [[]],
    ]  # fmt: skip
    same(tree, around(path, tree))


def test_containers_keep_kind_and_order(path: Path) -> None:
    tree = {
        "z": 1, "a": {3: "int", "3": "text", 3.5: np.ones(1), None: 0, True: 1, (1, ("x", None)): 2, b"k": 3, -0.0: 4},
        "ordered": OrderedDict([("b", np.zeros(2)), ("a", np.ones(2))]),
        "default": defaultdict(list, {"x": [np.arange(3)]}), "no default": defaultdict(None, {"x": 1}),
        "pair": Pair(np.arange(2), Pair(None, (1, 2.0))),
        "layer": Layer(np.eye(2), rate=-0.0, name=("n", 3, None, math.nan)), "ring": Ring(1, np.ones(2), label="r"),
        "": np.arange(1), "a.b": np.arange(2), "__metadata__": np.arange(3), "\ud800": np.arange(4),
    }  # fmt: skip
    same(tree, around(path, tree))
    same(np.arange(3.0), around(path, np.arange(3.0)))
    same(None, around(path, None))
    same({"__metadata__": np.arange(2)}, around(path, {"__metadata__": np.arange(2)}))


def test_names_do_not_collide(path: Path) -> None:
    tree = {"a": {"b": np.zeros(1)}, "a.b": np.ones(2), 0: np.full(3, 2.0), "0": np.full(4, 3.0)}
    same(tree, around(path, tree))
    assert sorted(safetensors.numpy.load_file(path)) == ["0", "0#2", "a.b", "a.b#2"]


def test_shared_arrays_stay_shared(path: Path) -> None:
    w, c = np.arange(1000.0), np.arange(10) * 1j
    tree = {"embed": w, "head": w, "view": w[:], "c": [c, c]}
    got = around(path, tree)
    same(tree, got)
    assert got["embed"] is got["head"] and got["view"] is not got["embed"] and got["c"][0] is got["c"][1]
    assert not np.shares_memory(got["embed"], got["view"])
    assert path.stat().st_size < 2 * w.nbytes + 2000


def test_arrays_made_by_a_node_are_kept_apart(path: Path) -> None:
    """Ids of arrays that live only while the tree is taken apart must not be taken for one another."""

    class Doubled:
        def __init__(self, *items: Any):
            self.items = items

    fx.tree.register_node(Doubled, lambda d: ([2 * x for x in d.items], None), lambda aux, xs: [x / 2 for x in xs])
    items = [np.full(3, float(i)) for i in range(20)]
    same(items, around(path, Doubled(*items)))


OPTIMIZERS = {
    "sgd": fx.optim.sgd(0.1, momentum=0.9, nesterov=True),
    "adam": fx.optim.adam(1e-3),
    "adamw": fx.optim.chain(fx.optim.clip_by_global_norm(1.0), fx.optim.adamw(fx.optim.cosine_decay_schedule(1e-3, 100))),
    "rmsprop": fx.optim.rmsprop(1e-3, centered=True),
    "adagrad": fx.optim.adagrad(1e-3),
    "lion": fx.optim.lion(1e-3),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizer_states_and_keys_go_on_as_if_nothing_had_happened(path: Path, name: str) -> None:
    optimizer = OPTIMIZERS[name]
    params = {"w": np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3), "b": np.zeros(3)}

    def steps(params: Any, state: Any, key: Any, n: int) -> tuple:
        for i in range(n):
            sub = fx.random.fold_in(key, i)
            gradients = fx.tree.map(lambda p, sub=sub: p + fx.random.normal(sub, p.shape, p.dtype), params)
            updates, state = optimizer.update(gradients, state, params)
            params = fx.optim.apply_updates(params, updates)
        return params, state, fx.random.split(key)[0]

    half = steps(params, optimizer.init(params), fx.random.key(3), 2)
    loaded = around(path, half, like=half)
    same(half, loaded)
    same(steps(*half, 2), steps(*loaded, 2))


leaves = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.complex_numbers(), st.text(st.characters(), max_size=5),
    st.binary(max_size=5),
    st.builds(some_bits, st.sampled_from(DTYPES), st.lists(st.integers(0, 3), max_size=3).map(tuple), st.integers(0, 9)),
    st.builds(lambda d: some_bits(d, (1,))[0], st.sampled_from(DTYPES)),
)  # fmt: skip
keys = st.one_of(st.text(max_size=4), st.integers(), st.tuples(st.integers(), st.text(max_size=2)))
trees = st.recursive(
    leaves,
    lambda child: st.one_of(
        st.lists(child, max_size=3),
        st.lists(child, max_size=3).map(tuple),
        st.dictionaries(keys, child, max_size=3),
        st.dictionaries(keys, child, max_size=3).map(OrderedDict),
        st.builds(Pair, child, child),
        st.builds(Layer, child, st.floats(), st.text(max_size=3), child),
        st.builds(lambda xs, label: Ring(*xs, label=label), st.lists(child, max_size=3), st.integers()),
    ),
    max_leaves=12,
)


@given(trees, st.booleans())
@settings(max_examples=120, deadline=None)
def test_any_tree(tmp_path_factory: pytest.TempPathFactory, tree: Any, mmap: bool) -> None:
    path = tmp_path_factory.getbasetemp() / "any.safetensors"
    same(tree, around(path, tree, mmap=mmap))


def test_metadata(path: Path) -> None:
    fx.io.save(path, [1, np.ones(2)], {"format": "np", "note": "snow ☃"})
    assert fx.io.metadata(path) == {"format": "np", "note": "snow ☃"}
    with safetensors.safe_open(path, "np") as f:
        assert f.metadata()["note"] == "snow ☃"


# ---- other programs ----------------------------------------------------------------------------------------------------


def test_our_files_elsewhere(path: Path) -> None:
    torch = pytest.importorskip("torch")
    from safetensors.torch import load_file

    tree = {
        "blocks": [{"w": np.arange(6, dtype=np.float32).reshape(2, 3).T}],
        "h": np.float16(1.5),
        "z": np.array([1 + 2j]),
        "c": np.ones(3, np.complex64),
        "on": np.array([True, False]),
    }
    fx.io.save(path, tree)
    ours, theirs = safetensors.numpy.load_file(path), load_file(path)
    assert sorted(ours) == sorted(theirs) == ["blocks.0.w", "c", "h", "on", "z"]
    for name, array in ours.items():
        assert theirs[name].numpy().tobytes() == array.tobytes(), name
    assert torch.equal(theirs["blocks.0.w"], torch.from_numpy(tree["blocks"][0]["w"].copy()))
    assert ours["z"].tolist() == [[1.0, 2.0]]


def test_their_files_here(path: Path) -> None:
    torch = pytest.importorskip("torch")
    from safetensors.torch import save_file

    net = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.ReLU(), torch.nn.Linear(2, 1))
    save_file(net.state_dict(), path, {"format": "pt"})
    got = fx.io.load(path)
    assert set(got) == {"0.weight", "0.bias", "2.weight", "2.bias"}
    same(net[0].weight.detach().numpy(), got["0.weight"])
    like = {n: {"weight": np.zeros(shape, "f4"), "bias": np.zeros(shape[0], "f4")} for n, shape in ((2, (1, 2)), (0, (2, 3)))}
    placed = fx.io.load(path, like=like)
    assert list(placed) == [2, 0]
    same(net[2].bias.detach().numpy(), placed[2]["bias"])
    assert fx.io.metadata(path) == {"format": "pt"}


def test_dtypes_of_other_programs(path: Path) -> None:
    torch = pytest.importorskip("torch")
    from safetensors.torch import save_file

    save_file({"half": torch.ones(3, dtype=torch.bfloat16)}, path)
    error = raised(lambda: fx.io.load(path), fx.errors.FileFormatError)
    assert_four_parts(error, what=["'BF16'", "'half'"], line="fx.io.load(path)", why="NumPy's dtypes", fix="tensor.float()")


# ---- mapped files ------------------------------------------------------------------------------------------------------


def test_mapped_arrays_are_windows_on_the_file(path: Path) -> None:
    fx.io.save(path, {"w": np.arange(1 << 20, dtype=np.float32), "b": np.arange(3, dtype=np.int8), "none": np.zeros((0, 2))})
    got = fx.io.load(path, mmap=True)
    for a in got.values():
        assert not a.flags.writeable and a.flags.aligned
    assert not got["w"].flags.owndata and str(path) in Path("/proc/self/maps").read_text()
    assert fx.grad(lambda w: fx.numpy.sum(w * w))(got["w"])[3] == 6.0
    assert fx.jit(lambda w: w + 1, donate_argnums=0)(got["w"])[5] == 6.0
    assert got["w"][5] == 5.0  # a window is never given up to a donating call
    with pytest.raises(ValueError, match="read-only"):
        got["w"][0] = 1
    fx.io.save(path, {"w": np.zeros(3)})  # the old file lives on below the windows
    assert got["w"][-1] == (1 << 20) - 1
    del got, a
    assert str(path) not in Path("/proc/self/maps").read_text()


def test_mapping_does_not_read(path: Path) -> None:
    """A process that maps a file of 256 MB and uses one number of it stays small."""
    fx.io.save(path, {"w": np.ones((1 << 25,)), "v": np.arange(4.0)})
    script = (
        "import fxgrad as fx, sys; read = lambda: int(open('/proc/self/statm').read().split()[1]) << 12\n"
        f"start = read(); t = fx.io.load({str(path)!r}, mmap=True); s = t['v'].sum() + t['w'][9]; print(s, read() - start)"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=120, check=True)
    total, grown = done.stdout.split()
    assert float(total) == 7.0 and int(grown) < 32 << 20


def test_loaded_arrays_are_ones_own(path: Path) -> None:
    got = around(path, {"w": np.arange(3.0), "z": np.arange(2) * 1j})
    assert got["w"].flags.owndata and got["w"].flags.writeable and got["z"].flags.writeable


def test_unaligned_arrays_are_copied(path: Path) -> None:
    path.write_bytes(file_of({"a": entry("U8", [1], 0, 1), "b": entry("F64", [2], 1, 17)}, b"\7" + np.arange(2.0).tobytes()))
    for mmap in (False, True):
        got = fx.io.load(path, mmap=mmap)
        assert got["b"].flags.aligned and got["b"].tolist() == [0.0, 1.0] and got["a"].tolist() == [7]


# ---- what cannot be saved ------------------------------------------------------------------------------------------------


class Unknown:
    pass


UNSAVABLE: dict[str, tuple[Any, str]] = {
    "object": ({"a": [Unknown()]}, "test_io.Unknown at ['a'][0]"),
    "function": ((len,), "builtins.builtin_function_or_method at [0]"),
    "object array": (np.array([None]), "an array of object"),
    "text array": ([np.array(["a"])], "an array of <U1"),
    "dates": (np.zeros(1, "M8[s]"), "an array of datetime64[s]"),
    "long double": (np.zeros(1, np.longdouble), "an array of"),
    "record": (np.zeros(1, [("a", "f4")]), "an array of"),
    "masked": (np.ma.masked_array([1.0], [True]), "numpy.ma.MaskedArray"),
    "set": ([{1}], "a builtins.set at [0]"),
    "key": ({Unknown: 1}, "a key of type type"),
    "static": (Layer(1, rate=[1], name=""), "the static field 'rate' of type list"),
    "aux": (Ring(label=frozenset()), "static data of type frozenset"),
    "factory": (defaultdict(lambda: 0), "a default_factory"),
    "text of numpy": ([np.str_("a")], "numpy.str_"),
}


@pytest.mark.parametrize("name", UNSAVABLE)
def test_what_no_file_can_hold(path: Path, name: str) -> None:
    tree, what = UNSAVABLE[name]
    error = raised(lambda: fx.io.save(path, tree), TypeError)
    assert_four_parts(error, what=["cannot save", what], line="fx.io.save(path, tree)", why="Files hold arrays", fix="")
    assert not path.exists() and not list(path.parent.iterdir())


def test_traced_values_are_not_saved(path: Path) -> None:
    def f(x: Any) -> Any:
        fx.io.save(path, {"x": x * 2})
        return x

    error = raised(lambda: fx.grad(f)(1.0), TypeError)
    assert_four_parts(error, what="a traced value at ['x']", line="fx.io.save", why="Files hold", fix="Return the tree")


def test_trees_too_deep(path: Path) -> None:
    deep: Any = []
    for _ in range(structure.MAX_DEPTH - 1):
        deep = {"x": deep}
    same(deep, around(path, deep))
    error = raised(lambda: fx.io.save(path, (deep,)), ValueError)
    assert_four_parts(error, what="deeper than 100", line="fx.io.save", why="recursion", fix="Keep long chains in a list")
    deep = []
    deep.append(deep)
    raised(lambda: fx.io.save(path, deep), ValueError)


def test_arguments_are_checked(path: Path) -> None:
    error = raised(lambda: fx.io.save({"a": 1}, path), TypeError)  # type: ignore[arg-type]
    assert_four_parts(error, what="got dict", line="fx.io.save", why="by name", fix="name first")
    error = raised(lambda: fx.io.save(path, 1, {"a": 2}), TypeError)  # type: ignore[dict-item]
    assert_four_parts(error, what="'a': 2", line="fx.io.save", why="texts", fix="str(x)")
    raised(lambda: fx.io.save(path, 1, {"a": "\ud800"}), TypeError)
    error = raised(lambda: fx.io.save(path, 1, {"fxgrad": "x"}), ValueError)
    assert_four_parts(error, what="'fxgrad'", line="fx.io.save", why="structure", fix="another name")
    error = raised(lambda: fx.io.save(path.parent, 1), ValueError)
    assert_four_parts(error, what="no regular file", line="fx.io.save", why="takes the place", fix="Name a file")


def test_header_too_long(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "MAX_HEADER", 1000)
    error = raised(lambda: fx.io.save(path, ["x" * 1000]), ValueError)
    assert_four_parts(error, what="as JSON", line="fx.io.save", why="at most 1,000 bytes", fix="Stack")
    monkeypatch.setattr(layout, "MAX_CONTAINERS", 50)
    raised(lambda: fx.io.save(path, [[]] * 50), ValueError)


def test_library_missing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fx.io.save(path, [np.ones(2)])
    monkeypatch.setitem(sys.modules, "safetensors", None)
    error = raised(lambda: fx.io.save(path, 1), ImportError)  # type: ignore[arg-type]
    assert_four_parts(error, what="not installed", line="fx.io.save", why="checks", fix="pip install 'fxgrad[io]'")
    same([np.ones(2)], fx.io.load(path))


# ---- files that are no such files ----------------------------------------------------------------------------------------


def entry(dtype: Any, shape: Any, start: Any, end: Any) -> dict:
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}


def file_of(header: Any, data: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def with_tree(tree: Any, header: dict | None = None, data: bytes = b"") -> bytes:
    text = tree if isinstance(tree, str) else json.dumps({"version": 1, "tree": tree})
    return file_of({"__metadata__": {"fxgrad": text}, **(header or {})}, data)


F4 = entry("F32", [2], 0, 8)
ONE = {"w": F4}
FOREIGN: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "ends after 0 bytes"),
    "short": (b"\1\0\0", "ends after 3 bytes"),
    "pickle": (pickle.dumps({"a": np.ones(3)}), "begins like a pickle"),
    "short pickle": (pickle.dumps([1, 2]), "begins like a pickle"),
    "npz": (b"PK\3\4" + b"\x14\0\0\0\x08\0" * 20, "begins like a zip archive"),
    "npy": (b"\x93NUMPY\1\0v\0" + b" " * 100, "begins like a NumPy array"),
    "text": (b"import os\n" * 20, "its header would be"),
    "json": (b'{"a": 1, "b": 2}', "begins like JSON"),
    "zeros": (bytes(100), "is not valid JSON"),
    "length beyond the file": ((1000).to_bytes(8, "little") + b"{}", "only 2 follow"),
    "length of everything": (b"\xff" * 8 + b"{}", "18,446,744,073,709,551,615 bytes"),
    "no utf-8": (file_of(b'{"\xff": 1}'), "is not valid JSON"),
    "no object": (file_of(b"[]"), "no JSON object"),
    "deep": (file_of(b"[" * 200_000 + b"]" * 200_000), "nested too deep"),
    "wide": (file_of(b'{"w":[' + b"[]," * 2_000_000 + b"0]}"), "more than 2,000,000 lists"),
    "digits": (file_of(b'{"w":{"shape":[' + b"9" * 5000 + b"]}}", bytes(8)), "is not valid JSON"),
    "nan": (file_of(b'{"w": NaN}'), "NaN is no number there"),
    "twice": (file_of(json.dumps({"w": F4, "v": F4}).replace("v", "w").encode(), bytes(8)), "the name 'w' stands twice"),
    "metadata": (file_of({"__metadata__": {"a": 1}}), "__metadata__"),
    "metadata list": (file_of({"__metadata__": []}), "__metadata__"),
    "entry": (file_of({"w": 3}), "does not give dtype"),
    "dtype": (file_of({"w": entry("F128", [1], 0, 16)}, bytes(16)), "'F128' is no dtype"),
    "dtype list": (file_of({"w": entry([], [1], 0, 16)}, bytes(16)), "[] is no dtype"),
    "negative": (file_of({"w": entry("F32", [-2], 0, 8)}, bytes(8)), "[-2] is no shape"),
    "float": (file_of({"w": entry("F32", [2.0], 0, 8)}, bytes(8)), "[2.0] is no shape"),
    "bool": (file_of({"w": entry("F32", [True, 2], 0, 8)}, bytes(8)), "is no shape"),
    "huge": (file_of({"w": entry("F32", [1 << 62, 1 << 62], 0, 8)}, bytes(8)), "is no shape"),
    "huge and empty": (file_of({"w": entry("F32", [1 << 62, 0, 1 << 62], 0, 0)}), "is no shape"),
    "many axes": (file_of({"w": entry("F32", [1] * 70, 0, 4)}, bytes(4)), "is no shape"),
    "offsets": (file_of({"w": entry("F32", [2], 8, 0)}, bytes(8)), "are no data_offsets"),
    "offsets negative": (file_of({"w": entry("F32", [2], -8, 0)}, bytes(8)), "are no data_offsets"),
    "size": (file_of({"w": entry("F32", [3], 0, 8)}, bytes(8)), "8 bytes do not make"),
    "out of range": (file_of({"w": entry("F32", [2], 0, 8)}, bytes(4)), "where its header says"),
    "more": (file_of(ONE, bytes(9)), "where its header says"),
    "overlap": (file_of({"w": F4, "v": entry("F32", [2], 4, 12)}, bytes(12)), "overlaps another array"),
    "same place": (file_of({"w": F4, "v": F4}, bytes(8)), "overlaps another array"),
    "gap": (file_of({"w": F4, "v": entry("F32", [1], 12, 16)}, bytes(16)), "leaves 4 bytes before it unused"),
    "bools": (file_of({"w": entry("BOOL", [2], 0, 2)}, b"\1\2"), "are not 0 and 1"),
}  # fmt: skip
PAIR = structure.class_name(Pair)
STRUCTURES: dict[str, tuple[bytes, str]] = {
    "no json": (with_tree("{"), "its structure is not valid JSON"),
    "version": (with_tree('{"version": 2, "tree": null}'), "of version 2"),
    "no version": (with_tree("[]"), "of version None"),
    "bomb": (with_tree("[" * 100_000), "nested too deep"),
    "wide": (file_of(b'{"__metadata__":{"fxgrad":"' + b"\\u005b" * 2_000_001 + b'"}}'), "its structure has more than"),
    "deep": (with_tree('{"version":1,"tree":' + "[" * 150 + "]" * 150 + "}"), "deeper than 100"),
    "no array": (with_tree({"array": "w"}), "has the array 'w', the file has not"),
    "left over": (with_tree([1], ONE, bytes(8)), "no place for 1 arrays"),
    "no scalar": (with_tree({"array": "w", "scalar": True}, ONE, bytes(8)), "as a scalar, and it is float32[2]"),
    "no complex": (with_tree({"array": "w", "dtype": "complex128"}, ONE, bytes(8)), "as complex128, and it is float32[2]"),
    "other words": (with_tree({"array": "w", "load": "os"}, ONE, bytes(8)), "does not know"),
    "other dtype": (with_tree({"array": "w", "dtype": "object"}, ONE, bytes(8)), "does not know"),
    "unknown kind": (with_tree({"call": "os:system"}), "does not know"),
    "number": (with_tree(1.5), "does not know"),
    "float": (with_tree({"float": "one"}), "has a float it writes 'one'"),
    "float nan": (with_tree({"float": "nan 00"}), "has a float"),
    "float huge": (with_tree({"float": "0x1p99999"}), "has a float"),
    "int": (with_tree({"int": 3}), "has a int"),
    "bytes": (with_tree({"bytes": "zz"}), "has a bytes"),
    "complex": (with_tree({"complex": ["0x0p+0"]}), "has a complex"),
    "type": (with_tree({"type": "object_"}), "has a type"),
    "dtype": (with_tree({"dtype": ["f4"]}), "has a dtype"),
    "tuple": (with_tree({"tuple": {"a": 1}}), "where a list should be"),
    "dict": (with_tree({"dict": [[1, 2, 3]]}), "no list of pairs"),
    "dict more": (with_tree({"dict": [], "factory": None}), "where 'dict' should be"),
    "key": (with_tree({"dict": [[[1], 2]]}), "does not know"),
    "key twice": (with_tree({"dict": [["a", 1], ["a", 2]]}), "a key twice"),
    "factory": (with_tree({"defaultdict": [], "factory": "eval"}), "defaultdict of 'eval'"),
    "factory list": (with_tree({"defaultdict": [], "factory": []}), "defaultdict of []"),
    "class": (with_tree({"class": "os:system", "fields": {}, "static": {}}), "knows no class 'os:system'"),
    "class no tuple": (with_tree({"class": "subprocess:Popen", "fields": {"args": "ls"}, "static": {}}), "knows no class"),
    "class no text": (with_tree({"class": 3, "fields": {}, "static": {}}), "name of a class"),
    "node": (with_tree({"node": "builtins:print", "children": [], "static": None}), "knows no class"),
    "node of a tuple": (with_tree({"node": structure.class_name(Layer), "children": [], "static": None}), "agree on the parts"),
    "fields": (with_tree({"class": PAIR, "fields": {"first": 1}, "static": {}}), "second in this program, first in the file"),
    "fields list": (with_tree({"class": PAIR, "fields": [1, 2], "static": {}}), "does not give the fields"),
    "container": (with_tree({"class": "builtins:dict", "fields": {}, "static": {}}), "do not agree"),
}  # fmt: skip


@pytest.mark.parametrize("name", FOREIGN)
def test_foreign_and_damaged_files(path: Path, name: str) -> None:
    data, what = FOREIGN[name]
    path.write_bytes(data)
    for mmap in (False, True):
        error = raised(lambda mmap=mmap: fx.io.load(path, mmap=mmap), fx.errors.FileFormatError)
        assert_four_parts(error, what=[f"cannot load {path}", what], line="fx.io.load", why="", fix="")
    assert isinstance(error, ValueError)


@pytest.mark.parametrize("name", STRUCTURES)
def test_structures_that_make_no_sense(path: Path, name: str) -> None:
    data, what = STRUCTURES[name]
    path.write_bytes(data)
    error = raised(lambda: fx.io.load(path), fx.errors.FileFormatError)
    assert_four_parts(error, what=[f"cannot load {path}", what], line="fx.io.load", why="", fix="")
    assert fx.io.metadata(path) == {}


def test_messages_say_what_to_do(path: Path) -> None:
    path.write_bytes(pickle.dumps([1]))
    error = raised(lambda: fx.io.load(path), fx.errors.FileFormatError)
    assert_four_parts(error, what="a pickle", line="fx.io.load", why="length of its header", fix="runs code when it is read")
    with zipfile.ZipFile(path, "w") as z:
        z.writestr("a", "b" * 1000)
    error = raised(lambda: fx.io.load(path), fx.errors.FileFormatError)
    assert_four_parts(error, what="a zip archive", line="fx.io.load", why="length of its header", fix="np.load")
    path.write_bytes(file_of(ONE, bytes(3)))
    error = raised(lambda: fx.io.load(path), fx.errors.FileFormatError)
    assert_four_parts(error, what="it has", line="fx.io.load", why="length of its header", fix="cut short")


def test_a_missing_file_is_pythons_own_error(path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"tree\.safetensors"):
        fx.io.load(path)


def test_truncated_anywhere(path: Path) -> None:
    fx.io.save(path, {"w": np.arange(5.0), "s": Pair(1, np.int8(2))})
    data = path.read_bytes()
    for n in range(len(data)):
        path.write_bytes(data[:n])
        with pytest.raises(fx.errors.FileFormatError):
            fx.io.load(path)


def test_changed_anywhere(path: Path) -> None:
    """A byte of the header changed: refused, or something that the library can read too; never another kind of error."""
    fx.io.save(path, {"w": np.arange(5.0), "b": np.ones(3, bool), "s": Layer(1.5, rate=2, name=("x",), b=[1j, np.int8(2)])})
    data, rng, loaded = path.read_bytes(), np.random.default_rng(0), 0
    for i in range(1500):
        changed = bytearray(data)
        for _ in range(rng.integers(1, 3)):
            changed[rng.integers(0, len(data) - 50)] = rng.choice([rng.integers(0, 256), *b'0123456789"{}[],:-.eE'])
        path.write_bytes(changed)
        try:
            fx.io.load(path, mmap=i % 2 == 0)
        except fx.errors.FileFormatError:
            continue
        loaded += 1
        with safetensors.safe_open(path, "np") as f:
            assert len(list(f.keys())) == 3
    assert loaded > 50  # a letter of a name or a number was changed


def test_what_we_read_the_library_reads(path: Path) -> None:
    for name, (data, _) in FOREIGN.items():
        if name in ("twice", "bools"):  # the library takes the last of two, and does not look at the bytes
            continue
        path.write_bytes(data)
        with pytest.raises((safetensors.SafetensorError, OSError, ValueError)), safetensors.safe_open(path, "np") as f:
            [f.get_tensor(k) for k in f.keys()]  # noqa: SIM118


# ---- classes -------------------------------------------------------------------------------------------------------------

DEFINITIONS = """
import dataclasses, sys, numpy as np, fxgrad as fx
from typing import NamedTuple
class State(NamedTuple):
    x: object
class Outer:
    class Inner(NamedTuple):
        y: object
@fx.tree.register_dataclass
@dataclasses.dataclass
class Model:
    w: object
    size: int = dataclasses.field(metadata={"static": True})
"""


def test_classes_of_another_process(path: Path, tmp_path: Path) -> None:
    """A file names classes, and loading it imports nothing."""
    (tmp_path / "their_module.py").write_text(DEFINITIONS)
    save = "import their_module as m, sys; m.fx.io.save(sys.argv[1], [m.State(1), m.Outer.Inner(2), m.Model(m.np.ones(2), 3)])"
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(tmp_path)])}
    subprocess.run([sys.executable, "-c", save, str(path)], env=env, timeout=120, check=True)

    error = raised(lambda: fx.io.load(path), fx.errors.FileFormatError)
    assert_four_parts(error, what="'their_module:State'", line="fx.io.load", why="neither imported nor run", fix="plain=True")
    assert "their_module" not in sys.modules
    same([{"x": 1}, {"y": 2}, {"w": np.ones(2), "size": 3}], fx.io.load(path, plain=True))

    script = "import their_module as m, sys; t = m.fx.io.load(sys.argv[1]); print([type(x).__qualname__ for x in t], t[2].size)"
    done = subprocess.run(
        [sys.executable, "-c", script, str(path)], env=env, timeout=120, check=True, capture_output=True, text=True
    )
    assert done.stdout.strip() == "['State', 'Outer.Inner', 'Model'] 3"


def test_classes_of_like(path: Path) -> None:
    """In another script `__main__` is another module: `like` says which class is meant."""
    theirs = types.ModuleType("theirs")
    theirs.__dict__["__name__"] = "theirs"
    exec("from typing import NamedTuple\nclass Pair(NamedTuple):\n    first: object\n    second: object", theirs.__dict__)
    fx.io.save(path, theirs.__dict__["Pair"](1, np.ones(2)))
    text = path.read_bytes().replace(b"theirs:Pair", b"gone00:Pair")
    path.write_bytes(text)
    raised(lambda: fx.io.load(path), fx.errors.FileFormatError)
    same(Pair(1, np.ones(2)), fx.io.load(path, like=Pair(0, np.zeros(2))))


def test_like_is_checked(path: Path) -> None:
    fx.io.save(path, {"w": np.ones((2, 3)), "n": 1})
    error = raised(lambda: fx.io.load(path, like={"w": np.ones((2, 3))}), ValueError)
    assert_four_parts(error, what="only the second has 'n'", line="fx.io.load", why="The first is", fix="Build both")
    error = raised(lambda: fx.io.load(path, like={"w": np.ones((3, 2)), "n": 1}), ValueError)
    assert_four_parts(
        error, what="['w'] is float64[2, 3], not float64[3, 2]", line="fx.io.load", why="dtypes", fix="without like="
    )
    error = raised(lambda: fx.io.load(path, like={"w": np.ones((2, 3)), "n": 1.0}), ValueError)
    assert "['n'] is a Python int, not a Python float" in str(error)
    safetensors.numpy.save_file({"a": np.ones(2), "b.c": np.ones(3)}, path)
    error = raised(lambda: fx.io.load(path, like={"a": np.ones(2), "b": {"d": np.ones(3)}}), fx.TreeMismatchError)
    assert_four_parts(error, what=["it has no 'b.d'", "no place for 'b.c'"], line="fx.io.load", why="dotted", fix="rename")


def test_a_class_that_refuses(path: Path) -> None:
    class Positive:
        def __init__(self, x: Any):
            if x < 0:
                raise RuntimeError("x is negative")
            self.x = x

    fx.tree.register_node(Positive, lambda p: ((p.x,), None), lambda aux, xs: Positive(*xs))
    value = Positive(1)
    value.x = -1
    fx.io.save(path, value)
    error = raised(lambda: fx.io.load(path), fx.errors.FileFormatError)
    assert_four_parts(
        error, what="Positive does not take", line="fx.io.load", why="RuntimeError: x is negative", fix="plain=True"
    )


def test_classes_are_not_reached_through_attributes(path: Path) -> None:
    """A module's __getattr__ could run anything."""
    module = types.ModuleType("lazy_module")
    module.__dict__["__getattr__"] = lambda name: pytest.fail("a file made a module run code")
    sys.modules["lazy_module"] = module
    try:
        path.write_bytes(with_tree({"class": "lazy_module:Thing", "fields": {}, "static": {}}))
        raised(lambda: fx.io.load(path), fx.errors.FileFormatError)
    finally:
        del sys.modules["lazy_module"]
    fake = namedtuple("Thing", "a")  # (its own name is another than the one it is found under)
    module.__dict__["Other"] = fake
    sys.modules["lazy_module"] = module
    try:
        path.write_bytes(with_tree({"class": "lazy_module:Other", "fields": {"a": 1}, "static": {}}))
        raised(lambda: fx.io.load(path), fx.errors.FileFormatError)
    finally:
        del sys.modules["lazy_module"]


# ---- replacing files -----------------------------------------------------------------------------------------------------


def litter(path: Path) -> list[str]:
    return sorted(p.name for p in path.parent.iterdir() if p != path)


def test_permissions_and_links(path: Path, tmp_path: Path) -> None:
    fx.io.save(path, 1)
    mask = os.umask(0)
    os.umask(mask)
    assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~mask
    path.chmod(0o640)
    (tmp_path / "links").mkdir()
    link = tmp_path / "links" / "latest"
    link.symlink_to(path)
    fx.io.save(link, 2)
    assert link.is_symlink() and fx.io.load(path) == 2 and stat.S_IMODE(path.stat().st_mode) == 0o640
    assert os.listdir(tmp_path / "links") == ["latest"] and litter(path) == ["links"]


@pytest.fixture(params=["unnamed", "named", "refused"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """How a new file is written: without a name in its directory, or with one, where the system or the file system wants that."""
    if request.param == "named":
        monkeypatch.delattr(os, "O_TMPFILE")
    if request.param == "refused":
        plain = os.open

        def refusing(path: Any, flags: int, *args: Any) -> int:
            if flags & os.O_TMPFILE == os.O_TMPFILE:
                raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))
            return plain(path, flags, *args)

        monkeypatch.setattr(os, "open", refusing)
    return request.param


def test_both_ways_write_the_same(path: Path, way: str) -> None:
    same([np.arange(5.0), Pair(1, None)], around(path, [np.arange(5.0), Pair(1, None)]))
    assert stat.S_IMODE(path.stat().st_mode) & 0o600 == 0o600 and litter(path) == []


def test_file_systems_that_cannot_sync_a_directory(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = os.fsync

    def sync(handle: int) -> None:
        if stat.S_ISDIR(os.fstat(handle).st_mode):
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        plain(handle)

    monkeypatch.setattr(os, "fsync", sync)
    assert around(path, 7) == 7


def test_a_full_disk_leaves_the_old_file(path: Path, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fx.io.save(path, "old")
    write = atomic.replacing

    def full(*args: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    error = raised(lambda: fx.io.save(path, {"w": np.ones(1000)}), OSError)  # type: ignore[arg-type]
    assert_four_parts(error, what="No space left", line="fx.io.save", why="only when it is complete", fix="has room")
    assert isinstance(error, OSError) and error.errno == errno.ENOSPC and files.replacing is write
    assert fx.io.load(path) == "old" and litter(path) == []


def test_a_file_too_large_leaves_the_old_one(path: Path) -> None:
    """The system's own limit on the size of files, met in the middle of the arrays, both ways of writing."""
    fx.io.save(path, "old")
    script = f"""
import os, resource, sys, numpy as np, fxgrad as fx
if sys.argv[1] == "named": del os.O_TMPFILE
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
try: fx.io.save({str(path)!r}, [np.ones(100_000), np.ones(100_000)])
except OSError as problem: print(problem.errno, type(problem).__name__)
"""
    for way in ("unnamed", "named"):
        done = subprocess.run(
            [sys.executable, "-c", script, way], cwd=ROOT, capture_output=True, text=True, timeout=120, check=True
        )
        assert done.stdout.split() == [str(errno.EFBIG), "FileWriteError"], done.stderr
        assert fx.io.load(path) == "old" and litter(path) == []


def test_no_such_directory(path: Path) -> None:
    error = raised(lambda: fx.io.save(path / "a" / "b", 1), OSError)  # type: ignore[arg-type]
    assert_four_parts(error, what="cannot save", line="fx.io.save", why="beside it", fix="directory that exists")


def test_an_interrupt_leaves_the_old_file(path: Path, way: str) -> None:
    fx.io.save(path, "old")

    def interrupted() -> None:
        with atomic.replacing(str(path)) as (file, _):
            file.write(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert fx.io.load(path) == "old" and litter(path) == []


def test_killed_in_the_middle(path: Path) -> None:
    """A process killed (SIGKILL) while it saves again and again: the file is one of those it wrote, and nothing lies about."""
    fx.io.save(path, {"n": np.zeros(1 << 18)})
    script = f"""
import itertools, os, numpy as np, fxgrad as fx
from fxgrad.io import atomic
os.fsync = lambda handle: None  # the disk's own time: nearly all of it would be spent there
link = os.link
def linked(*args, **options):  # the parent kills while bytes are written, which is nearly always
    print(flush=True)
    return link(*args, **options)
os.link = linked
for i in itertools.count(1): fx.io.save({str(path)!r}, {{"n": np.full(1 << 18, float(i))}})
"""
    for delay in (0.0, 0.004, 0.009):
        child = subprocess.Popen([sys.executable, "-c", script], cwd=ROOT, stdout=subprocess.PIPE)
        assert child.stdout is not None
        child.stdout.readline()
        child.stdout.readline()
        time.sleep(delay)
        child.send_signal(signal.SIGKILL)
        child.wait(60)
        child.stdout.close()
        n = fx.io.load(path)["n"]
        assert n.shape == (1 << 18,) and (n == n[0]).all()
        assert len(litter(path)) <= 1, litter(path)  # one, if it died between the name and the rename
        for name in litter(path):
            fx.io.load(path.parent / name)  # and that is whole
            (path.parent / name).unlink()


def test_two_processes_save_at_once(path: Path) -> None:
    script = f"""
import sys, numpy as np, fxgrad as fx
for i in range(30): fx.io.save({str(path)!r}, {{"n": np.full(5000, float(sys.argv[1]))}})
"""
    children = [subprocess.Popen([sys.executable, "-c", script, str(i)], cwd=ROOT) for i in range(2)]
    assert [child.wait(120) for child in children] == [0, 0]
    n = fx.io.load(path)["n"]
    assert (n == n[0]).all() and n[0] in (0.0, 1.0) and litter(path) == []


# ---- the rest --------------------------------------------------------------------------------------------------------------


def test_import_stays_light() -> None:
    code = "import sys, fxgrad; print([m for m in ('safetensors', 'json', 'tempfile', 'pickle') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120, check=True)
    assert "safetensors" not in done.stdout and "json" not in done.stdout
