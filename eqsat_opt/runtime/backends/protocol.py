"""The interface of a backend: what it fuses, how it runs a kernel, and how long that takes.

Kernels of all backends are candidates in one extraction problem, with a row for each implementation
of each candidate. The chosen kernels run in a session of onnxruntime, so an implementation contains
the steps that the session is given in place of the kernel.
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
    "Delegate",
    "Implementation",
    "KernelPattern",
    "Offer",
    "label",
]


@dataclass(frozen=True)
class KernelPattern:
    """A fusion of a backend, in the terms of rules; commutative operators match in either order.

    It is matched on the frozen e-graph, so an operator that only a backend knows is never an
    e-node. Operators that ONNX itself names, and that no local epilogue reaches
    (LayerNormalization, Gelu, attention from any spelling), are equations of the rulebook instead.

    Attributes:
        name: the name of the kernel.
        pattern: the result of the kernel as a term of its variables.
        when: conditions on the variables.
    """

    name: str
    pattern: Term
    when: tuple[Condition, ...] = ()

    def __post_init__(self) -> None:
        """Refuse a pattern that always matches, or that never can.

        Raises:
            RuleError: the pattern is a bare variable, or does not bind a variable of a condition.
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
    """A backend's own form, which values keep from kernel to kernel.

    Attributes:
        form: the form.
        makers: operators whose results have the form.
        keepers: operators whose results have the form if all their data have it.
        passers: operators that run within a chain of kernels in this form although they lack a
            kernel for it, so that conversions are part of their price. All other operators end a
            chain.
        holds: returns whether values of a type can have the form.
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
        algorithm: the name of the algorithm, under which measurements are stored.
        steps: the steps that a session is given instead of the kernel's own, on the same operands;
            the last of them are the outputs. ``None`` for the kernel's own steps.
        arithmetic: the least operations that it does, as a share of those in the definition of the
            kernel. Lower bounds of time are derived from it.
        error: the largest difference of its results from those of the unchanged kernel, relative to
            the maximum of each; 0 if it rounds no worse than any order of the same operations.
        reads: the form in which it takes each operand; empty if all are as the kernel defines.
        writes: the form in which it leaves each output; empty if all are as the kernel defines.
        workspace_bytes: memory that it needs in addition to operands and outputs while it runs.
        strided: whether operands and outputs may be views into larger buffers, so that an adjacent
            concatenation, slice or split moves nothing. Otherwise a plan packs them with copies,
            which are launched and priced.
        precision: the precision in which a library multiplies, as profiles of devices name it:
            ``fp32``, ``tf32``, ``fp16``; empty if the kernel's element type determines it.
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
        """All forms that differ from the kernel's, as text; the time depends on them."""
        if not (self.reads or self.writes):
            return ""
        return f"{' '.join(map(str, self.reads))} > {' '.join(map(str, self.writes))}"


DEFAULT = Implementation("default")
"""The unchanged kernel; the runtime decides how to run it."""


@dataclass(frozen=True)
class Offer:
    """A kernel that a backend offers to run in one way; every offer has a price of its own.

    Attributes:
        kernel: the kernel, of literal sizes.
        backend: the name of the backend.
        implementation: the way in which the backend runs the kernel.
    """

    kernel: Kernel
    backend: str
    implementation: Implementation = DEFAULT

    @property
    def body(self) -> Kernel:
        """Kernel that a session is given."""
        steps = self.implementation.steps
        if steps is None:
            return self.kernel
        end = len(self.kernel.operands) + len(steps)
        outputs = tuple(range(end - len(self.kernel.outputs), end))
        return replace(self.kernel, steps=steps, outputs=outputs)

    @property
    def by(self) -> str:
        """Label of the backend and the implementation, for people."""
        return label(self.backend, self.implementation)


def label(backend: str, implementation: Implementation) -> str:
    """Return backend, algorithm and layout of results: ``ort``, ``analytic:gemm nhwc``."""
    algorithm = implementation.algorithm
    name = backend if algorithm == DEFAULT.algorithm else f"{backend}:{algorithm}"
    return " ".join((name, *dict.fromkeys(form.layout for form in implementation.writes)))


class Backend(Protocol):
    """A component that offers and runs kernels.

    All methods but `measure` are pure: they need neither a device nor the backend's library.
    """

    @property
    def name(self) -> str:
        """Name by which users ask for the backend."""

    def version(self) -> str:
        """Return name and version of the library; measurements of another version do not count."""

    def patterns(self) -> Sequence[KernelPattern]:
        """Return the patterns that it runs as one kernel.

        Single operators, concatenations and splits need no pattern.
        """

    def carried(self) -> Sequence[CarriedForm]:
        """Return the backend's own forms, which values keep between its kernels."""

    def implementations(self, kernel: Kernel) -> Sequence[Implementation]:
        """Return the ways to run a kernel of literal sizes; nothing if there is no way.

        The kernel is a single operator, a concatenation, a split, or was found by a pattern of this
        backend.
        """

    def request(self, offer: Offer) -> bytes:
        """Serialise an offer for `measure`.

        Raises:
            EqsatError: the offer cannot be measured; its lower bound remains its price.
        """

    def measure(self, request: bytes, threads: int, budget_s: float) -> Measurement:
        """Measure an offer, in a process that does nothing else.

        An exception of any type means that this kernel has no price.

        Args:
            request: the bytes that the method `request` returned for the offer.
            threads: threads to use.
            budget_s: time for sampling.

        Returns:
            The measurement; its `time_us` excludes the time that a session adds for each node.
        """


class Delegate:
    """A backend that asks another one; subclasses answer some questions differently.

    Args:
        backend: the other backend.
    """

    def __init__(self, backend: Backend) -> None:
        self.name = backend.name
        self._backend = backend

    def version(self) -> str:
        return self._backend.version()

    def patterns(self) -> Sequence[KernelPattern]:
        return self._backend.patterns()

    def carried(self) -> Sequence[CarriedForm]:
        return self._backend.carried()

    def implementations(self, kernel: Kernel) -> Sequence[Implementation]:
        return self._backend.implementations(kernel)

    def request(self, offer: Offer) -> bytes:
        return self._backend.request(offer)

    def measure(self, request: bytes, threads: int, budget_s: float) -> Measurement:
        return self._backend.measure(request, threads, budget_s)
