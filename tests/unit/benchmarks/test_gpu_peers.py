"""Graphs of ours in other frameworks, against the interpreter, on a processor."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

import numpy as np
import pytest

from benchmarks.gpu.peers import compared as peers
from benchmarks.gpu.peers.graphs import peer_graph, walk
from benchmarks.gpu.reference import ReferenceSession
from eqsat_opt.errors import RuntimeFailed
from eqsat_opt.ir.ops import OPS, get_op
from eqsat_opt.ir.ops.domains import FLOAT
from eqsat_opt.lab import zoo
from eqsat_opt.runtime.inputs import random_inputs
from tests.cuda_host.cases import cases, operands_of

FRAMEWORKS = ("torch", "jax")
LACKING: dict[str, set[tuple[str, str]]] = {
    "torch": {("AveragePool", "dilations"), ("LRN", "otherwise")},
    "jax": set(),
}
QUICK = ("squeezenet", "resnet50_bn", "nasnet_cell", "bert", "sru", "alexnet", "dcgan", "lora",
         "cnn_training", "rnntc")  # fmt: skip
"""All operators of the zoo, in the models that are evaluated fastest."""


def table_of(framework: str) -> dict[str, Any]:
    pytest.importorskip(framework, reason=f"{framework} is not installed")
    return dict(import_module(f"benchmarks.gpu.peers.{framework}_operators").OPERATORS)


def given(framework: str, value: Any) -> Any:
    if framework == "torch":
        return import_module("torch").from_numpy(np.array(value))
    return import_module("jax.numpy").asarray(value)


def close(found: Any, wanted: Any) -> None:
    found = np.asarray(found)
    assert found.shape == wanted.shape
    largest = np.abs(wanted).max(initial=0)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=2e-5 * (largest or 1))


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_operators_compute_what_ours_do(framework: str) -> None:
    table = table_of(framework)
    assert len(table) <= 45
    lacking = set[tuple[str, str]]()
    for name in sorted(table.keys() & OPS.keys()):
        for case in cases(name):
            if framework == "jax" and case.attrs.get("to") == "float64":
                continue  # JAX has none unless told so
            operands = operands_of(case)
            try:
                found = table[name](case.attrs, *(given(framework, x) for x in operands))
            except RuntimeFailed as error:
                lacking.add((name, str(error).split()[-1]))
                continue
            with np.errstate(all="ignore"):
                close(found, get_op(name).eval_fn(FLOAT, operands, case.attrs))
    assert lacking == LACKING[framework]


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize(
    "name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in zoo.names()]
)
def test_models_compute_what_the_interpreter_does(framework: str, name: str) -> None:
    table, model = table_of(framework), zoo.build(name, scale="tiny")
    graph, feeds = peer_graph(model), random_inputs(model, 0)
    values = {k: given(framework, v) for k, v in {**graph.constants, **feeds}.items()}
    found = walk(graph.steps, table, values)
    for output, wanted in zip(graph.outputs, ReferenceSession(model).run(feeds), strict=True):
        close(found[output], wanted)


def test_tables_have_the_same_operators() -> None:
    assert table_of("torch").keys() == table_of("jax").keys()


def test_every_operator_of_the_zoo_is_known() -> None:
    """In the frameworks that are here, or none."""
    names = {step.op for n in QUICK for step in peer_graph(zoo.build(n, scale="tiny")).steps}
    here = [one for one in FRAMEWORKS if sys.modules.get(one) or _is_installed(one)]
    for framework in here:
        assert names <= table_of(framework).keys()
    assert len(names) >= 20


def _is_installed(framework: str) -> bool:
    try:
        import_module(framework)
    except ImportError:
        return False
    return True


def test_an_operator_that_a_peer_lacks() -> None:
    graph = peer_graph(zoo.build("sru_step", scale="tiny"))
    with pytest.raises(RuntimeFailed, match="the peer has no operator"):
        walk(graph.steps, {}, dict.fromkeys((*graph.inputs, *graph.constants)))


# ** peers **


@pytest.mark.parametrize("peer", ["torch eager", "torch in a CUDA graph", "jax.jit"])
def test_a_peer_in_a_rehearsal(peer: str) -> None:
    table_of("jax" if peer.startswith("jax") else "torch")
    found = peers.compared("sru_step", "tiny", peer, is_on_gpu=False)
    assert found["error"] <= 1e-5
    assert (found["peer"], found["precision"]) == (peer, "strict-fp32")
    assert found["measurement"]["time_us"] > 0


def test_onnxruntime_in_a_rehearsal() -> None:
    found = peers.compared("sru_step", "tiny", "onnxruntime CUDA", is_on_gpu=False)
    assert found["error"] <= 1e-5
    with pytest.raises(RuntimeFailed, match=r"^absent: this onnxruntime has no TensorrtExec"):
        peers.compared("sru_step", "tiny", "onnxruntime TensorRT", is_on_gpu=True)


def test_a_peer_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        "torch",
        "benchmarks.gpu.peers.torch_peers",
        "benchmarks.gpu.peers.torch_operators",
    ):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(RuntimeFailed, match=r"^absent: .*torch"):
        peers.compared("sru_step", "tiny", "torch eager", is_on_gpu=False)


@pytest.mark.parametrize(
    ("limit_s", "close_to", "message"),
    [(0.0, 1e-4, "^does not compile in 0 s"), (90.0, -1.0, "^computes something else")],
)
def test_a_peer_that_does_not_count(
    monkeypatch: pytest.MonkeyPatch, limit_s: float, close_to: float, message: str
) -> None:
    monkeypatch.setattr(peers, "COMPILED_S", limit_s)
    monkeypatch.setattr(peers, "_CLOSE", close_to)
    with pytest.raises(RuntimeFailed, match=message):
        peers.compared("sru_step", "tiny", "onnxruntime CUDA", is_on_gpu=False)


def test_torch_compiles_a_model_as_one_graph() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    from benchmarks.gpu.peers.torch_peers import Model

    model = zoo.build("resnet50_bn", scale="tiny")
    graph, feeds = peer_graph(model), random_inputs(model, 0)
    module = Model(graph).eval()
    inputs = [torch.from_numpy(feeds[name]) for name in graph.inputs]
    with torch.no_grad():
        compiled = torch.compile(module, backend="eager", fullgraph=True)(*inputs)
        plain = module(*inputs)
    for a, b in zip(compiled, plain, strict=True):
        close(a.numpy(), b.numpy())
