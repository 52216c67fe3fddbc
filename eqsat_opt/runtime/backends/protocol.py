"""The door of a backend: what it fuses, how it runs a kernel, and how long that takes.

Kernels of all backends stand in one extraction problem: a row for each implementation of each
candidate. What a choice becomes runs in a session of onnxruntime, so an implementation says what
the session is given in place of the kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from eqsat_opt.errors import RuleError
from eqsat_opt.ir.graph.kernel import Kernel, Step
from eqsat_opt.ir.values.forms import Form
from eqsat_opt.ir.values.types import TensorType
from eqsat_opt.rules.patterns import names_in, names_of
from eqsat_opt.rules.term import Apply, Condition, Term
from eqsat_opt.runtime.measure import Measurement

__all__ = [
    "DEFAULT",
    "Backend",
    "CarriedForm",
    "Implementation",
    "KernelPattern",
    "Offer",
    "label",
]


@dataclass(frozen=True)
class KernelPattern:
    """What a backend fuses, in the terms of rules; what commutes is met in either order.

    It is matched on the frozen e-graph, so an operator that only a backend knows is never an
    e-node. What ONNX itself names and no local epilogue reaches (LayerNormalization, Gelu,
    attention from any spelling) is an equation of the rulebook instead.

    Attributes:
        name: of the kernel.
        pattern: what it computes from the variables.
        when: conditions on them.
    """

    name: str
    pattern: Term
    when: tuple[Condition, ...] = ()

    def __post_init__(self) -> None:
        """Refuse what never matches, or always.

        Raises:
            RuleError: the pattern is a bare variable, or does not bind one of a condition.
        """
        if not isinstance(self.pattern, Apply):
            raise RuleError(f"{self.name}: the pattern is a bare variable; give an operator on it")
        unbound = set(names_in(self.when)) - names_of(self.pattern)
        if unbound:
            raise RuleError(f"{self.name}: the pattern does not bind {', '.join(sorted(unbound))}")

    def __str__(self) -> str:
        conditions = f"   when {', '.join(map(str, self.when))}" if self.when else ""
        return f"{self.name}: {self.pattern}{conditions}"


@dataclass(frozen=True)
class CarriedForm:
    """A form of a backend's own that values keep from kernel to kernel.

    Attributes:
        form: the form.
        makers: operators whose results are in it.
        keepers: operators whose results are in it where all their data come in it.
        passers: operators that run amid it though they do not know it, so that conversions are part
            of their price. At all others a chain ends.
        holds: the types that can be in it.
    """

    form: Form
    makers: frozenset[str]
    keepers: frozenset[str]
    passers: frozenset[str]
    holds: Callable[[TensorType], bool]


@dataclass(frozen=True)
class Implementation:
    """One way in which a backend runs a kernel.

    Attributes:
        algorithm: its name, under which measurements are stored.
        steps: what a session is given instead of the kernel's own steps, on the same operands; the
            last of them are the outputs. ``None`` for the kernel's own.
        arithmetic: operations that it does at least, as a share of those of the kernel as it is
            defined. Lower bounds of time rest on it.
        error: how far its results may be from those of the kernel as it is, relative to the maximum
            of each; 0 where it rounds no worse than any order of the same operations.
        reads: the form in which it wants each operand; empty if all as the kernel says.
        writes: the form in which it leaves each output; empty if all as the kernel says.
        workspace_bytes: memory that it needs beside operands and outputs while it runs.
        strided: whether operands and outputs may be views into larger buffers, so that a
            concatenation, a slice or a split beside it moves nothing. Otherwise a plan packs them,
            by copies that it launches and prices.
        precision: in which a library multiplies, as profiles of devices call it: ``fp32``,
            ``tf32``, ``fp16``; empty where the kernel's elements say all.
    """

    algorithm: str
    steps: tuple[Step, ...] | None = None
    arithmetic: float = 1.0
    error: float = 0.0
    reads: tuple[Form, ...] = ()
    writes: tuple[Form, ...] = ()
    workspace_bytes: int = 0
    strided: bool = False
    precision: str = ""

    @property
    def forms(self) -> str:
        """All forms that differ from the kernel's, as text: part of what its time depends on."""
        if not (self.reads or self.writes):
            return ""
        return f"{' '.join(map(str, self.reads))} > {' '.join(map(str, self.writes))}"


DEFAULT = Implementation("default")
"""The kernel as it is; the runtime decides how."""


@dataclass(frozen=True)
class Offer:
    """A kernel that a backend offers to run in one way; this is what has a price.

    Attributes:
        kernel: of literal sizes.
        backend: the name of the backend.
        implementation: how.
    """

    kernel: Kernel
    backend: str
    implementation: Implementation = DEFAULT

    @property
    def body(self) -> Kernel:
        """What a session is given."""
        steps = self.implementation.steps
        if steps is None:
            return self.kernel
        end = len(self.kernel.operands) + len(steps)
        outputs = tuple(range(end - len(self.kernel.outputs), end))
        return replace(self.kernel, steps=steps, outputs=outputs)

    @property
    def by(self) -> str:
        """Who runs it, for people."""
        return label(self.backend, self.implementation)


def label(backend: str, implementation: Implementation) -> str:
    """Backend, algorithm and layout of results, for people: ``ort``, ``analytic:gemm nhwc``."""
    algorithm = implementation.algorithm
    name = backend if algorithm == DEFAULT.algorithm else f"{backend}:{algorithm}"
    return " ".join((name, *dict.fromkeys(form.layout for form in implementation.writes)))


class Backend(Protocol):
    """What runs kernels.

    All methods but `measure` are pure: they need neither a device nor the library behind it.
    """

    @property
    def name(self) -> str:
        """What users call it."""

    def version(self) -> str:
        """Name and version of what runs: measurements of another one do not count."""

    def patterns(self) -> Sequence[KernelPattern]:
        """What it runs as one kernel beyond single operators, concatenations and splits."""

    def carried(self) -> Sequence[CarriedForm]:
        """Forms of its own that values keep between its kernels."""

    def implementations(self, kernel: Kernel) -> Sequence[Implementation]:
        """How it can run a kernel of literal sizes; nothing if it cannot.

        The kernel is a single operator, a concatenation, a split, or was found by a pattern of this
        backend.
        """

    def request(self, offer: Offer) -> bytes:
        """What `measure` needs to know of an offer.

        Raises:
            EqsatError: it cannot be measured; its lower bound stays its price.
        """

    def measure(self, request: bytes, threads: int, budget_s: float) -> Measurement:
        """Measure what `request` made; called in a process that does nothing else.

        Whatever it raises says that this kernel has no price.

        Args:
            request: of an offer.
            threads: threads to use.
            budget_s: time for sampling.

        Returns:
            `time_us` without what a session adds for each of its nodes.
        """
