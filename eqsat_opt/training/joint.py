"""From an inference model and a loss to the graph of one training step."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase

import onnx_ir

from eqsat_opt.common.numerics import Numerics
from eqsat_opt.errors import ModelError, OptionError, or_nearest
from eqsat_opt.ir.graph.graph import Constant, Graph, Node
from eqsat_opt.ir.onnx.exporter import export_model
from eqsat_opt.ir.onnx.files.load import ModelSource, load_model
from eqsat_opt.ir.onnx.fixed_sizes import fixed_model
from eqsat_opt.ir.onnx.importer import identity_node, import_model
from eqsat_opt.ir.passes.simplification.simplify import simplify
from eqsat_opt.ir.values.types import FLOATS, TensorType, ValueType
from eqsat_opt.training.derivatives.table import is_constant
from eqsat_opt.training.losses import named_loss, require_float
from eqsat_opt.training.optimisers import OptimiserSettings, Update, named_optimiser
from eqsat_opt.training.reverse import accumulate
from eqsat_opt.training.tape import Tape, TapeValue
from eqsat_opt.training.training_mode import (
    Mask,
    has_dropout,
    with_batch_statistics,
    with_masks,
    with_plain_normalisations,
)

__all__ = ["NO_OPTIMISER", "UPDATES_KEY", "TrainingGraph", "TrainingOptions", "training_graph"]

NO_OPTIMISER = "none"
"""The name for a graph that returns gradients and updates nothing."""

UPDATES_KEY = "eqsat_opt.updates"
"""Key of the metadata of a training graph: inputs to the outputs that replace them in the next
step, as JSON.
"""

RATE, STEP, LOSS = "learning_rate", "step", "loss"


_MOST_NAMES = 12
"""Most parameters that a message lists."""


def _listed(names: Sequence[str], most: int) -> str:
    return ", ".join(names[:most]) + (", …" if len(names) > most else "")


@dataclass(frozen=True)
class TrainingOptions:
    """Options: the parameters to train, and how.

    Attributes:
        loss: a name of :data:`~eqsat_opt.training.losses.LOSSES`.
        optimiser: a name of :data:`~eqsat_opt.training.optimisers.OPTIMISERS`, or ``none`` for
            gradients.
        settings: the numbers of the optimiser.
        output: the output of the model that the loss reads; ``None`` if it has only one.
        class_axis: the axis of classes of the output, for losses over classes.
        train: patterns of parameters to train; without any, all that a gradient reaches.
        freeze: patterns of parameters that stay constant.
        accumulate: number of micro-batches whose mean gradient is one step.
        fixed: sizes of symbolic dimensions or shapes of inputs that become literal.
    """

    loss: str = "cross_entropy"
    optimiser: str = "adam"
    settings: OptimiserSettings = field(default_factory=OptimiserSettings)
    output: str | None = None
    class_axis: int = 1
    train: Sequence[str] = ()
    freeze: Sequence[str] = ()
    accumulate: int = 1
    fixed: Mapping[str, int | tuple[int, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class TrainingGraph:
    """The graph of one step of training, in plain ONNX operators.

    Attributes:
        model: the graph. Its parameters are inputs with their present values as defaults.
        parameters: names of the inputs that are trained.
        updates: an input to the output that replaces it in the next step: parameters, the state of
            the optimiser, statistics of batch normalisations and accumulated gradients.
        zeros: inputs that are zeros in the first step, with their types.
        masks: the fate of each Dropout.
        nodes: number of nodes.
    """

    model: onnx_ir.Model
    parameters: tuple[str, ...]
    updates: Mapping[str, str]
    zeros: Mapping[str, TensorType]
    masks: tuple[Mask, ...]
    nodes: int

    def __str__(self) -> str:
        data = [v.name or "" for v in self.model.graph.inputs if v.name not in self.updates]
        outputs = [v.name or "" for v in self.model.graph.outputs]
        lines = [
            f"{self.nodes} nodes, {len(self.parameters)} parameters, {len(self.zeros)} inputs that "
            "begin with zeros",
            f"in each step: {_listed(data, 8)}",
            f"outputs: {_listed(outputs, 3)}",
        ]
        lines += [f"mask {one.input}: keeps {1 - one.ratio:g} of {one.node}" for one in self.masks]
        return "\n".join(lines)

    def to_json(self) -> dict[str, object]:
        """Return a document of everything but the graph."""
        return {
            "nodes": self.nodes,
            "parameters": list(self.parameters),
            "updates": dict(self.updates),
            "zeros": {name: str(type_) for name, type_ in self.zeros.items()},
            "masks": {one.input: one.ratio for one in self.masks},
        }


def training_graph(source: ModelSource, options: TrainingOptions | None = None) -> TrainingGraph:
    """Return the graph that computes the loss of a batch, and what follows from its gradients.

    Inputs are those of the model, ``target``, masks of dropouts, ``learning_rate``, ``step``
    (adam), the parameters and the state of the optimiser. Outputs are ``loss`` and, for each
    parameter NAME, ``NAME.next`` and the next state, or without an optimiser ``NAME.gradient``.

    Args:
        source: a model that is not quantised, with parameters as initializers.
        options: the trained parameters, loss and optimiser.

    Raises:
        ModelError: an operator between parameters and the loss has no derivative, or there is no
            parameter.
        OptionError: an option does not fit the model.
    """
    options = options or TrainingOptions()
    if options.accumulate < 1:
        raise OptionError(f"accumulate is {options.accumulate}; choose 1 micro-batch or more")
    loaded = with_plain_normalisations(load_model(source))
    if options.fixed:
        loaded = fixed_model(loaded, options.fixed)
    masks: list[Mask] = []
    if has_dropout(loaded):
        types = import_model(loaded).types
        known = {name: one for name, one in types.items() if isinstance(one, TensorType)}
        loaded, masks = with_masks(loaded, known)
    graph = import_model(loaded)
    stored = frozenset(graph.model.graph.initializers)
    output = _output(graph, options.output)
    require_float(output, graph.types[output], graph.producers.get(output))
    graph, statistics = with_batch_statistics(replace(graph, outputs=(output,)))
    chosen = _parameters(graph, stored, options)
    held = (*chosen, *statistics)
    values = {name: graph.constants[name] for name in held if name in graph.constants}
    graph = simplify(_with_inputs(graph, held), Numerics.REASSOCIATE)
    joint = _Joint(graph, graph.outputs[0], options)
    joint.differentiate(chosen)
    for (name, _), new in zip(statistics.items(), graph.outputs[1:], strict=True):
        joint.updates[name] = (f"{name}.next", joint.tape.value(new))
    return joint.result(values, chosen, tuple(masks))


def _output(graph: Graph, wanted: str | None) -> str:
    if wanted is None and len(graph.outputs) == 1:
        return graph.outputs[0]
    if wanted in graph.outputs:
        return wanted
    names = ", ".join(graph.outputs)
    if wanted is None:
        raise OptionError(f"the model has the outputs {names}; choose one with --of")
    raise OptionError(f"the model has no output {wanted!r}; {or_nearest(wanted, graph.outputs)}")


def _parameters(graph: Graph, stored: frozenset[str], options: TrainingOptions) -> tuple[str, ...]:
    """Return the parameters to train: initializers of floats with axes that the output depends on.

    Raises:
        OptionError: a pattern matches none.
        ModelError: there is none.
    """
    output = graph.outputs[0]
    reached = {output}
    for node in reversed(graph.nodes):
        if not is_constant(node) and not reached.isdisjoint(node.outputs):
            reached.update(name for name in node.reads if _may_be_float(graph.types[name]))
    found = [
        name
        for name in (*graph.constants, *graph.parameters)
        if name in stored and name in reached and _is_parameter(graph.types[name])
    ]
    for pattern in (*options.train, *options.freeze):
        if not any(fnmatchcase(name, pattern) for name in found):
            hint = (
                or_nearest(pattern, found)
                if len(found) <= _MOST_NAMES
                else f"the model has {_listed(found, _MOST_NAMES)} ({len(found)} in all)"
            )
            raise OptionError(f"no parameter matches {pattern!r}; {hint}")
    chosen = tuple(
        name
        for name in found
        if (not options.train or _matches(name, options.train))
        and not _matches(name, options.freeze)
    )
    if not chosen:
        raise ModelError(
            f"there is nothing to train: {output!r} depends on no initializer of floats with an "
            "axis that is not frozen"
        )
    return chosen


def _is_parameter(type_: ValueType) -> bool:
    return isinstance(type_, TensorType) and type_.dtype in FLOATS and type_.rank > 0


def _may_be_float(type_: ValueType) -> bool:
    return not isinstance(type_, TensorType) or type_.dtype in FLOATS


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _with_inputs(graph: Graph, names: Iterable[str]) -> Graph:
    """Return a graph in which constants are inputs, without the model that it was read from."""
    new = tuple(name for name in names if name not in graph.inputs)
    constants = {name: one for name, one in graph.constants.items() if name not in new}
    inputs = (*graph.inputs, *new)
    return replace(graph, inputs=inputs, constants=constants, model=None, parameters=frozenset())


class _Joint:
    """The joint graph in the making.

    Attributes:
        tape: its operators.
        updates: an input to the name and the value that replace it in the next step.
        zeros: inputs that begin with zeros.
    """

    def __init__(self, graph: Graph, output: str, options: TrainingOptions) -> None:
        self.tape = Tape(graph)
        self.updates: dict[str, tuple[str, TapeValue]] = {}
        self.zeros: dict[str, TensorType] = {}
        self._graph = graph
        self._options = options
        value = self.tape.value(output)
        self._loss, target = named_loss(options.loss)(self.tape, value, options.class_axis)
        self._data = [*graph.inputs, target.name]
        self._outputs: dict[str, TapeValue] = {LOSS: self._loss}

    def differentiate(self, parameters: Sequence[str]) -> None:
        """Append the gradients, and the updates that follow from them."""
        tape, count = self.tape, self._options.accumulate
        nodes = tape.part(self._loss, frozenset())
        seed = self._loss.number(1.0 / count)
        found = accumulate(tape, nodes, {self._loss.name: seed}, parameters)
        gradients = {}
        for name in parameters:
            gradient = found.get(name)
            if gradient is None:
                gradient = tape.filled(0.0, tape.type(name))
            if count > 1:
                gradient = self._state(name, "accumulated") + gradient
            gradients[name] = gradient
        if self._options.optimiser == NO_OPTIMISER:
            self._return(gradients)
        else:
            self._update(gradients)

    def _return(self, gradients: Mapping[str, TapeValue]) -> None:
        for name, gradient in gradients.items():
            self._outputs[f"{name}.gradient"] = gradient
            if self._options.accumulate > 1:
                self.updates[f"{name}.accumulated"] = (f"{name}.gradient", gradient)

    def _update(self, gradients: Mapping[str, TapeValue]) -> None:
        optimiser, tape = named_optimiser(self._options.optimiser), self.tape
        number = TensorType(self._loss.dtype, ())
        rate = step = tape.input(RATE, number)
        self._data.append(RATE)
        if optimiser.counts:
            step = tape.input(STEP, number)
            self._data.append(STEP)
        for name, gradient in gradients.items():
            parameter = tape.value(name)
            state = {one: self._state(name, one) for one in optimiser.state}
            update = Update(
                rate.cast(parameter.dtype), step.cast(parameter.dtype), self._options.settings
            )
            new, next_state = optimiser.update(parameter, gradient, state, update)
            self.updates[name] = (f"{name}.next", new)
            for one, value in next_state.items():
                self.updates[f"{name}.{one}"] = (f"{name}.{one}.next", value)

    def _state(self, parameter: str, kind: str) -> TapeValue:
        type_ = self.tape.type(parameter)
        name = f"{parameter}.{kind}"
        self.zeros[name] = type_
        self._data.append(name)
        return self.tape.input(name, type_)

    def result(
        self, values: Mapping[str, Constant], parameters: tuple[str, ...], masks: tuple[Mask, ...]
    ) -> TrainingGraph:
        """Return the training graph."""
        outputs = self._outputs | dict(self.updates.values())
        made = self.tape.graph(self._data, [value.name for value in outputs.values()])
        graph = simplify(_named(made, tuple(outputs)), Numerics.REASSOCIATE)
        # Operators that are written as several ones may share some of these with others.
        plain = import_model(_with_defaults(export_model(graph), values))
        model = export_model(simplify(plain, Numerics.REASSOCIATE))
        updates = {name: new for name, (new, _) in self.updates.items()}
        model.metadata_props[UPDATES_KEY] = json.dumps(updates)
        count = sum(1 for _ in model.graph)
        return TrainingGraph(model, parameters, updates, self.zeros, masks=masks, nodes=count)


def _named(graph: Graph, names: Sequence[str]) -> Graph:
    """Return a graph with other names of its outputs, which no value has."""
    made = graph.producers
    renamed: dict[str, str] = {}
    copies: list[Node] = []
    types = dict(graph.types)
    for old, new in zip(graph.outputs, names, strict=True):
        if new in types:
            raise ModelError(f"the model has a value {new!r} already; rename it")
        types[new] = types[old]
        if old in made and old not in renamed:
            renamed[old] = new
        else:
            copies.append(identity_node(renamed.get(old, old), new))

    def name(one: str) -> str:
        return renamed.get(one, one)

    nodes = [
        replace(
            node,
            inputs=tuple(map(name, node.inputs)),
            outputs=tuple(map(name, node.outputs)),
        )
        for node in graph.nodes
    ]
    return replace(graph, nodes=(*nodes, *copies), outputs=tuple(names), types=types)


def _with_defaults(model: onnx_ir.Model, values: Mapping[str, Constant]) -> onnx_ir.Model:
    """Return a model whose inputs have default values, which are not copied."""
    for value in model.graph.inputs:
        constant = values.get(value.name or "")
        if constant is not None:
            tensor = constant.source
            if not isinstance(tensor, onnx_ir.TensorProtocol):
                tensor = onnx_ir.tensor(constant.load(), name=value.name)
            value.const_value = tensor
            model.graph.register_initializer(value)
    return model
