"""Validity of models, judged by whether onnxruntime loads them.

A model that onnxruntime refuses is not valid, unless onnxruntime only lacks something to run it: a
kernel, a library of operators, or an operator set newer than itself. Such a model may be valid and
is kept.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cache

import onnx

from eqsat_opt.common.deadline import Deadline
from eqsat_opt.errors import ModelError, RuntimeFailed
from eqsat_opt.ir.onnx.types import standard_schema
from eqsat_opt.runtime.backends.ort.session import OrtOptions, OrtSession
from eqsat_opt.runtime.source import ModelSource, read_structure

__all__ = ["require_valid"]

_STANDARD = ("", "ai.onnx", "ai.onnx.ml")
# "In Node, ("name", Op, "domain", -1) : ("x": tensor(float),) -> (…) , Error what is wrong"
_IN_NODE = re.compile(r'In Node, \("(.*?)", (.*?), "(.*?)", -?\d+\) : .* , Error ', re.DOTALL)
_NODE = re.compile(r"Node \((.*?)\) Op \((.*?)\) (?:\[\w+\] )?", re.DOTALL)
_PREFIXES = re.compile(
    r"^(?:Load model from .*? failed:|Exception during initialization: |This is an invalid model\. "
    r"|(?:Type )?Error: |[\w.]+\.cc:\d+ \w+ |(?:\[[^]]*\] )?[^:]{1,80}? was false\. )+",
    re.DOTALL,
)
_UNREGISTERED = re.compile(r"No Op registered for (.*) with domain_version of (\d+)", re.DOTALL)
_UNKNOWN = re.compile(r"(?:^|: )([^\s:]*):([^\s:(]*)\(-?\d+\) is not a registered function/op")
# Errors for versions of operators that are newer than its own, and for operators that it expands.
_ATTRIBUTE = re.compile(r"Unrecognized attribute: (\S+) for operator (\S+)")
_TYPED = re.compile(r"(?:Optype|of operator) \((\w+)\)")
_LACKING = re.compile(
    r"not implemented|not supported|registered or supported|unsupported|only supports?\b"
    r"|under development|bad_alloc|failed to allocate|construct locale",
    re.IGNORECASE,
)


def require_valid(model: ModelSource, options: OrtOptions, deadline: Deadline | None = None) -> str:
    """Load a model into the runtime once, without optimising it.

    The runtime inlines all functions, which may call one another any number of times. A model is
    not loaded if inlining would take longer than the time left.

    Returns:
        A sentence that names the thing that the runtime lacks to run the model; empty if it accepts
        the model.

    Raises:
        ModelError: the model is not valid.
        OptionError: a library of operators cannot be loaded.
    """
    written_out = _written_out(read_structure(model))
    if deadline is not None and _writing_out_s(written_out) > deadline.left_s:
        return f"time to load it: its functions stand for {written_out:,} nodes"
    try:
        OrtSession(model, replace(options, threads=1, level="disabled", prepacking=False))
    except RuntimeFailed as error:
        text = _reason(error)
        if not _is_lacking(error, text, model):
            raise ModelError(f"not a valid ONNX model: {_readable(text)}") from error
        _check_nodes(model)  # the runtime stopped before it had seen all of them
        return _readable(text)
    return ""


def _reason(error: RuntimeFailed) -> str:
    text = str(error).partition(": ")[2]
    return _PREFIXES.sub("", text)


def _is_lacking(error: RuntimeFailed, text: str, model: ModelSource) -> bool:
    if type(error.__cause__).__name__ in ("NotImplemented", "MemoryError", "NoSuchFile"):
        return True
    structure = read_structure(model)
    if unknown := _UNKNOWN.search(text):
        # A library that any session of the process loaded makes its domain known to all models.
        imported = {one.domain for one in structure.opset_import}
        return unknown[1] in imported.difference(_STANDARD)
    if unregistered := _UNREGISTERED.search(text):
        node = _IN_NODE.search(text)
        domain = node[3] if node else ""
        if domain not in _STANDARD:
            return True
        schema = standard_schema(unregistered[1], int(unregistered[2]), domain)
        return schema is not None and not schema.deprecated
    if unknown := _ATTRIBUTE.search(text):
        version = {o.domain: o.version for o in structure.opset_import}.get("", 0)
        schema = standard_schema(unknown[2], version)
        return schema is not None and unknown[1] in schema.attributes
    if (typed := _TYPED.search(text)) and typed[1] not in _operators(structure):
        return True  # the runtime expands another operator into this one
    return bool(_LACKING.search(text))


def _writing_out_s(nodes: int) -> float:
    """Estimate the seconds of inlining; measured times grow faster than the number of nodes."""
    return 2.5e-5 * nodes + (nodes / 40_000) ** 2


def _written_out(model: onnx.ModelProto) -> int:
    """Count the nodes of all called functions, once for each call."""
    bodies = {(one.domain, one.name): one.node for one in model.functions}

    @cache
    def of(function: tuple[str, str]) -> int:
        return len(bodies[function]) + calls(bodies[function])

    def calls(nodes: Iterable[onnx.NodeProto]) -> int:
        return sum(of(name) for one in _all_nodes(nodes) if (name := _name(one)) in bodies)

    try:
        return calls(model.graph.node) if bodies else 0
    except RecursionError:  # a function that calls itself is refused elsewhere
        return 0


def _name(node: onnx.NodeProto) -> tuple[str, str]:
    return node.domain, node.op_type


def _operators(model: onnx.ModelProto) -> set[str]:
    """Return the types of all nodes, including those of nested graphs and of functions."""
    every = (*model.graph.node, *(node for one in model.functions for node in one.node))
    return {node.op_type for node in _all_nodes(every)}


def _all_nodes(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    """Yield all nodes, including those of nested graphs."""
    pending = [*nodes]
    while pending:
        node = pending.pop()
        yield node
        for attribute in node.attribute:
            for graph in (attribute.g, *attribute.graphs):
                pending.extend(graph.node)


def _readable(text: str) -> str:
    """Return the runtime's reason, with its node in front and without the runtime's own terms."""
    text = _IN_NODE.sub(lambda m: f"{_label(m[1], m[2])}: ", text)
    text = _NODE.sub(lambda m: f"{_label(m[1], m[2])}: ", text)
    text = _UNREGISTERED.sub(lambda m: f"operator set {m[2]} has no operator '{m[1]}'", text)
    return re.sub(r"\[\w+Error\] | (?:of|in) node \(\)", "", text)


def _label(name: str, op: str) -> str:
    return f"node '{name}' ({op})" if name else f"a node {op}"


def _check_nodes(model: ModelSource) -> None:
    """Check what onnx knows about each node by itself."""
    structure = read_structure(model)
    context = onnx.checker.C.CheckerContext()
    context.ir_version = structure.ir_version
    context.opset_imports = {o.domain: o.version for o in structure.opset_import}
    for node in structure.graph.node:
        if node.domain not in _STANDARD or any(a.HasField("g") for a in node.attribute):
            continue
        try:
            onnx.checker.check_node(node, context)
        except onnx.checker.ValidationError as error:
            reason = str(error).strip().splitlines()[0]
            raise ModelError(
                f"not a valid ONNX model: {_label(node.name, node.op_type)}: {reason}"
            ) from error
