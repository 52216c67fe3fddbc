"""Plans as canonical JSON: equal plans give equal bytes, and a file is checked when it is read."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, TypeVar

from eqsat_opt.common.codecs import (
    Document,
    Entry,
    document_text,
    number_from_json,
    number_to_json,
    read_document,
)
from eqsat_opt.common.files import write_whole
from eqsat_opt.common.precision import Precision
from eqsat_opt.errors import PlanError, StageError
from eqsat_opt.ir.graph.kernel import Kernel, Operand, Step
from eqsat_opt.ir.graph.values_json import (
    TYPING_FAILURES,
    operator_from_json,
    operator_to_json,
    type_from_json,
    type_to_json,
)
from eqsat_opt.ir.values.forms import PLAIN, Form
from eqsat_opt.ir.values.types import StaticType, TensorType
from eqsat_opt.runtime.plan.hazards import check_plan
from eqsat_opt.runtime.plan.plan import (
    NO_WORKSPACE,
    Buffer,
    ComputedConstant,
    Launch,
    Literal,
    Plan,
    Port,
    Recipe,
    Stored,
    Workspace,
)

__all__ = ["FORMAT", "plan_from_json", "plan_text", "plan_to_json", "read_plan", "write_plan"]

FORMAT = "eqsat-opt plan 1"

_LARGEST = 1 << 48
"""Limit of all extents, strides, offsets and sizes: more bytes than any memory has."""

_MOST_STREAMS = 1 << 12
"""Limit of the number of streams: the check builds a table of all launches by all streams."""

_T = TypeVar("_T")


def write_plan(path: str | os.PathLike[str], plan: Plan) -> None:
    """Write a plan whole or not at all.

    Raises:
        PlanError: the file cannot be written; nothing is left behind.
    """
    write_whole(path, plan_text(plan), PlanError)


def read_plan(path: str | os.PathLike[str]) -> Plan:
    """Read a plan from a file and check it for hazards.

    Raises:
        PlanError: the file cannot be read or holds no plan, or the plan is not safe to run.
    """
    try:
        document = read_document(path, "a plan")
    except StageError as error:
        raise PlanError(str(error)) from error
    plan = plan_from_json(document)
    check_plan(plan)
    return plan


def plan_text(plan: Plan) -> str:
    """Return the canonical text of a plan."""
    return document_text(plan_to_json(plan))


def plan_to_json(plan: Plan) -> Document:
    """Return the plan as JSON values; optional fields that have their default are left out."""
    return {
        "format": FORMAT,
        "target": plan.target,
        "precision": plan.precision.value,
        "sizes": dict(sorted(plan.sizes.items())),
        "versions": dict(sorted(plan.versions.items())),
        "arena_bytes": plan.arena_bytes,
        "lower_bound_bytes": plan.lower_bound_bytes,
        "inputs": [{"name": port.name, "buffer": port.buffer} for port in plan.inputs],
        "outputs": [{"name": port.name, "buffer": port.buffer} for port in plan.outputs],
        "buffers": [_buffer_to_json(buffer) for buffer in plan.buffers],
        "constants": [
            {"buffer": name, **_recipe_to_json(recipe)} for name, recipe in plan.constants.items()
        ],
        "launches": [_launch_to_json(launch) for launch in plan.launches],
        "joins": list(plan.joins),
    }


def _given(**fields: Any) -> Document:
    """Return the fields that are neither empty, zero nor ``None``."""
    return {name: value for name, value in fields.items() if value not in ([], "", 0, None)}


def _buffer_to_json(buffer: Buffer) -> Document:
    value = {
        "name": buffer.name,
        "type": type_to_json(TensorType(buffer.dtype, buffer.dims)),
        "strides": list(buffer.strides),
        **_given(base=buffer.base, offset=buffer.offset),
    }
    return value if buffer.form == PLAIN else {**value, "form": str(buffer.form)}


def _recipe_to_json(recipe: Recipe) -> Document:
    match recipe:
        case Stored(name, digest):
            return {"stored": name, "digest": digest}
        case Literal(values):
            return {"values": [number_to_json(value) for value in values]}
        case ComputedConstant(body, operands):
            return {"body": body_to_json(body), "operands": list(operands)}


def _launch_to_json(launch: Launch) -> Document:
    space = launch.workspace
    return {
        "name": launch.name,
        "backend": launch.backend,
        "algorithm": launch.algorithm,
        "body": body_to_json(launch.body),
        "reads": list(launch.reads),
        "writes": list(launch.writes),
        **_given(workspace=None if space == NO_WORKSPACE else [space.offset, space.size_bytes]),
        **_given(stream=launch.stream, waits=list(launch.waits), records=list(launch.records)),
        **({} if launch.precision is Precision.STRICT else {"precision": launch.precision.value}),
    }


def body_to_json(body: Kernel) -> Document:
    """Return a kernel, the computation of a launch, as JSON values."""
    return {
        "operands": [
            {
                "type": type_to_json(operand.type),
                **({"const": True} if operand.const else {}),
                **({} if operand.value is None else {"value": number_to_json(operand.value)}),
                **({} if operand.form == PLAIN else {"form": str(operand.form)}),
            }
            for operand in body.operands
        ],
        "steps": [
            {**operator_to_json(step.op, step.attrs), "operands": list(step.operands)}
            for step in body.steps
        ],
        "outputs": list(body.outputs),
        **({} if body.writes == PLAIN else {"writes": str(body.writes)}),
    }


# ** reading **


def plan_from_json(document: Document) -> Plan:
    """Return the plan that `plan_to_json` wrote; it is not checked for hazards.

    Raises:
        PlanError: the document is no plan, or has another format version.
    """
    try:
        return _plan(Entry(document, "the plan"))
    except StageError as error:
        raise PlanError(str(error)) from error


def _plan(entry: Entry) -> Plan:
    entry.require_format(FORMAT)
    entry.require_all(
        "format", "target", "precision", "sizes", "versions", "arena_bytes", "lower_bound_bytes",
        "inputs", "outputs", "buffers", "constants", "launches", "joins",
    )  # fmt: skip
    sizes, versions = entry.mapping("sizes"), entry.mapping("versions")
    constants = {}
    for item in entry.entries("constants", "constant"):
        name = item.text("buffer")
        if name in constants:
            raise StageError(f"{item.where} gives {name!r} a second time")
        constants[name] = _recipe(item)
    return Plan(
        target=entry.text("target"),
        precision=_precision(entry),
        sizes={name: sizes.whole(name, _LARGEST) for name in sizes.value},
        inputs=tuple(map(_port, entry.entries("inputs", "input"))),
        outputs=tuple(map(_port, entry.entries("outputs", "output"))),
        buffers=tuple(map(_buffer, entry.entries("buffers", "buffer"))),
        constants=constants,
        launches=tuple(map(_launch, entry.entries("launches", "launch"))),
        joins=entry.wholes("joins", _LARGEST),
        arena_bytes=entry.whole("arena_bytes", _LARGEST),
        lower_bound_bytes=entry.whole("lower_bound_bytes", _LARGEST),
        versions={name: versions.text(name) for name in versions.value},
    )


def _precision(entry: Entry) -> Precision:
    name = entry.text("precision")
    if name not in [one.value for one in Precision]:
        raise StageError(f"{entry.place('precision')} is {name!r}; it is {', '.join(Precision)}")
    return Precision(name)


def _port(entry: Entry) -> Port:
    entry.require_all("name", "buffer")
    return Port(entry.text("name"), entry.text("buffer"))


def _optional(entry: Entry, name: str, default: _T, read: Callable[[str], _T]) -> _T:
    return read(name) if name in entry.value else default


def _form(entry: Entry, name: str) -> Form:
    text = _optional(entry, name, str(PLAIN), entry.text)
    try:
        return Form.parse(text)
    except ValueError as error:
        raise StageError(f"{entry.place(name)} is {text!r}; a form is SPACE/LAYOUT") from error


def _static_type(entry: Entry) -> StaticType:
    type_ = type_from_json(entry.get("type"), entry.place("type"))
    if not isinstance(type_, StaticType):
        raise StageError(f"{entry.place('type')} is {type_}, which is no tensor of literal extents")
    return type_


def _buffer(entry: Entry) -> Buffer:
    entry.require_fields("name", "type", "strides", "base", "offset", "form")
    type_ = _static_type(entry)
    return Buffer(
        entry.text("name"),
        type_.dtype,
        type_.shape,
        entry.wholes("strides", _LARGEST),
        form=_form(entry, "form"),
        offset=_optional(entry, "offset", 0, lambda name: entry.whole(name, _LARGEST)),
        base=_optional(entry, "base", "", entry.text),
    )


def _recipe(entry: Entry) -> Recipe:
    if "stored" in entry.value:
        entry.require_all("buffer", "stored", "digest")
        return Stored(entry.text("stored"), entry.text("digest"))
    if "values" in entry.value:
        entry.require_all("buffer", "values")
        where = entry.place("values")
        return Literal(
            tuple(
                item if isinstance(item, bool) else number_from_json(item, where)
                for item in entry.items("values")
            )
        )
    entry.require_all("buffer", "body", "operands")
    return ComputedConstant(_body(entry.mapping("body")), entry.texts("operands"))


def _launch(entry: Entry) -> Launch:
    entry.require_fields(
        "name", "backend", "algorithm", "body", "reads", "writes", "workspace", "stream", "waits",
        "records", "precision",
    )  # fmt: skip
    space = entry.wholes("workspace", _LARGEST)
    if len(space) not in (0, 2):
        raise StageError(f"{entry.place('workspace')} is not an offset and a size")
    return Launch(
        entry.text("name"),
        entry.text("backend"),
        _body(entry.mapping("body")),
        entry.text("algorithm"),
        reads=entry.texts("reads"),
        writes=entry.texts("writes"),
        workspace=Workspace(*space) if space else NO_WORKSPACE,
        stream=_optional(entry, "stream", 0, lambda name: entry.whole(name, _MOST_STREAMS)),
        waits=entry.wholes("waits", _LARGEST),
        records=entry.wholes("records", _LARGEST),
        precision=_optional(entry, "precision", Precision.STRICT, lambda _: _precision(entry)),
    )


def body_from_json(document: Document) -> Kernel:
    """Return the kernel that `body_to_json` wrote.

    Raises:
        StageError: the document is no kernel.
    """
    return _body(Entry(document, "the body"))


def _body(entry: Entry) -> Kernel:
    entry.require_fields("operands", "steps", "outputs", "writes")
    operands = []
    for item in entry.entries("operands", "operand"):
        item.require_fields("type", "const", "value", "form")
        const = _optional(item, "const", False, item.flag)
        value = _optional(item, "value", None, item.number)
        operands.append(Operand(_static_type(item), const, value, _form(item, "form")))
    steps: list[Step] = []
    for item in entry.entries("steps", "step"):
        item.require_fields("op", "attrs", "operands")
        read = item.wholes("operands", len(operands) + len(steps))
        op, attrs = operator_from_json(item, len(read), {})
        steps.append(Step(op, attrs, read))
    outputs = entry.wholes("outputs", len(operands) + len(steps))
    body = Kernel(tuple(operands), tuple(steps), outputs, _form(entry, "writes"))
    try:
        static = body.static_types
    except TYPING_FAILURES as error:
        raise StageError(f"{entry.where} is not well typed: {error}") from error
    if static is None:
        raise StageError(f"{entry.where} has extents that are not literal")
    return body
