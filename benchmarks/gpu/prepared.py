"""What `prepare` writes: plans of models and of single kernels, without weights.

Weights and inputs are drawn anew from seeds where units run. Those of the zoo may differ there in
their last bits, so a plan that was made here is given the digests of what was drawn there.
"""

from __future__ import annotations

import base64
import gzip
import json
import os
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Literal

import numpy as np

from benchmarks.gpu.reference import ReferenceSession
from eqsat_opt.common.codecs import Document
from eqsat_opt.common.files import write_whole
from eqsat_opt.errors import StageError, reason
from eqsat_opt.ir.onnx.files.stored_tensors import stored_tensors
from eqsat_opt.ir.values.types import numpy_dtype
from eqsat_opt.lab import zoo
from eqsat_opt.runtime.backends.registry import load_launcher
from eqsat_opt.runtime.inputs import random_inputs
from eqsat_opt.runtime.plan.constants import Tensors, Weights, make_constants
from eqsat_opt.runtime.plan.files import plan_from_json
from eqsat_opt.runtime.plan.hazards import check_plan
from eqsat_opt.runtime.plan.places import Array
from eqsat_opt.runtime.plan.plan import Buffer, Plan, Stored

__all__ = [
    "MOST_BYTES", "KernelPlan", "ModelPlan", "Prepared", "Scale", "Way", "encoded",
    "kernel_constants", "kernel_feeds", "loaded", "model_inputs", "model_of", "model_outputs",
    "prepared_path", "read_prepared", "with_weights", "write_prepared",
]  # fmt: skip

FORMAT = "eqsat-opt gpu prepared 1"
MOST_BYTES = 5 << 20
SEED = 0
_MODELS = 8
"""Kept in memory, with their weights: units of one kind go through those that come first."""

Scale = Literal["full", "tiny"]


@dataclass(frozen=True)
class ModelPlan:
    """A plan of a model.

    Attributes:
        model: its name in the zoo.
        scale: ``full`` or ``tiny``.
        title: which of its plans: the graph, and how many streams.
        document: of the plan.
        predicted_us: by the prices that it was made with.
        is_measured: whether those of all its kernels were measured on a device.
    """

    model: str
    scale: Scale
    title: str
    document: Document
    predicted_us: float
    is_measured: bool = False

    @cached_property
    def plan(self) -> Plan:
        """The plan, read and checked when it is first wanted."""
        return _checked(self.document)

    @property
    def name(self) -> str:
        """The only one of that name."""
        size = "" if self.scale == "full" else f"@{self.scale}"
        return f"{self.model}{size}: {self.title}"


@dataclass(frozen=True)
class Way:
    """How a kernel can be run: an algorithm of its backend, and the workspace of that."""

    algorithm: str
    workspace_bytes: int = 0


@dataclass(frozen=True)
class KernelPlan:
    """A plan of one launch.

    Attributes:
        name: the only one of that name.
        document: of the plan, whose launch has the first way.
        ways: in which it can be run.
        models: where it comes from, and how often it is launched there; empty for the case of an
            operator.
        bound_us: by the model of the device, without its launch.
        values: inputs of which random numbers make no sense, their bytes in base 64.
    """

    name: str
    document: Document
    ways: tuple[Way, ...]
    models: Mapping[str, int] = field(default_factory=dict)
    bound_us: float = 0.0
    values: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def plan(self) -> Plan:
        """The plan, read and checked when it is first wanted."""
        return _checked(self.document)

    @property
    def backend(self) -> str:
        """Who runs the launch."""
        return str(self.document["launches"][0]["backend"])


@dataclass(frozen=True)
class Prepared:
    """All that is to be looked at on a device.

    Attributes:
        target: its profile.
        plans: of models.
        kernels: of these plans.
        cases: uses of all operators, in several types and forms.
        probes: kernels that tell the figures of the device: ``copy``, ``product``, ``empty``.
        digest: of the file; results of other files are not mixed with those of this one.
    """

    target: str
    plans: tuple[ModelPlan, ...]
    kernels: tuple[KernelPlan, ...]
    cases: tuple[KernelPlan, ...]
    probes: tuple[KernelPlan, ...] = ()
    digest: str = ""

    def of(self, models: Sequence[str]) -> Prepared:
        """What is of some models, and all cases; everything if none is named.

        Raises:
            StageError: one of them was not prepared.
        """
        known = {one.model for one in self.plans}
        if unknown := [name for name in models if name not in known]:
            raise StageError(
                f"{unknown[0]!r} was not prepared; there are {', '.join(sorted(known))}"
            )
        if not models:
            return self
        wanted = set(models)
        return replace(
            self,
            plans=tuple(one for one in self.plans if one.model in wanted),
            kernels=tuple(one for one in self.kernels if wanted & one.models.keys()),
        )

    def check_versions(self) -> None:
        """See that plans name the libraries and the generator of kernels of this package.

        Raises:
            StageError: they were prepared by another one, so that none of them would run.
        """
        every = [*(one.document for one in self.plans)]
        every += [one.document for one in (*self.kernels, *self.cases, *self.probes)]
        versions = {item for document in every for item in document["versions"].items()}
        for name, version in sorted(versions):
            here = load_launcher(name).version()
            if version != here:
                raise StageError(
                    f"what is prepared was made with {version}; here is {here}: prepare again"
                )


# ** weights and inputs **


@lru_cache(maxsize=_MODELS)
def model_of(name: str, scale: Scale) -> Any:
    """A model of the zoo, with the weights of `SEED`."""
    return zoo.build(name, scale=scale, seed=SEED)


@lru_cache(maxsize=_MODELS)
def _weights(name: str, scale: Scale) -> Weights:
    return Weights(stored_tensors(model_of(name, scale)))


def model_inputs(name: str, scale: Scale) -> dict[str, Array]:
    """Inputs of a model, drawn from `SEED`."""
    return random_inputs(model_of(name, scale), SEED)


@lru_cache(maxsize=_MODELS)
def model_outputs(name: str, scale: Scale) -> Mapping[str, Array]:
    """What the operators of a model compute from these inputs, as they are defined; in order."""
    session = ReferenceSession(model_of(name, scale))
    found = session.run(model_inputs(name, scale))
    return dict(zip(session.output_names, found, strict=True))


def loaded(entry: ModelPlan) -> tuple[Plan, dict[str, Array]]:
    """A plan with the digests of the weights that are drawn here, and its constants."""
    plan = with_weights(entry.plan, _weights(entry.model, entry.scale))
    return plan, make_constants(plan, _weights(entry.model, entry.scale))


def with_weights(plan: Plan, tensors: Tensors) -> Plan:
    """The same plan for other weights of the same names."""
    weights = Weights.of(tensors)
    return replace(
        plan,
        constants={
            buffer: Stored(recipe.name, weights.digest(recipe.name))
            if isinstance(recipe, Stored) and recipe.name in weights
            else recipe
            for buffer, recipe in plan.constants.items()
        },
    )


def kernel_feeds(kernel: KernelPlan, plan: Plan) -> dict[str, Array]:
    """A value for each input of a plan of this kernel; the same for all copies in it."""
    found: dict[str, Array] = {}
    for port in plan.inputs:
        name, buffer = port.name.partition("#")[0], plan.buffer_of[port.buffer]
        if name not in found:
            value = kernel.values.get(name)
            found[name] = _drawn(name, buffer) if value is None else _decoded(value, buffer)
        found[port.name] = found[name]
    return found


def encoded(value: Array) -> str:
    """An array as `KernelPlan` has it."""
    return base64.b64encode(np.ascontiguousarray(value).tobytes()).decode()


def _decoded(text: str, buffer: Buffer) -> Array:
    data = np.frombuffer(base64.b64decode(text), numpy_dtype(buffer.dtype))
    return data.reshape(buffer.dims)


def kernel_constants(kernel: KernelPlan, plan: Plan) -> dict[str, Array]:
    """The constants of a plan of this kernel; the same for all copies in it."""
    found: dict[str, Array] = {}
    for full in plan.constants:
        name = full.partition("#")[0]
        if name not in found:
            found[name] = _drawn(name, plan.buffer_of[full])
            found[name].flags.writeable = False
        found[full] = found[name]
    return found


def _drawn(name: str, buffer: Buffer) -> Array:
    """Random numbers as large as those in models."""
    draw = np.random.default_rng([SEED, zlib.crc32(name.encode())])
    is_whole = buffer.dtype.startswith(("bool", "int", "uint"))
    drawn = (
        draw.integers(0, 2, buffer.dims)
        if is_whole
        else draw.standard_normal(buffer.dims, dtype=np.float32)
    )
    return np.asarray(drawn).astype(numpy_dtype(buffer.dtype))


# ** the file **


def prepared_path(folder: Path) -> Path:
    """The file in a folder."""
    return folder / "prepared.json.gz"


def write_prepared(folder: Path, prepared: Prepared) -> int:
    """Write it whole or not at all; its size in bytes.

    Raises:
        StageError: it cannot be written, or is larger than `MOST_BYTES`.
    """
    document = {
        "format": FORMAT,
        "target": prepared.target,
        "plans": [
            {
                "model": one.model, "scale": one.scale, "title": one.title,
                "predicted_us": one.predicted_us, "is_measured": one.is_measured,
                "plan": one.document,
            }
            for one in prepared.plans
        ],
        "kernels": list(map(_kernel_to_json, prepared.kernels)),
        "cases": list(map(_kernel_to_json, prepared.cases)),
        "probes": list(map(_kernel_to_json, prepared.probes)),
    }  # fmt: skip
    data = gzip.compress(json.dumps(document, separators=(",", ":")).encode(), mtime=0)
    if len(data) > MOST_BYTES:
        raise StageError(
            f"{len(data)} bytes were prepared; {MOST_BYTES} are brought to a device: "
            "name fewer --models"
        )
    write_whole(prepared_path(folder), data, StageError)
    return len(data)


def _kernel_to_json(one: KernelPlan) -> Document:
    return {
        "name": one.name,
        "ways": [[way.algorithm, way.workspace_bytes] for way in one.ways],
        "models": dict(one.models),
        "bound_us": one.bound_us,
        "values": dict(one.values),
        "plan": one.document,
    }


def read_prepared(folder: str | os.PathLike[str]) -> Prepared:
    """What `prepare` wrote in a folder; read again when the file is another one.

    Raises:
        StageError: there is no such file, or it is damaged.
    """
    path = prepared_path(Path(folder))
    try:
        about = path.stat()
        return _read(path, about.st_mtime_ns, about.st_size)
    except FileNotFoundError as error:
        raise StageError(
            f"{path} is not there; run python -m benchmarks.gpu prepare --out {folder}"
        ) from error
    except (zlib.error, gzip.BadGzipFile, EOFError) as error:
        raise StageError(f"{path} is damaged ({error}); prepare again") from error
    except OSError as error:
        raise StageError(f"cannot read {path}: {reason(error)}") from error
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise StageError(f"{path} is damaged ({error}); prepare again") from error


@lru_cache(maxsize=1)
def _read(path: Path, *_: int) -> Prepared:
    data = path.read_bytes()
    document = json.loads(gzip.decompress(data))
    if document.get("format") != FORMAT:
        raise ValueError(f"its format is {document.get('format')!r}, not {FORMAT!r}")
    return Prepared(
        str(document["target"]),
        tuple(map(_plan_from_json, document["plans"])),
        tuple(map(_kernel_from_json, document["kernels"])),
        tuple(map(_kernel_from_json, document["cases"])),
        tuple(map(_kernel_from_json, document["probes"])),
        digest=f"{zlib.crc32(data):08x}",
    )


def _plan_from_json(value: Document) -> ModelPlan:
    return ModelPlan(
        str(value["model"]),
        value["scale"],
        str(value["title"]),
        value["plan"],
        predicted_us=float(value["predicted_us"]),
        is_measured=bool(value["is_measured"]),
    )


def _kernel_from_json(value: Document) -> KernelPlan:
    return KernelPlan(
        str(value["name"]),
        value["plan"],
        tuple(Way(str(algorithm), int(size)) for algorithm, size in value["ways"]),
        models=dict(value["models"]),
        bound_us=float(value["bound_us"]),
        values=dict(value["values"]),
    )


def _checked(document: Document) -> Plan:
    plan = plan_from_json(document)
    check_plan(plan)
    return plan
