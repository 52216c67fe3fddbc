"""Tables of the algorithms that cuBLASLt has for products on an architecture.

cuBLASLt answers nothing without a driver, so the tables are recorded on machines with a GPU, one
for each architecture (`support/`). Without a table, every product has the one choice `HEURISTIC`.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files

from eqsat_opt.common.codecs import parse_json
from eqsat_opt.common.precision import Precision
from eqsat_opt.errors import StageError
from eqsat_opt.ir.graph.kernel import Kernel
from eqsat_opt.runtime.backends.shared.products import LibraryProduct
from eqsat_opt.runtime.plan.plan import dense_strides

__all__ = [
    "FORMAT", "HEURISTIC", "MARGIN_BYTES", "NO_SUPPORT", "Algorithm", "CublasLtChoice", "Support",
    "epilogue_of", "product_key", "recorded", "support_bytes", "support_of",
]  # fmt: skip

FORMAT = "eqsat-opt cublaslt support 1"

HEURISTIC = "heuristic"
"""Algorithm that cuBLASLt ranks first at run time, within the workspace of the launch."""


MARGIN_BYTES = 16
"""Bytes that nvmath-python adds to the workspace of a product with an epilogue."""


@dataclass(frozen=True)
class Algorithm:
    """A kernel of cuBLASLt and its settings (`cublasLtMatmulAlgoConfigAttributes_t`).

    Attributes:
        number: the number of the kernel.
        tile: rows and columns of an output tile.
        stages: the stages in shared memory, as nvmath-python writes them.
        split_k, scheme: the number of parts of each sum that run side by side, and how these are
            added.
        swizzling, option: further settings.
    """

    number: int
    tile: str
    stages: str = ""
    split_k: int = 1
    scheme: int = 0
    swizzling: int = 0
    option: int = 0

    @property
    def name(self) -> str:
        """Name of the algorithm in plans."""
        return (
            f"algo{self.number} tile={self.tile} stages={self.stages} split={self.split_k}:"
            f"{self.scheme} swizzle={self.swizzling} option={self.option}"
        )


@dataclass(frozen=True)
class CublasLtChoice:
    """A way in which cuBLASLt computes a product.

    Attributes:
        name: the name of the algorithm, or `HEURISTIC`.
        workspace_bytes: the workspace of the algorithm, without the margin of nvmath-python.
    """

    name: str
    workspace_bytes: int = 0


@dataclass(frozen=True)
class Support:
    """Recorded support of cuBLASLt for products on an architecture.

    Attributes:
        version: the version number of cuBLASLt; 0 if nothing was recorded.
        gelu: the form of Gelu that the epilogue computes, as a device test found: ``none`` for the
            exact one, ``tanh`` for the approximation; empty if it was not tested.
        choices: the choices by `product_key`, best ranked first.
    """

    version: int = 0
    gelu: str = ""
    choices: Mapping[str, tuple[CublasLtChoice, ...]] = field(default_factory=dict)


NO_SUPPORT = Support()
_FORMS = "", "none", "tanh"


@cache
def recorded(architecture: str) -> Support:
    """Return the support recorded for an architecture; empty if none was recorded.

    Raises:
        StageError: the file is not a table of cuBLASLt.
    """
    path = files("eqsat_opt.runtime.backends.cublaslt") / "support" / f"{architecture}.json.gz"
    try:
        return support_of(path.read_bytes())
    except FileNotFoundError:
        return NO_SUPPORT


def support_of(data: bytes) -> Support:
    """Parse the bytes that `support_bytes` returned.

    Raises:
        StageError: the bytes are not a table of cuBLASLt.
    """
    try:
        document = parse_json(gzip.decompress(data))
        names: list[str] = document["algorithms"]
        found = {
            key: tuple(CublasLtChoice(names[number], int(size)) for number, size in choices)
            for key, choices in document["products"]
        }
        made = Support(int(document["version"]), document["gelu"], found)
        is_ours = document["format"] == FORMAT and made.gelu in _FORMS
    except (OSError, EOFError, ArithmeticError, ValueError, LookupError, TypeError) as error:
        raise StageError(f"this is no table of cuBLASLt: {error}") from error
    if not is_ours:
        raise StageError(f"this is no table of cuBLASLt of the format {FORMAT!r}")
    return made


def support_bytes(support: Support) -> bytes:
    """Return the content of a table's file; equal tables have equal files."""
    choices = support.choices
    names = sorted({one.name for found in choices.values() for one in found})
    number = {name: i for i, name in enumerate(names)}
    document = {
        "format": FORMAT,
        "version": support.version,
        "gelu": support.gelu,
        "algorithms": names,
        "products": [
            [key, [[number[one.name], one.workspace_bytes] for one in choices[key]]]
            for key in sorted(choices)
        ],
    }
    text = json.dumps(document, separators=(",", ":"), sort_keys=True)
    return gzip.compress(text.encode(), mtime=0)


_EPILOGUES = {"": "", "relu": "RELU", "gelu": "GELU", "gelu_tanh": "GELU"}


def epilogue_of(product: LibraryProduct) -> str:
    """Return the epilogue as the headers name it: ``BIAS``, ``RELU_BIAS`` etc.; empty for none."""
    parts = _EPILOGUES[product.activation], "" if product.bias is None else "BIAS"
    return "_".join(filter(None, parts))


def product_key(
    kernel: Kernel,
    product: LibraryProduct,
    precision: Precision,
    strides: Sequence[Sequence[int]] | None = None,
) -> str:
    """Return the key of a product: types, extents, layouts, epilogue and precision.

    These decide which algorithms there are. Each batch is a separate product, so the number of
    batches does not matter.

    Args:
        kernel: the kernel of the product, of literal sizes.
        product: the product in terms of the kernel's operands.
        precision: the policy.
        strides: the strides of all operands, then of the result, in elements; dense by default.
    """
    count, types = len(kernel.operands), kernel.required_types()
    matrices = []
    for number in (product.a, product.b, count):
        dims = types[number].shape
        outer, inner = (dense_strides(dims) if strides is None else strides[number])[-2:]
        by_rows = inner == 1 or dims[-1] == 1
        matrices.append(f"{dims[-2]}x{dims[-1]}{'r' if by_rows else 'c'}{max(outer, inner)}")
    dtype = types[count].dtype
    return " ".join((dtype, precision.of(dtype), *matrices, epilogue_of(product)))
