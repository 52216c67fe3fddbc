"""Which algorithms cuBLASLt has for products on an architecture: what a device told, as files.

cuBLASLt answers nothing without a driver, so these tables are made where a GPU is, one for an
architecture (`support/`). Where there is none, every product has the one choice `HEURISTIC`.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files

from eqsat_opt.common.precision import Precision
from eqsat_opt.errors import StageError
from eqsat_opt.ir.graph.kernel import Kernel
from eqsat_opt.runtime.backends.shared.products import Product
from eqsat_opt.runtime.plan.plan import dense_strides

__all__ = [
    "FORMAT", "HEURISTIC", "MARGIN_BYTES", "NO_SUPPORT", "Algorithm", "Choice", "Support",
    "epilogue_of", "product_key", "recorded", "support_bytes", "support_of",
]  # fmt: skip

FORMAT = "eqsat-opt cublaslt support 1"

HEURISTIC = "heuristic"
"""What cuBLASLt ranks first where it runs, within the workspace of the launch."""


MARGIN_BYTES = 16
"""That nvmath-python adds to a workspace where there is an epilogue."""


@dataclass(frozen=True)
class Algorithm:
    """A kernel of cuBLASLt and its settings (`cublasLtMatmulAlgoConfigAttributes_t`).

    Attributes:
        number: of the kernel.
        tile: rows and columns of an output tile.
        stages: in shared memory, as nvmath-python writes them.
        split_k, scheme: parts of the sums that run side by side, and how they are added.
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
        """What plans call it."""
        return (
            f"algo{self.number} tile={self.tile} stages={self.stages} split={self.split_k}:"
            f"{self.scheme} swizzle={self.swizzling} option={self.option}"
        )


@dataclass(frozen=True)
class Choice:
    """A way in which cuBLASLt computes a product.

    Attributes:
        name: of the algorithm, or `HEURISTIC`.
        workspace_bytes: that it needs by itself.
    """

    name: str
    workspace_bytes: int = 0


@dataclass(frozen=True)
class Support:
    """What an architecture has.

    Attributes:
        version: of cuBLASLt, as it numbers itself; 0 where nobody asked.
        gelu: the form that its epilogue computes, as a device test found: ``none`` for the exact
            one, ``tanh`` for the approximation; empty where nobody tested.
        choices: by `product_key`, best ranked first.
    """

    version: int = 0
    gelu: str = ""
    choices: Mapping[str, tuple[Choice, ...]] = field(default_factory=dict)


NO_SUPPORT = Support()
_FORMS = "", "none", "tanh"


@cache
def recorded(architecture: str) -> Support:
    """What was recorded for an architecture; nothing for one that was not asked.

    Raises:
        StageError: the file is no such table.
    """
    path = files("eqsat_opt.runtime.backends.cublaslt") / "support" / f"{architecture}.json.gz"
    try:
        return support_of(path.read_bytes())
    except FileNotFoundError:
        return NO_SUPPORT


def support_of(data: bytes) -> Support:
    """What `support_bytes` made.

    Raises:
        StageError: it is something else.
    """
    try:
        document = json.loads(gzip.decompress(data))
        names: list[str] = document["algorithms"]
        found = {
            key: tuple(Choice(names[number], int(size)) for number, size in choices)
            for key, choices in document["products"]
        }
        made = Support(int(document["version"]), document["gelu"], found)
        is_ours = document["format"] == FORMAT and made.gelu in _FORMS
    except (OSError, EOFError, ValueError, LookupError, TypeError) as error:
        raise StageError(f"this is no table of cuBLASLt: {error}") from error
    if not is_ours:
        raise StageError(f"this is no table of cuBLASLt of the format {FORMAT!r}")
    return made


def support_bytes(support: Support) -> bytes:
    """The file of a table; equal tables have equal ones."""
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


def epilogue_of(product: Product) -> str:
    """``BIAS``, ``RELU_BIAS`` and so on, as the headers have it; empty for none."""
    parts = _EPILOGUES[product.activation], "" if product.bias is None else "BIAS"
    return "_".join(filter(None, parts))


def product_key(
    kernel: Kernel,
    product: Product,
    precision: Precision,
    strides: Sequence[Sequence[int]] | None = None,
) -> str:
    """What decides which algorithms there are: types, extents, layouts, epilogue, precision.

    Each batch is a product of its own, so batches do not matter.

    Args:
        kernel: the product, of literal sizes.
        product: what it is made of.
        precision: the policy.
        strides: of all operands, then of the result, in elements; dense by default.
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
