"""The memory of a plan: its buffers, which of them are views, and their places in the arena."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from eqsat_opt.ir.graph.graph import Graph
from eqsat_opt.ir.values.forms import Form
from eqsat_opt.runtime.backends.launching import Launcher
from eqsat_opt.runtime.plan.memory import LiveValue, arrange
from eqsat_opt.runtime.plan.order import happens_before
from eqsat_opt.runtime.plan.plan import (
    Buffer,
    ComputedConstant,
    Plan,
    Recipe,
    Workspace,
    dense_strides,
)
from eqsat_opt.runtime.planning.layouts import Layout
from eqsat_opt.runtime.planning.tasks import Task
from eqsat_opt.runtime.planning.views import Views

__all__ = ["buffers_of", "used_constants", "with_memory"]


def used_constants(
    graph: Graph, tasks: Sequence[Task], recipes: Mapping[str, Recipe]
) -> dict[str, Recipe]:
    """Return the recipes that a launch, an output or another recipe needs, in the given order."""
    needed = {*graph.outputs, *(name for task in tasks for name in task.reads)}
    for name in reversed(list(recipes)):
        recipe = recipes[name]
        if name in needed and isinstance(recipe, ComputedConstant):
            needed.update(recipe.operands)
    return {name: recipe for name, recipe in recipes.items() if name in needed}


def buffers_of(
    graph: Graph,
    tasks: Sequence[Task],
    views: Views,
    constants: Mapping[str, Recipe],
    form_of: Callable[[str], Form],
) -> tuple[Buffer, ...]:
    """Return the buffers of all values that are read or written, and of the memory they are in.

    The buffers have no offsets in the arena yet.

    Args:
        graph: a graph of literal sizes.
        tasks: the tasks that read and write the buffers.
        views: the layouts of values, and the views among them.
        constants: recipes of the constants that are needed.
        form_of: returns the space and layout of a value; a view has the layout of the value that it
            is a part of.
    """
    dims = {name: graph.static_type(name).shape for name in views.layouts if name in graph.types}
    producer = {node.output: node for node in graph.nodes}
    parts = {name: place for place, name in views.copies.items()}
    inputs = [name for name in graph.inputs if name in dims and name not in constants]
    names = dict.fromkeys(inputs)
    names.update(dict.fromkeys(constants))
    names.update(dict.fromkeys(n for task in tasks for n in (*task.reads, *task.writes)))
    names.update(dict.fromkeys(graph.outputs))
    taken = set(names)
    names.update(dict.fromkeys(views.layouts[n].root for n in taken if n not in parts))
    names.update(dict.fromkeys(views.layouts[value].root for value, _ in parts.values()))
    buffers = []
    for name in names:
        if name in parts:
            value, number = parts[name]
            node, layout = producer[value], views.layouts[value]
            axis = node.attr("axis")
            begin = sum(dims[one][axis] for one in node.inputs[:number])
            layout = Layout(
                layout.root, layout.offset + begin * layout.strides[axis], layout.strides
            )
            extents = dims[node.inputs[number]]
        elif name in views.unions:
            layout, (extents, value) = views.layouts[name], views.unions[name]
        else:
            layout, extents, value = views.layouts[name], dims[name], name
        strides = layout.strides if extents else dense_strides(extents)
        _, owner = views.unions.get(layout.root, ((), layout.root))
        one = Buffer(name, graph.static_type(value).dtype, extents, strides, form=form_of(owner))
        if layout.root != name:
            one = replace(one, base=layout.root, offset=layout.offset * one.itemsize)
        buffers.append(one)
    # An empty view has no elements, so any offset will do; its base may be empty as well.
    return tuple(replace(b, offset=0) if 0 in b.dims else b for b in buffers)


def with_memory(plan: Plan, launchers: Mapping[str, Launcher]) -> Plan:
    """Return the plan with offsets of buffers and workspaces in the arena."""
    order = happens_before(plan)
    uses: dict[str, list[int]] = {
        b.name: [] for b in plan.buffers if not b.base and b.name not in plan.constants
    }
    sizes = [
        max(launchers[one.backend].workspace_bytes(one, plan.buffer_of), one.workspace.size_bytes)
        for one in plan.launches
    ]
    for number, launch in enumerate(plan.launches):
        for name in (*launch.reads, *launch.writes):
            root = plan.root_of(name).name
            if root in uses and (not uses[root] or uses[root][-1] != number):
                uses[root].append(number)
    starts = {port.buffer for port in plan.inputs}
    ends = {plan.root_of(port.buffer).name for port in plan.outputs}
    values = [
        LiveValue(plan.buffer_of[name].span_bytes, tuple(used), name in starts, name in ends)
        for name, used in uses.items()
    ]
    values += [LiveValue(size, (number,)) for number, size in enumerate(sizes) if size]
    arena = arrange(values, order)
    offset_of = dict(zip(uses, arena.offsets, strict=False))
    spaces = iter(arena.offsets[len(uses) :])
    launches = [
        replace(launch, workspace=Workspace(next(spaces), size)) if size else launch
        for launch, size in zip(plan.launches, sizes, strict=True)
    ]
    return replace(
        plan,
        buffers=tuple(
            replace(b, offset=offset_of[b.name]) if b.name in offset_of else b for b in plan.buffers
        ),
        launches=tuple(launches),
        arena_bytes=arena.size_bytes,
        lower_bound_bytes=arena.lower_bound_bytes,
    )
