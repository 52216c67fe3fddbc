"""The search for the smallest part of a model on which a command fails as on the whole."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

import onnx
import onnx_ir

from eqsat_opt.common.deadline import Deadline, OutOfTime
from eqsat_opt.common.delta_debugging import needed_items
from eqsat_opt.common.files import Scratch
from eqsat_opt.common.text import counted
from eqsat_opt.errors import EqsatError, ModelError, OptionError
from eqsat_opt.ir.graph.plain_names import axis_name
from eqsat_opt.ir.onnx.exporter import model_proto
from eqsat_opt.ir.onnx.files.content import constant_bytes
from eqsat_opt.ir.onnx.files.load import load_model
from eqsat_opt.ir.onnx.files.save import save_model
from eqsat_opt.ir.onnx.fixed_sizes import fixed_model
from eqsat_opt.ir.onnx.importer import import_model
from eqsat_opt.ir.sizes.sizes import size_sets
from eqsat_opt.pipeline.reduction.failure import (
    DEFAULT_COMMAND,
    PLACE,
    Failure,
    command_text,
    failure_of,
)
from eqsat_opt.pipeline.reduction.part import part_of

__all__ = ["Reduction", "reduce_model"]

_MOST_BYTES = 1 << 30
"""Largest constants of a model that is reduced, as each part is written anew."""

_LEAST_S, _FACTOR = 10.0, 5.0
"""Time after which a command hangs: a multiple of its time on the whole model, at least."""


@dataclass(frozen=True)
class Reduction:
    """The result of reducing a model.

    Attributes:
        command: the command that fails, with `{}` for the path of a model.
        failure: how it fails, in words.
        nodes_before, nodes_after: number of nodes.
        trials: how often the command ran.
        is_minimal: whether no single node can be left out; not known if the budget ended.
        seconds: how long it took.
    """

    command: tuple[str, ...]
    failure: str
    nodes_before: int
    nodes_after: int
    trials: int
    is_minimal: bool
    seconds: float

    def to_json(self) -> dict[str, Any]:
        """Return plain values with stable keys."""
        return asdict(self)

    def __str__(self) -> str:
        end = "no node can be left out" if self.is_minimal else "the budget ended: allow more"
        return (
            f"{counted(self.nodes_before, 'node')} → {self.nodes_after} that still "
            f"{'fails' if self.nodes_after == 1 else 'fail'} "
            f"({self.failure}); {end}; {counted(self.trials, 'trial')}, {self.seconds:.0f} s"
        )


def reduce_model(
    source: str | os.PathLike[str] | onnx.ModelProto | onnx_ir.Model,
    command: Sequence[str] = DEFAULT_COMMAND,
    *,
    budget_s: float = 120.0,
    progress: Callable[[str, str], None] = lambda _stage, _detail: None,
) -> tuple[onnx_ir.Model, Reduction]:
    """Return the smallest part found of a model on which a command fails as on the whole.

    Sizes become literals if it fails with them too.

    Args:
        source: a path or a model, which is not changed.
        command: a program and its arguments, in which `{}` is the path of a model; it fails where
            it ends with another code than 0. The default is a strict search of this package.
        budget_s: seconds after which the smallest part so far is returned.
        progress: called with a stage and a detail.

    Raises:
        ModelError: the model cannot be read, or is too large to be written again and again.
        OptionError: the command does not fail on the model, or cannot be run.
    """
    if not any(PLACE in part for part in command):
        raise OptionError(f"the command has no {PLACE}, which is where the model goes")
    start = time.monotonic()
    model = _whole(source)
    with Scratch() as folder:
        trying = _Trying(folder, tuple(command), Deadline.after(budget_s), progress)
        trying.note_whole(model)
        literal = _literal(model)
        with suppress(OutOfTime):
            if literal is not None and trying.fails(literal):
                model = literal
        proto, types = model_proto(model), import_model(model).types
        smallest: list[int] = [*range(len(proto.graph.node))]

        def fails(numbers: Sequence[int]) -> bool:
            nonlocal smallest
            part = part_of(proto, types, numbers)
            is_failing = part is not None and trying.fails_as_proto(part)
            if is_failing and len(numbers) < len(smallest):
                smallest = sorted(numbers)
                progress("reduce", f"{counted(len(smallest), 'node')} left")
            return is_failing

        is_minimal = False
        with suppress(OutOfTime):
            needed_items(smallest, fails)
            is_minimal = _spare(smallest, fails, lambda: smallest)
        part = part_of(proto, types, smallest)
        assert trying.failure is not None
        return (
            model if part is None or len(smallest) == len(proto.graph.node) else load_model(part),
            Reduction(
                command=tuple(command),
                failure=str(trying.failure),
                nodes_before=len(proto.graph.node),
                nodes_after=len(smallest),
                trials=trying.count,
                is_minimal=is_minimal,
                seconds=time.monotonic() - start,
            ),
        )


def _spare(
    numbers: Sequence[int],
    fails: Callable[[Sequence[int]], bool],
    current: Callable[[], Sequence[int]],
) -> bool:
    """Leave out single nodes as long as the rest fails; return that none is left to try."""
    is_more = True
    while is_more:
        is_more = False
        for number in reversed(current()):
            rest = [one for one in current() if one != number]
            is_more |= bool(rest) and fails(rest)
    return True


def _whole(source: str | os.PathLike[str] | onnx.ModelProto | onnx_ir.Model) -> onnx_ir.Model:
    """Load a model with all its data in memory.

    Raises:
        ModelError: it cannot be read, or is too large.
    """
    model = load_model(source)
    if constant_bytes(model) > _MOST_BYTES:
        raise ModelError(
            "the constants of the model exceed 1 GB, which each trial would write again; reduce "
            "it with random weights of fewer channels instead"
        )
    for value in model.graph.initializers.values():
        if isinstance(value.const_value, onnx_ir.ExternalTensor):
            value.const_value = onnx_ir.tensor(value.const_value.numpy(), name=value.name)
    return model


def _literal(model: onnx_ir.Model) -> onnx_ir.Model | None:
    """Return the model with literal sizes; ``None`` if it has them, or cannot have them."""
    sizes = {axis_name(n): s for n, s in size_sets(import_model(model), ())[0].inputs.items()}
    if not sizes:
        return None
    try:
        return fixed_model(model, sizes)
    except EqsatError:
        return None


class _Trying:
    """A command that is tried on models until a deadline."""

    def __init__(
        self,
        folder: str,
        command: tuple[str, ...],
        deadline: Deadline,
        progress: Callable[[str, str], None],
    ) -> None:
        self.failure: Failure | None = None
        self.count = 0
        # Saving a model locks its folder, and the temporary folder itself is locked by its owner.
        self._folder = os.path.join(folder, "parts")
        os.mkdir(self._folder)
        self._command, self._deadline = command, deadline
        self._progress = progress
        self._timeout_s = max(_LEAST_S, deadline.left_s)
        self._known: dict[bytes, bool] = {}

    def note_whole(self, model: onnx_ir.Model) -> None:
        """Note how the command fails on the whole model, and how long it takes.

        Raises:
            OptionError: it does not fail.
        """
        self._progress("reduce", "the whole model")
        start = time.monotonic()
        self.failure = self._run(model)
        if self.failure is None:
            raise OptionError(
                f"nothing fails on this model: {command_text(self._command)} ends with 0; name "
                "what fails with --command"
            )
        self._timeout_s = max(_LEAST_S, _FACTOR * (time.monotonic() - start))

    def fails_as_proto(self, proto: onnx.ModelProto) -> bool:
        """Return whether the command fails on a model as on the whole; it may be malformed.

        Raises:
            OutOfTime: the deadline passed.
        """
        key = proto.graph.SerializeToString(deterministic=True)
        if key not in self._known:
            try:
                model = load_model(proto)
            except ModelError:
                self._known[key] = False
            else:
                self._known[key] = self.fails(model)
        return self._known[key]

    def fails(self, model: onnx_ir.Model) -> bool:
        """Return whether the command fails on a model as on the whole.

        Raises:
            OutOfTime: the deadline passed.
        """
        if self._deadline.expired:
            raise OutOfTime
        return self._run(model) == self.failure

    def _run(self, model: onnx_ir.Model) -> Failure | None:
        self.count += 1
        path = os.path.join(self._folder, f"{self.count}.onnx")
        save_model(model, path)
        found = failure_of(self._command, path, timeout_s=self._timeout_s)
        os.remove(path)
        return found
