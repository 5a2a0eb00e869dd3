"""Pytrees."""

from __future__ import annotations

import dataclasses
import pickle
import timeit
from collections import OrderedDict, defaultdict, namedtuple
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fxgrad import errors, tree


class Point(NamedTuple):
    x: object
    y: object


class Ring:
    """A registered class that names no children."""

    def __init__(self, *items, label=None):
        self.items, self.label = items, label

    def __eq__(self, other):
        return isinstance(other, Ring) and (self.items, self.label) == (other.items, other.label)

    __hash__ = None


tree.register_node(Ring, lambda r: (r.items, r.label), lambda label, items: Ring(*items, label=label))


@tree.register_dataclass
@dataclasses.dataclass
class Layer:
    w: object
    b: object = None
    size: object = dataclasses.field(default=3, metadata={"static": True})


@dataclasses.dataclass
class Plain:
    w: object


A, B, C = np.zeros(3), np.float32(2), 5.0
CASES = [
    (A, [A], "*"),
    (None, [], "None"),
    ((), [], "()"),
    ([], [], "[]"),
    ({}, [], "{}"),
    ((A,), [A], "(*,)"),
    ((A, B, C), [A, B, C], "(*, *, *)"),
    ([A, [B], None], [A, B], "[*, [*], None]"),
    ({"b": A, "a": B}, [B, A], "{'a': *, 'b': *}"),
    ({"b": (A, None), "a": [B, {}]}, [B, A], "{'a': [*, {}], 'b': (*, None)}"),
    ({2: A, 1: B}, [B, A], "{1: *, 2: *}"),
    (OrderedDict(b=A, a=(B,)), [A, B], "OrderedDict({'b': *, 'a': (*,)})"),
    (defaultdict(list, b=A, a=B), [B, A], "defaultdict(list, {'a': *, 'b': *})"),
    (Point(A, [B]), [A, B], "Point(x=*, y=[*])"),
    (Point(A, B), [A, B], "Point(x=*, y=*)"),
    (Ring(A, (B,), label="n"), [A, B], "Ring['n'](*, (*,))"),
    (Ring(), [], "Ring()"),
    (Layer(A, {"x": B}), [A, B], "Layer(w=*, b={'x': *}, size=3)"),
    (Plain(A), [Plain(A)], "*"),
    (("text", 1, True), ["text", 1, True], "(*, *, *)"),
]


def same(a, b) -> bool:
    """Equal trees with identical leaves."""
    return pickle.dumps(tree.unflatten(tree.structure(a), range(len(tree.leaves(a))))) == pickle.dumps(
        tree.unflatten(tree.structure(b), range(len(tree.leaves(b))))
    ) and all(x is y for x, y in zip(tree.leaves(a), tree.leaves(b), strict=True))


@pytest.mark.parametrize("value, leaves, shown", CASES, ids=[c[2] for c in CASES])
def test_cases(value, leaves, shown):
    found, structure = tree.flatten(value)
    assert type(found) is list and len(found) == len(leaves) and all(a is b or a == b for a, b in zip(found, leaves, strict=True))
    assert str(structure) == shown and repr(structure) == f"Structure({shown})"
    assert structure.num_leaves == len(leaves)
    back = tree.unflatten(structure, found)
    assert type(back) is type(value) and same(back, value)
    again = tree.flatten(value)[1]
    assert again == structure and hash(again) == hash(structure)
    loaded = pickle.loads(pickle.dumps(structure))
    assert loaded == structure and hash(loaded) == hash(structure) and str(loaded) == shown
    paths, other = tree.flatten_with_path(value)
    assert other == structure and [leaf for _, leaf in paths] == found
    assert tree.leaves(value, is_leaf=lambda x: True) == [value] and tree.structure(value, lambda x: False) == structure


def test_all_structures_differ():
    structures = [tree.structure(c[0]) for c in CASES if c[2] not in ("*", "(*, *, *)")]
    assert len(set(structures)) == len(structures)


def test_dicts_keep_their_order_and_match_in_any_order():
    one, other = {"b": 1, "a": {"d": 2, "c": 3}}, {"a": {"c": 3, "d": 2}, "b": 1}
    assert tree.leaves(one) == tree.leaves(other) == [3, 2, 1]
    for value in (one, other, {"x": (one, other)}, {"x": (other, one)}, {"x": (one, one)}):  # caches must not mix them up
        back = tree.unflatten(*reversed(tree.flatten(value)))
        assert repr(back) == repr(value)
    assert tree.structure(one) == tree.structure(other) and hash(tree.structure(one)) == hash(tree.structure(other))
    assert repr(tree.map(lambda a, b: a + b, one, other)) == "{'b': 2, 'a': {'d': 4, 'c': 6}}"
    assert tree.structure(OrderedDict(a=1, b=2)) != tree.structure(OrderedDict(b=2, a=1))


def test_keys_that_cannot_be_sorted():
    with pytest.raises(errors.FxTypeError, match=r"cannot sort the keys of a dict in a tree: 1 \(int\), 'a' \(str\)"):
        tree.flatten([{1: 0, "a": 0}])


def test_static_data_must_be_hashable():
    with pytest.raises(errors.FxTypeError, match=r"the static data of a Ring in a tree is not hashable: \['n'\]"):
        tree.flatten(Ring(1, label=["n"]))


@pytest.mark.parametrize("a, b", [(1, True), (1, 1.0), (0.0, -0.0), ((1,), (True,))])
def test_static_data_is_told_apart_by_type(a, b):
    assert a == b
    assert tree.structure(Ring(1, label=a)) != tree.structure(Ring(1, label=b))
    assert tree.structure(Layer(1, size=a)) != tree.structure(Layer(1, size=b))
    assert tree.structure(Layer(1, size=a)) == tree.structure(Layer(2, size=a))
    nan = float("nan")
    assert tree.structure(Layer(1, size=nan)) == tree.structure(Layer(1, size=-float("nan")))


def test_classes_of_one_name():
    one, other = namedtuple("T", "a"), namedtuple("T", "a")
    assert tree.structure(one(1)) != tree.structure(other(1))
    with pytest.raises(errors.TreeMismatchError, match=r"a T\(a\) of <class '.*test_tree.T'> in the first"):
        tree.check_same(tree.structure(one(1)), tree.structure(other(1)), "both")


def test_late_registration():
    class Late:
        def __init__(self, v):
            self.v = v

    x = Late(1)
    assert tree.leaves((x,)) == [x]
    tree.register_node(Late, lambda t: ([t.v], None), lambda aux, vs: Late(*vs))
    assert tree.leaves((x,)) == [1]
    with pytest.raises(errors.FxValueError, match="Late is a tree node already"):
        tree.register_node(Late, lambda t: ([t.v], None), lambda aux, vs: Late(*vs))


def test_register_dataclass():
    @tree.register_dataclass(data_fields=["w"], meta_fields=["n"])
    @dataclasses.dataclass(frozen=True)
    class P:
        w: object
        n: int
        double: object = dataclasses.field(init=False, default=7)

    assert tree.map(lambda x: x + 1, P(1, 5)) == P(2, 5) and tree.leaves(P(1, 5)) == [1]
    with pytest.raises(errors.FxTypeError, match="not a dataclass"):
        tree.register_dataclass(Ring)
    with pytest.raises(
        errors.FxValueError, match=r"data fields \('w',\) and meta fields \(\) of Two are not its fields \('w', 'v'\)"
    ):
        tree.register_dataclass(dataclasses.make_dataclass("Two", ["w", "v"]), data_fields=["w"])


def test_paths():
    value = {"a": [Layer(1, 2), Point(3, None)], "b": Ring(4)}
    paths, _ = tree.flatten_with_path(value)
    assert [tree.path_string(p) for p, _ in paths] == ["['a'][0].w", "['a'][0].b", "['a'][1].x", "['b'][<child 0>]"]
    assert tree.path_string(tree.flatten_with_path(1)[0][0][0]) == ""
    assert len({p for p, _ in paths}) == 4
    assert [tree.path_string(p) for p, _ in tree.flatten_with_path({"b": 1, "a": 2})[0]] == ["['a']", "['b']"]


def test_map():
    assert tree.map(lambda x: -x, {"a": (1, None), "b": [2]}) == {"a": (-1, None), "b": [-2]}
    assert tree.map(lambda x, y, z: x + y * z, [1, 2], [3, 4], [5, 6]) == [16, 26]
    assert tree.map(lambda g, state: (g, state), {"w": 1}, {"w": {"m": 2, "v": 3}}) == {"w": (1, {"m": 2, "v": 3})}
    assert tree.map(len, {"a": (1, 2)}, is_leaf=lambda x: isinstance(x, tuple)) == {"a": 2}
    assert tree.map(lambda x: None, (1, 2)) == (None, None)


MISMATCHES = [
    ({"a": [Layer(1, 2)]}, {"a": [Layer((1, 1), 2)]}, r"at ['a'][0].w: a leaf in the first, a tuple of 2 in the second"),
    ((1, 2), (1, 2, 3), "at the root: a tuple of 2 in the first, a tuple of 3 in the second"),
    ((1, 2), [1, 2], "at the root: a tuple of 2 in the first, a list of 2 in the second"),
    ({"a": 1, "b": 2}, {"a": 1, "c": 2}, "at the root: only the first has 'b'; only the second has 'c'"),
    ([{"a": 1}], [{"a": 1, "c": 2}], "at [0]: only the second has 'c'"),
    ([None], [1], "at [0]: None in the first, a leaf in the second"),
    ([Ring(1, label=1)], [Ring(1, label=2)], "at [0]: a Ring of 1 with static data 1 in the first, 2 in the second"),
    (OrderedDict(a=1, b=2), OrderedDict(b=1, a=2), "the keys stand in another order"),
    ([()], [{}], "at [0]: an empty tuple in the first, an empty dict in the second"),
    ([Point(1, 2)], [Layer(1, 2)], "at [0]: a Point(x, y) in the first, a Layer(w, b) in the second"),
]


@pytest.mark.parametrize("a, b, message", MISMATCHES, ids=[m[2] for m in MISMATCHES])
def test_mismatch(a, b, message):
    one, other = tree.structure(a), tree.structure(b)
    with pytest.raises(errors.TreeMismatchError) as info:
        tree.check_same(one, other, "the primals and tangents")
    found = str(info.value)
    assert found.startswith("the primals and tangents differ in structure at ") and message in found
    assert str(one) in found and str(other) in found
    if tree.structure(b).num_leaves and not (isinstance(a, dict) and "Layer" in str(one)):
        with pytest.raises(errors.TreeMismatchError, match="the trees given to map differ in structure"):
            tree.map(lambda x, y: x, a, b)
    tree.check_same(one, tree.structure(a), "both")


def test_unflatten_counts():
    structure = tree.structure((1, 2))
    with pytest.raises(errors.TreeMismatchError, match="cannot put 3 leaves into a tree of 2"):
        tree.unflatten(structure, [1, 2, 3])
    with pytest.raises(ValueError, match=r"Its structure is \(\*, \*\)"):
        tree.unflatten(structure, iter([1]))
    given_leaves = [1, 2]
    assert tree.unflatten(tree.structure([0, 0]), given_leaves) is not given_leaves


def test_reduce_all_transpose():
    assert tree.reduce(lambda a, b: a + b, {"a": 1, "b": (2, 3)}) == 6 and tree.reduce(max, (), 0) == 0
    assert tree.all((True, [])) and not tree.all([0, 1]) and tree.all(None)
    outer, inner = tree.structure([0, (0,)]), tree.structure({"p": 0, "q": 0})
    turned = tree.transpose(outer, inner, [{"p": 1, "q": 2}, ({"q": 4, "p": 3},)])
    assert turned == {"p": [1, (3,)], "q": [2, (4,)]}
    assert tree.transpose(outer, None, [{"p": 1, "q": 2}, ({"q": 4, "p": 3},)]) == turned
    assert tree.transpose(tree.structure(()), inner, ()) == {"p": (), "q": ()}
    with pytest.raises(errors.TreeMismatchError):
        tree.transpose(outer, inner, [{"p": 1, "q": 2}, ({"p": 3},)])


def test_trees_that_contain_themselves():
    loop: list = []
    loop.append(loop)
    with pytest.raises(errors.FxValueError, match="contains itself"):
        tree.flatten(loop)
    deep = 1
    for _ in range(400):
        deep = [deep]
    assert tree.leaves(tree.unflatten(tree.structure(deep), [2])) == [2] and tree.structure(deep) == tree.structure(deep)


TREES = st.recursive(
    st.one_of(st.integers(), st.none(), st.just(A)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(st.text(max_size=2), inner, max_size=3),
        st.dictionaries(st.text(max_size=2), inner, max_size=3).map(OrderedDict),
        st.dictionaries(st.integers(), inner, max_size=3).map(lambda d: defaultdict(int, d)),
        st.tuples(inner, inner).map(lambda t: Point(*t)),
        st.tuples(inner, inner).map(lambda t: Layer(*t)),
    ),
    max_leaves=12,
)


@given(TREES, TREES)
@settings(max_examples=120, deadline=None)
def test_laws(a, b):
    leaves, structure = tree.flatten(a)
    back = tree.unflatten(structure, leaves)
    assert same(back, a) and tree.structure(back) == structure
    assert tree.structure(tree.map(lambda x, y: x, a, a)) == structure
    assert tree.structure(a, lambda x: False) == structure
    assert pickle.loads(pickle.dumps(structure)) == structure
    other = tree.structure(b)
    assert (structure == other) == (str(structure) == str(other))
    if structure != other:
        with pytest.raises(errors.TreeMismatchError):
            tree.check_same(structure, other, "both")
    else:
        assert hash(structure) == hash(other)


def test_speed():
    """Flattening is on the path of every call. Bounds are ten times what an idle machine takes."""
    for value, limit in [(A, 1e-6), ((A, A, A), 5e-6), ({f"k{i}": A for i in range(16)}, 15e-6)]:
        assert min(timeit.repeat(lambda value=value: tree.flatten(value), number=500, repeat=7)) / 500 < limit
        assert tree.flatten(value)[1] is tree.flatten(value)[1]
