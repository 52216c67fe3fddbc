"""Counterexamples run in onnxruntime: both sides of a rule as one model with two outputs."""

from __future__ import annotations

from eqsat_opt.errors import EqsatError
from eqsat_opt.ir.graph.graph import Graph, Node, attributes
from eqsat_opt.ir.values.types import FLOATS, TensorType, numpy_dtype
from eqsat_opt.proving.checks.counterexample import Refutation
from eqsat_opt.rules.bindings import Bindings, operator, type_of
from eqsat_opt.rules.rule import Rule
from eqsat_opt.rules.term import Apply, Term, Var

__all__ = ["differs_in_onnxruntime", "sides_as_graph"]

_TOLERANCE = 1e-4


def sides_as_graph(rule: Rule, bindings: Bindings, root: int = 0) -> Graph:
    """Return a graph whose two outputs are both sides of a root at an instance."""
    nodes: list[Node] = []
    types = {name: bindings.types[name] for name in _names(rule, root)}
    inputs = tuple(sorted(types))
    known: dict[object, str] = {}

    def value(term: Term) -> str:
        if isinstance(term, Var):
            return term.name
        assert isinstance(term, Apply)
        operands = tuple(value(one) for one in term.args)
        op, attrs = operator(term, bindings)
        key = op, attributes(**attrs), operands
        if key not in known:
            known[key] = f"t{len(nodes)}_"
            types[known[key]] = type_of(term, bindings)
            nodes.append(Node(op, operands, (known[key],), attributes(**attrs)))
        return known[key]

    outputs = (value(rule.lhs[root]), value(rule.rhs[root]))
    return Graph(inputs=inputs, outputs=outputs, nodes=tuple(nodes), constants={}, types=types)


def _names(rule: Rule, root: int) -> set[str]:
    return rule.lhs[root].variables() | rule.rhs[root].variables()


def differs_in_onnxruntime(rule: Rule, refutation: Refutation) -> bool | None:
    """Return whether onnxruntime computes different values for both sides at a counterexample.

    Returns:
        ``None`` if it cannot run both sides there.
    """
    import numpy as np
    import onnxruntime

    from eqsat_opt.ir.onnx.exporter import export_model, model_proto

    types = {
        name: TensorType("float32", one.shape) if one.dtype in FLOATS else one
        for name, one in refutation.types.items()
    }
    try:
        graph = sides_as_graph(rule, Bindings(types, dict(refutation.attrs)), refutation.root)
        model = model_proto(export_model(graph)).SerializeToString()
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        rng = np.random.default_rng(0)
        feeds = {}
        for name in graph.inputs:
            type_ = graph.static_type(name)
            given = refutation.values.get(name)
            drawn = rng.integers(-2, 3, type_.shape) if given is None else given
            feeds[name] = np.asarray(drawn).astype(numpy_dtype(type_.dtype))
        left, right = session.run(None, feeds)
    except (EqsatError, RuntimeError, ValueError, TypeError, LookupError):
        return None
    except Exception as error:  # onnxruntime's own errors derive from Exception alone
        if type(error).__module__.startswith("onnxruntime"):
            return None
        raise
    if left.shape != right.shape:
        return True
    return not np.allclose(left, right, rtol=_TOLERANCE, atol=_TOLERANCE, equal_nan=True)
