"""Regions and the library of their kernels: what is found, kept, refused and done without."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import eqsat_opt
from eqsat_opt.common.deadline import Deadline
from eqsat_opt.common.files import write_whole
from eqsat_opt.errors import EqsatError, ModelError, RuntimeFailed
from eqsat_opt.runtime.backends.generated import compiling
from eqsat_opt.runtime.backends.generated.compiling import compiled, compiler_missing
from eqsat_opt.runtime.backends.generated.kernel import FloatKernel
from eqsat_opt.runtime.backends.generated.source import DOMAIN, source
from eqsat_opt.runtime.backends.native import tuning
from eqsat_opt.runtime.backends.native.library import instructions, missing
from eqsat_opt.runtime.backends.native.region_library import region_library, with_regions
from eqsat_opt.runtime.backends.native.regions import region_sites
from eqsat_opt.runtime.backends.native.sites import Site, with_names, with_ways
from eqsat_opt.runtime.backends.native.tuning import NotTuned, tune
from eqsat_opt.runtime.backends.ort.session import OrtOptions, OrtSession, ort_optimized
from eqsat_opt.runtime.backends.tuned_file import Execution, open_as_raced, tuned_model
from tests.oracles.generated import operator_kernel

if why := missing() or compiler_missing():
    pytest.skip(why, allow_module_level=True)

ONE = OrtOptions(threads=1)
AS_IS = OrtOptions(1, "disabled")
FLOAT = TensorProto.FLOAT


def model_of(
    nodes: Sequence[onnx.NodeProto],
    inputs: dict[str, Sequence[int | str]],
    outputs: Sequence[str],
    constants: dict[str, Any] | None = None,
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "model",
        [helper.make_tensor_value_info(name, FLOAT, shape) for name, shape in inputs.items()],
        [helper.make_tensor_value_info(name, FLOAT, None) for name in outputs],
        [numpy_helper.from_array(np.asarray(v), k) for k, v in (constants or {}).items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def gate(batch: int | str = 2) -> onnx.ModelProto:
    """Halves of a product, one the gate of the other; the sum with the input."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["p"]),
        helper.make_node("Split", ["p"], ["a", "b"], axis=1),
        helper.make_node("Sigmoid", ["a"], ["s"]),
        helper.make_node("Mul", ["s", "b"], ["m"]),
        helper.make_node("Add", ["m", "x"], ["y"]),
        helper.make_node("Tanh", ["y"], ["t"]),
    ]
    w = np.random.default_rng(0).standard_normal((48, 96)).astype(np.float32) / 7
    return model_of(nodes, {"x": [batch, 48]}, ["y", "t"], {"w": w})


def feeds(seed: int = 1) -> dict[str, Any]:
    return {"x": np.random.default_rng(seed).standard_normal((2, 48)).astype(np.float32)}


def sites_of(model: onnx.ModelProto) -> tuple[onnx.ModelProto, tuple[Site, ...]]:
    named = with_names(ort_optimized(model, ONE))
    return named, region_sites(named, AS_IS)


def replaced(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model as onnxruntime runs it, every region by its kernel."""
    named, found = sites_of(model)
    return with_ways(named, [(site, site.ways[0]) for site in found])


def run(model: onnx.ModelProto, feeds: dict[str, Any]) -> list[Any]:
    return OrtSession(model, with_regions(AS_IS, model.graph.node)).run(feeds)


def operators(model: onnx.ModelProto) -> list[str]:
    return sorted("region" if n.domain == DOMAIN else n.op_type for n in model.graph.node)


# ** regions **


def test_a_gate_is_one_operator() -> None:
    made = replaced(gate())
    assert operators(made) == ["MatMul", "region"]  # the split is read through
    for found, expected in zip(
        run(made, feeds()), OrtSession(gate(), ONE).run(feeds()), strict=True
    ):
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-7)


def test_symbolic_sizes_have_no_region() -> None:
    assert sites_of(gate("n"))[1] == ()


def test_single_nodes_and_other_types_keep_their_kernels() -> None:
    single = model_of([helper.make_node("Tanh", ["x"], ["y"])], {"x": [4]}, ["y"])
    assert sites_of(single)[1] == ()
    double = gate()
    double.graph.initializer[0].CopyFrom(numpy_helper.from_array(np.ones((48, 96)), "w"))
    double.graph.input[0].type.tensor_type.elem_type = TensorProto.DOUBLE
    for value in double.graph.output:
        value.type.tensor_type.elem_type = TensorProto.DOUBLE
    assert sites_of(double)[1] == ()


def test_what_needs_no_rounding_of_its_own_is_exact() -> None:
    nodes = [
        helper.make_node("Mul", ["x", "x"], ["a"]),
        helper.make_node("Sub", ["a", "c"], ["b"]),
        helper.make_node("Div", ["b", "x"], ["d"]),
        helper.make_node("Relu", ["d"], ["y"]),
    ]
    c = np.linspace(-1, 1, 48, dtype=np.float32)
    model = model_of(nodes, {"x": [2, 48]}, ["y"], {"c": c})
    _, (site,) = sites_of(model)
    assert site.ways[0].roughness == 0
    found, expected = run(replaced(model), feeds()), OrtSession(model, ONE).run(feeds())
    np.testing.assert_array_equal(found, expected)
    assert sites_of(gate())[1][0].ways[0].roughness == 1


def test_formulas_that_onnxruntime_names_are_computed() -> None:
    nodes = [
        helper.make_node("Mul", ["x", "quick"], ["a"]),
        helper.make_node("Sigmoid", ["a"], ["b"]),
        helper.make_node("Mul", ["x", "b"], ["c"]),
        helper.make_node("Add", ["c", "bias"], ["d"]),
        helper.make_node("Div", ["d", "root"], ["e"]),
        helper.make_node("Erf", ["e"], ["f"]),
        helper.make_node("Add", ["f", "one"], ["g"]),
        helper.make_node("Mul", ["d", "g"], ["h"]),
        helper.make_node("Mul", ["h", "half"], ["i"]),
        helper.make_node("Tanh", ["i"], ["y"]),
    ]
    numbers = {"quick": 1.702, "root": 2**0.5, "one": 1, "half": 0.5}
    constants = {name: np.array(value, np.float32) for name, value in numbers.items()}
    constants["bias"] = np.linspace(-3, 3, 48, dtype=np.float32)
    model = model_of(nodes, {"x": [2, 48]}, ["y"], constants)
    assert {"QuickGelu", "BiasGelu"} <= set(operators(ort_optimized(model, ONE)))
    made = replaced(model)
    assert operators(made) == ["region"]
    np.testing.assert_allclose(
        run(made, feeds())[0], OrtSession(model, ONE).run(feeds())[0], rtol=2e-6, atol=1e-6
    )


def test_an_empty_tensor_has_no_region() -> None:
    nodes = [helper.make_node("Exp", ["x"], ["a"]), helper.make_node("Tanh", ["a"], ["y"])]
    assert sites_of(model_of(nodes, {"x": [0, 48]}, ["y"]))[1] == ()
    assert len(sites_of(model_of(nodes, {"x": [1, 1]}, ["y"]))[1]) == 1
    assert len(sites_of(model_of(nodes, {"x": []}, ["y"]))[1]) == 1


def test_a_value_that_many_elements_read_is_computed_once() -> None:
    nodes = [
        helper.make_node("Tanh", ["x"], ["a"]),
        helper.make_node("Exp", ["a"], ["b"]),
        helper.make_node("Mul", ["b", "z"], ["c"]),
        helper.make_node("Add", ["c", "z"], ["y"]),
    ]
    model = model_of(nodes, {"x": [1, 48], "z": [100, 48]}, ["y"])
    _, found = sites_of(model)
    assert sorted(len(site.nodes) for site in found) == [2, 2]


def test_what_moves_data_is_read_through() -> None:
    nodes = [
        helper.make_node("Reshape", ["x", "shape"], ["r"]),
        helper.make_node("Transpose", ["r"], ["t"], perm=[0, 2, 1, 3]),
        helper.make_node("Slice", ["t", "from", "to", "axis"], ["low"]),
        helper.make_node("Slice", ["t", "to", "end", "axis"], ["high"]),
        helper.make_node("Neg", ["high"], ["n"]),
        helper.make_node("Concat", ["n", "low"], ["c"], axis=3),
        helper.make_node("Mul", ["c", "z"], ["m"]),
        helper.make_node("Add", ["m", "t"], ["y"]),
    ]
    sizes = {"shape": [1, 5, 4, 6], "from": [0], "to": [3], "end": [6], "axis": [3]}
    constants = {name: np.array(value, np.int64) for name, value in sizes.items()}
    model = model_of(nodes, {"x": [1, 5, 24], "z": [1, 1, 5, 6]}, ["y"], constants)
    rng = np.random.default_rng(0)
    given = {
        "x": rng.standard_normal((1, 5, 24)).astype(np.float32),
        "z": rng.standard_normal((1, 1, 5, 6)).astype(np.float32),
    }
    made = replaced(model)
    assert operators(made) == ["region"]
    np.testing.assert_array_equal(run(made, given)[0], OrtSession(model, ONE).run(given)[0])


def test_nodes_that_read_one_large_weight_follow_each_other() -> None:
    names = [f"x{i}" for i in range(4)]
    nodes = [helper.make_node("MatMul", [x, w], [f"{x}{w}"]) for x in names for w in ("u", "v")]
    for x in names:
        nodes.append(helper.make_node("Sigmoid", [f"{x}u"], [f"{x}s"]))
        nodes.append(helper.make_node("Mul", [f"{x}s", f"{x}v"], [f"{x}m"]))
    nodes.append(helper.make_node("Sum", [f"{x}m" for x in names], ["y"]))
    weights = {name: np.ones((256, 256), np.float32) for name in ("u", "v")}
    made = replaced(model_of(nodes, {x: [1, 256] for x in names}, ["y"], weights))
    order = [node.input[1] for node in made.graph.node if node.op_type == "MatMul"]
    assert order == ["u"] * 4 + ["v"] * 4


# ** files **


def tuned() -> onnx.ModelProto:
    return tuned_model(replaced(gate()), gate(), Execution("native", 1))


def test_a_tuned_file_with_regions(tmp_path: Path) -> None:
    path = tmp_path / "tuned.onnx"
    path.write_bytes(tuned().SerializeToString())
    expected = OrtSession(gate(), ONE).run(feeds())
    found = eqsat_opt.session(path, threads=1).run(None, feeds())
    np.testing.assert_allclose(found[1], expected[1], rtol=1e-6, atol=1e-7)
    options = onnxruntime.SessionOptions()
    options.register_custom_ops_library(eqsat_opt.native_library())
    options.register_custom_ops_library(eqsat_opt.native_library(path))
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    np.testing.assert_array_equal(session.run(None, feeds())[0], found[0])
    with pytest.raises(RuntimeFailed, match="no generated kernels"):
        eqsat_opt.native_library(gate())


def test_without_a_compiler_the_portable_model_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tuned()
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.warns(RuntimeWarning, match="no C\\+\\+ compiler"):
        session = open_as_raced(model, ONE)
    np.testing.assert_array_equal(session.run(feeds()), OrtSession(gate(), ONE).run(feeds()))
    assert sites_of(gate())[1] == ()
    monkeypatch.setattr(tuning, "products", lambda _: ())
    with pytest.raises(NotTuned, match=r"another way to be computed here .*no C\+\+ compiler"):
        tune(gate(), ONE, [(feeds(), [])], max_error=1e-4, deadline=Deadline.never())


def test_a_compiler_that_fails_is_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad = tmp_path / "c++"
    bad.write_text("#!/bin/sh\necho 'out of\nluck' >&2; exit 1\n")
    bad.chmod(0o755)
    monkeypatch.setenv("CXX", str(bad))
    with pytest.warns(RuntimeWarning, match="refuses the generated kernels: out of luck"):
        open_as_raced(tuned(), ONE)
    trials = [(feeds(), OrtSession(gate(), ONE).run(feeds()))]
    monkeypatch.setattr(tuning, "products", lambda _: ())
    with pytest.raises(NotTuned, match="refuses the generated kernels"):
        tune(gate(), ONE, trials, max_error=1e-4, deadline=Deadline.never())


def foreign(change: Any) -> onnx.ModelProto:
    """A tuned model whose kernel somebody changed, its name with it."""
    model = tuned()
    (node,) = (n for n in model.graph.node if n.domain == DOMAIN)
    (text,) = (a for a in node.attribute if a.name == "kernel")
    content = json.loads(text.s)
    change(content)
    text.s = json.dumps(content, separators=(",", ":")).encode()
    return model


@pytest.mark.parametrize(
    "change",
    [
        lambda c: c[2][0][1][0].__setitem__(0, 'system("reboot")'),
        lambda c: c[2][0][1][0][3].__setitem__(1, 10**6),
        lambda c: c[2][0][1][0][3].__setitem__(1, -1),
        lambda c: c[2][0][1][0][3].__setitem__(0, 9),
        lambda c: c[2][0][1][1].__setitem__(1, [99]),
        lambda c: c[2][0].__setitem__(0, ["4; system()", 2]),
        lambda c: c[2][0][2][0].__setitem__(3, 5000),
        lambda c: c[2][0].__setitem__(0, [1, 1]),
        lambda c: c[0][0].__setitem__(0, 10**12),
        lambda c: c[2].append([[2**30], [], []]),
        lambda c: c.pop(),
        lambda c: c.__setitem__(1, []),
    ],
)
def test_a_foreign_description_is_refused(change: Any) -> None:
    model = foreign(change)
    with pytest.raises(ModelError, match="make the file again with --tuned"):
        region_library(model.graph.node)
    with pytest.warns(RuntimeWarning, match="generated kernel"):
        open_as_raced(model, ONE)


def test_a_description_is_of_its_node() -> None:
    model = foreign(lambda c: None)
    (node,) = (n for n in model.graph.node if n.domain == DOMAIN)
    node.op_type = "Region_0"
    with pytest.raises(ModelError, match="is not the node's"):
        region_library(model.graph.node)


def test_descriptions_keep_what_is_no_number() -> None:
    kernel = operator_kernel("Clip", [(3,)], {"min": float("-inf"), "max": float("inf")})
    again = FloatKernel.from_json(kernel.to_json())
    assert again == kernel
    assert "from_bits(0xff800000u)" in source([again])


# ** the cache **

SMALL = operator_kernel("Add", [(3,), (3,)], {})


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EQSAT_OPT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "kernels"


def never(*_: Any, **__: Any) -> Any:
    raise AssertionError("it was compiled again")


def test_a_library_is_compiled_once(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = compiled([SMALL, SMALL], instructions())
    assert Path(path).parent == cache
    monkeypatch.setattr(compiling, "_made", never)
    assert compiled([SMALL], instructions()) == path


def test_a_damaged_library_is_compiled_again(cache: Path) -> None:
    path = Path(compiled([SMALL], instructions()))
    whole = path.read_bytes()
    for damaged in (b"", whole[:-1], b"?" + whole[1:], whole[: len(whole) // 2]):
        path.write_bytes(damaged)
        assert not compiling.cached_library(path.stem)
    assert compiled([SMALL], instructions()) == str(path)
    assert compiling.cached_library(path.stem) == str(path)


def test_what_was_not_used_for_long_gives_way(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache.mkdir(parents=True)
    for age_s, name in enumerate(("new", "old", "older", "oldest")):
        path = cache / f"{name}.so"
        path.write_bytes(bytes(10))
        os.utime(path, (1e9 - 1e4 * age_s,) * 2)
    os.utime(cache / "new.so")
    monkeypatch.setattr(compiling, "_MOST_BYTES", 25)
    compiling._trim(cache)
    assert sorted(path.name for path in cache.iterdir()) == ["new.so", "old.so"]
    monkeypatch.setattr(compiling, "_MOST_BYTES", 0)
    path = Path(compiled([SMALL], instructions()))
    assert sorted(cache.iterdir()) == sorted([cache / "new.so", path])  # both in use
    os.utime(path, (1e9, 1e9))
    assert compiled([SMALL], instructions()) == str(path)
    assert path.stat().st_mtime > 1e9


def test_without_room_in_the_cache_it_lasts_as_long_as_the_process(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise EqsatError("no space left on device")

    kernel = operator_kernel("Sub", [(3,), (3,)], {})

    def kept_elsewhere(path: Any, *rest: Any, **options: Any) -> None:
        (full if cache in Path(path).parents else write_whole)(path, *rest, **options)

    monkeypatch.setattr(compiling, "write_whole", kept_elsewhere)
    path = compiled([kernel], instructions())
    assert cache not in Path(path).parents
    assert Path(path).is_file()
    monkeypatch.setattr(compiling, "_made", never)
    assert compiled([kernel], instructions()) == path


def test_a_full_disk_is_a_sentence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    if not os.path.exists("/dev/full"):
        pytest.skip("this system has no device that is always full")
    bad = tmp_path / "c++"
    bad.write_text(
        "#!/bin/sh\necho x > /dev/full || { echo 'No space left on device' >&2; exit 1; }\n"
    )
    bad.chmod(0o755)
    monkeypatch.setenv("CXX", str(bad))
    with pytest.raises(RuntimeFailed, match="No space left on device"):
        compiled([operator_kernel("Mul", [(7,), (7,)], {})], instructions())


_COMPILE = """
from tests.oracles.generated import operator_kernel
from eqsat_opt.runtime.backends.generated.compiling import compiled
from eqsat_opt.runtime.backends.native.library import instructions
print(compiled([operator_kernel("Add", [(3,), (3,)], {})], instructions()))
"""


def test_processes_compile_at_once(cache: Path) -> None:
    root = Path(__file__).parents[3]
    command = [sys.executable, "-c", _COMPILE]
    with ThreadPoolExecutor(2) as pool:
        done = list(
            pool.map(
                lambda _: subprocess.run(
                    command, cwd=root, capture_output=True, text=True, check=True
                ),
                range(2),
            )
        )
    assert len({one.stdout for one in done}) == 1
    assert [path.name for path in cache.iterdir()] == [Path(done[0].stdout.strip()).name]


# ** tuning **


def test_regions_stay_only_where_the_whole_model_is_faster(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def times(model: onnx.ModelProto, *_: Any, **__: Any) -> dict[str, float]:
        return {n.name: 10.0 if n.domain == DOMAIN else 100.0 for n in model.graph.node}

    monkeypatch.setattr(tuning, "node_times_us", times)
    trials = [(feeds(), OrtSession(gate(), ONE).run(feeds()))]
    monkeypatch.setattr(tuning, "time_ratio", lambda *_, **__: 0.5)
    found = tune(gate(), ONE, trials, max_error=1e-4, deadline=Deadline.never())
    assert found.algorithms == {"generated": 1}
    assert 0 < found.error < 1e-6
    monkeypatch.setattr(tuning, "time_ratio", lambda *_, **__: 1.1)
    with pytest.raises(NotTuned, match="no faster in the whole model"):
        tune(gate(), ONE, trials, max_error=1e-4, deadline=Deadline.never())


def test_without_error_exact_regions_remain(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = [
        helper.make_node("Mul", ["x", "x"], ["a"]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("MatMul", ["b", "w"], ["c"]),
        helper.make_node("Sigmoid", ["c"], ["d"]),
        helper.make_node("Tanh", ["d"], ["y"]),
    ]
    model = model_of(nodes, {"x": [2, 48]}, ["y"], {"w": np.eye(48, dtype=np.float32)})
    trials = [(feeds(), OrtSession(model, ONE).run(feeds()))]
    monkeypatch.setattr(tuning, "time_ratio", lambda *_, **__: 0.5)
    monkeypatch.setattr(tuning, "products", lambda _: ())
    for max_error, count in ((0.0, 1), (1e-4, 2)):
        found = tune(model, ONE, trials, max_error=max_error, deadline=Deadline.never())
        assert found.algorithms == {"generated": count}
        assert found.error <= max_error


def test_two_models_take_turns() -> None:
    ratio = tuning.time_ratio(gate(), gate(), ONE, feeds(), Deadline.after(0.2))
    assert ratio > 0


def test_equal_regions_on_other_slices_have_one_kernel() -> None:
    rows = [f"x{i}" for i in range(4)]
    nodes, state = [helper.make_node("Split", ["x"], rows, axis=0)], "h"
    for row in rows:
        nodes.append(helper.make_node("MatMul", [state, "w"], [f"{row}p"]))
        nodes.append(helper.make_node("Tanh", [row], [f"{row}s"]))
        state = f"{row}m"
        nodes.append(helper.make_node("Mul", [f"{row}s", f"{row}p"], [state]))
    weights = {"w": np.eye(48, dtype=np.float32), "h": np.ones((1, 48), np.float32)}
    model = model_of(nodes, {"x": [4, 48]}, [state], weights)
    made = replaced(model)
    kernels = [node for node in made.graph.node if node.domain == DOMAIN]
    assert len(kernels) == 4
    assert len({node.op_type for node in kernels}) == 1
    given = {"x": np.random.default_rng(0).standard_normal((4, 48)).astype(np.float32)}
    for found, expected in zip(run(made, given), OrtSession(model, ONE).run(given), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-7)
    for begin in (-1, 145):
        (attribute,) = (a for a in kernels[0].attribute if a.name == "begins")
        attribute.ints[0] = begin
        with pytest.raises(RuntimeFailed, match="read outside an input"):
            run(made, given)
