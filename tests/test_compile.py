"""Compiled programs: the bits of eager evaluation, what fuses, who owns results, the cache on disk."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from fxgrad import errors
from fxgrad.compile import lower
from fxgrad.compile.fuse import partition
from fxgrad.compile.inline import flatten
from fxgrad.compile.lower import compile_program
from fxgrad.ir.program import Eqn, Program
from fxgrad.ir.types import Aval, Lit, Var, aval_of
from fxgrad.primitives import call as C
from fxgrad.primitives import elementwise as E
from fxgrad.primitives import index as I
from fxgrad.primitives import reduce as R
from fxgrad.primitives import shape as S
from fxgrad.primitives import transcendental as T
from fxgrad.runtime.eager import EagerPlan, run_program
from fxgrad.testing.bits import assert_same_bits
from fxgrad.trace.tracing import build
from tests.programs import check_ownership, random_program


def traced(f, *arrays):
    return build([aval_of(x) for x in arrays], f)


def both(f, *arrays):
    """Run eagerly, compiled and without fusion; the results, which agree to the bit, and the executable."""
    program = traced(f, *arrays)
    compiled = compile_program(program)
    results = compiled(*arrays)
    assert_same_bits(run_program(program, arrays), results)
    assert_same_bits(lower._compile(program, False)(*arrays), results)
    return results, compiled


def floats(*shape, dtype="f4", seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


# ---- equality --------------------------------------------------------------------------------------------------------------


def softmax(x):
    shifted = T.exp(E.sub(x, R.spread(R.max_(x, axes=(1,)), x.shape, (1,))))
    return [E.div(shifted, R.spread(R.sum_(shifted, axes=(1,)), x.shape, (1,)))]


def layer_norm(x, g, b):
    n, axis = x.dtype.type(x.shape[1]), (1,)
    centred = E.sub(x, R.spread(E.div(R.sum_(x, axes=axis), n), x.shape, axis))
    variance = E.div(R.sum_(E.mul(centred, centred), axes=axis), n)
    scaled = E.mul(centred, R.spread(T.rsqrt(E.add(variance, x.dtype.type(1e-5))), x.shape, axis))
    return [E.add(E.mul(scaled, S.broadcast(g, shape=x.shape, dims=(1,))), S.broadcast(b, shape=x.shape, dims=(1,)))]


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
def test_softmax_and_layer_norm(dtype):
    x = floats(40, 70, dtype=dtype)
    (y,), _ = both(softmax, x)
    assert np.allclose(y.sum(1, dtype="f8"), 1, atol=2e-2 if dtype == "f2" else 1e-5)
    both(layer_norm, x, x[0].copy(), x[1].copy())


def test_float16_runs_as_library_steps_with_the_same_bits():
    x = floats(33, dtype="f2")
    _, compiled = both(lambda x: [E.mul(T.exp(x), x), E.convert(x, dtype=np.dtype("f4")), R.sum_(x, axes=(0,))], x)
    assert {s.kind for s in compiled.steps} == {"host"}


def test_complex_sums_and_products():
    x = (floats(50) + 1j * floats(50, seed=1)).astype("c8")
    (total, product), _ = both(lambda x: [R.sum_(x, axes=(0,)), E.lin_mul(x, x)], x)
    assert np.isclose(total, x.sum()) and np.allclose(product, x * x)


def test_reduced_axes_that_are_not_one_walk_are_brought_in_order():
    x = floats(4, 5, 60)
    (y,), compiled = both(lambda x: [R.sum_(E.mul(x, x), axes=(0, 2))], x)
    assert np.allclose(y, (x * x).sum((0, 2)), rtol=1e-5)
    assert [s.kind for s in compiled.steps] == ["kernel"]  # a block at a time
    (y,), compiled = both(lambda x: [R.sum_(S.transpose(E.mul(x, x), perm=(2, 1, 0)), axes=(0, 1))], x)
    assert np.allclose(y, (x * x).sum((1, 2)), rtol=1e-5)
    assert "not walked" in compiled.steps[-2].why[0] and compiled.steps[-1].kind == "kernel"


def test_empty_arrays():
    x = np.zeros((0, 3), np.float32)
    (total, columns, y), _ = both(lambda x: [E.add(R.sum_(x, axes=(0, 1)), np.float32(1)), R.sum_(x, axes=(0,)), T.exp(x)], x)
    assert total == 1 and columns.tolist() == [0, 0, 0] and y.shape == (0, 3)


# ---- fusion ----------------------------------------------------------------------------------------------------------------


def kinds(compiled):
    return [(s.kind, s.title) for s in compiled.steps]


def test_a_chain_is_one_kernel():
    a, b, c = floats(10), floats(10, seed=1), floats(10, seed=2)
    _, compiled = both(lambda a, b, c: [E.maximum(E.add(E.mul(a, b), c), np.float32(0))], a, b, c)
    assert compiled.text == (
        "kernel map(a: f32 unit, b: f32 unit, c: f32 unit, s0: f32 literal) -> (f32 unit) {\n"
        "  t0: f32 = mul a b\n  t1: f32 = add t0 c\n"
        "  t2: f32 = maximum t1 s0\n  return t2\n}"
    )
    (step,) = compiled.steps
    assert (step.bytes_read, step.bytes_written, step.flops) == (120, 40, 30)
    assert step.why == ["output of the program"]


def test_producers_and_epilogues_join_reductions():
    x = floats(50, 30)
    _, compiled = both(lambda x: [E.sqrt(E.div(R.sum_(E.mul(x, x), axes=(1,)), np.float32(30)))], x)
    assert kinds(compiled) == [("kernel", "mul sum div sqrt")]
    _, compiled = both(layer_norm, x, x[0].copy(), x[1].copy())
    assert kinds(compiled) == [("kernel", "sum div sub mul sum div add rsqrt sub mul mul add")]


def test_expensive_values_are_stored_and_cheap_ones_computed_again():
    x = floats(50, 30)

    def f(x):
        costly, cheap = T.exp(x), E.abs_(x)
        return [R.sum_(v, axes=(d,)) for v in (costly, cheap) for d in (0, 1)]  # rows and columns: no kernel does both

    _, compiled = both(f, x)
    assert [s.why for s in compiled.steps if "exp" in s.title] == [["2 kernels need it", "the result of a reduction"]]
    assert sum("abs" in s.title for s in compiled.steps) == 2


def test_several_results_of_one_space_come_from_one_kernel():
    x = floats(100)
    _, compiled = both(lambda x: [T.exp(x), E.mul(T.exp(x), x), E.neg(x)], x)
    assert len(compiled.steps) == 1 and compiled.text.count("exp") == 1


def test_views_are_strides():
    x, v = floats(20, 30), floats(20, seed=1)

    def f(x, v):
        turned = S.reverse(S.transpose(x, perm=(1, 0)), axes=(0,))
        return [
            E.add(
                S.slice_(turned, start=(2, 1), stop=(30, 20), step=(3, 2)),
                S.broadcast(S.slice_(v, start=(0,), stop=(10,), step=(1,)), shape=(10, 10), dims=(1,)),
            )
        ]

    (y,), compiled = both(f, x, v)
    assert_same_bits(y, x.T[::-1][2:30:3, 1:20:2] + v[:10])
    assert kinds(compiled) == [("kernel", "add")]


def test_scalars_join_any_kernel():
    x, s = floats(50), np.float32(3)
    _, compiled = both(lambda x, s: [E.mul(x, T.exp(E.neg(s)))], x, s)
    assert len(compiled.steps) == 1


def test_large_programs_are_cut_into_kernels():
    def f(x):
        y = x
        for i in range(300):
            y = E.add(E.mul(y, np.float32(1 + i / 1000)), x)
        return [y]

    program = traced(f, floats(64))
    compiled = compile_program(program)
    assert_same_bits(compiled(floats(64)), run_program(program, [floats(64)]))
    assert 9 <= len(compiled.steps) <= 11
    assert all(len(s.launch.kernel.ops) <= 64 for s in compiled.steps)


def test_partition_is_deterministic_and_never_cyclic():
    for seed in range(100, 160):
        program = random_program(seed)
        first, second = (partition(flatten(program))[1] for _ in range(2))
        assert [[e.prim.name for e in t.all_eqns] for t in first] == [[e.prim.name for e in t.all_eqns] for t in second]


def test_checkpointed_regions_are_not_merged():
    inner = build([Aval((10,), "f4")], lambda t: [T.exp(t)])
    program = build(
        [Aval((10,), "f4")], lambda x: [E.add(*(C.checkpoint(x, program=inner, policy=("nothing",)) for _ in range(2)))]
    )
    plain = build([Aval((10,), "f4")], lambda x: [E.add(T.exp(x), T.exp(x))])
    assert [e.prim.name for e in flatten(plain).eqns] == ["exp", "add"]
    region = build([Aval((10,), "f4")], lambda x: [E.add(T.exp(x), C.checkpoint(x, program=inner, policy=("nothing",)))])
    assert [e.prim.name for e in flatten(region).eqns] == ["exp", "exp", "add"]
    assert_same_bits(run_program(program, [floats(10)]), compile_program(program)(floats(10)))


def test_without_fusion_every_operation_is_a_kernel():
    program = traced(lambda x: [E.add(E.mul(x, x), x)], floats(10))
    assert [s.title for s in lower._compile(program, False).steps] == ["mul", "add"]


# ---- results and arguments -------------------------------------------------------------------------------------------------


def test_results_alias_nothing():
    x = floats(4, 6)
    f = lambda x: [x, x, S.transpose(x, perm=(1, 0)), S.reshape(x, shape=(24,)), E.neg(x), R.sum_(x, axes=(0, 1))]  # noqa: E731
    program = traced(f, x)
    for run in (compile_program(program), lambda a: run_program(program, [a])):
        results = run(x)
        check_ownership(results, [x], program)
        again = run(x)
        assert not any(np.shares_memory(a, b) for a, b in zip(results[:5], again[:5], strict=True))


def test_arguments_in_any_layout():
    x = floats(6, 8)
    program = traced(lambda x: [T.exp(x)], x)
    compiled = compile_program(program)
    (want,) = compiled(x)
    for y in (np.asfortranarray(x), x.astype(">f4"), np.repeat(x, 2, 1)[:, ::2], np.ma.masked_array(x)):
        assert_same_bits(compiled(y)[0], want)
    with pytest.raises(errors.FxTypeError):
        compiled(x.T)
    with pytest.raises(errors.FxTypeError):
        compiled(x.astype("f8"))
    with pytest.raises(TypeError):
        compiled()


def test_errors_of_library_calls_reach_the_caller():
    x, i = floats(5), np.array([1, 7])
    program = traced(lambda x, i: [T.exp(I.gather(x, i, axes=(0,)))], x, i)
    for run in (compile_program(program), lambda *a: run_program(program, a)):
        with pytest.raises(IndexError):
            run(x, i)
        assert run(x, i % 5)[0].shape == (2,)


def test_literal_and_repeated_outputs():
    x = Var(Aval((3,), "f4"))
    program = Program([x], [], [Lit(np.float32(2)), x, Lit(np.float32(2))])
    for results in (compile_program(program)(floats(3)), run_program(program, [floats(3)])):
        assert results[0] == 2 and results[1].shape == (3,)


def test_eager_plan_of_a_hundred_thousand_equations():
    aval = Aval((4,), "f4")
    v = first = Var(aval)
    eqns = []
    for _ in range(100_000):
        out = Var(aval)
        eqns.append(Eqn(E.neg, [v], {}, [out]))
        v = out
    plan = EagerPlan(Program([first], eqns, [v]))
    x = floats(4)
    assert_same_bits(plan.run([x])[0], x)


def test_threads_may_compile_and_run_at_once():
    x = floats(1000)
    results: list = []

    def work(n):
        program = traced(lambda x: [E.mul(T.exp(x), np.float32(n)), R.sum_(E.mul(x, np.float32(n)), axes=(0,))], x)
        results.extend((n, compile_program(program)(x)) for _ in range(20))

    threads = [threading.Thread(target=work, args=(i % 3,)) for i in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(results) == 120
    for n, (y, s) in results:
        first = next(r for m, r in results if m == n)
        assert_same_bits([y, s], first)
