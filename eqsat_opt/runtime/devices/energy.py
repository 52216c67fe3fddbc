"""Model of the energy of kernels: static power over time, and a price per operation and byte.

No energy model is part of the package: its figures have to be measured by the user.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from eqsat_opt.common.codecs import read_document, value_from_json
from eqsat_opt.errors import OptionError, StageError
from eqsat_opt.runtime.devices.figures import Figure, check_figures

__all__ = ["EnergyModel", "load_energy_model"]


@dataclass(frozen=True)
class EnergyModel:
    """Energy model of the kernels of a device.

    Attributes:
        static_w: power of the idle device, W.
        pj_per_flop: energy of an operation by precision, pJ.
        pj_per_byte: energy of a byte of memory traffic, pJ.
        of_algorithm: factor by algorithm for the energy of operations and traffic; 1 for algorithms
            that are not listed.
    """

    static_w: Figure
    pj_per_flop: Mapping[str, Figure]
    pj_per_byte: Figure
    of_algorithm: Mapping[str, Figure] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Freeze the mappings."""
        for name in ("pj_per_flop", "of_algorithm"):
            object.__setattr__(self, name, MappingProxyType(dict(getattr(self, name))))

    @property
    def source(self) -> str:
        """Sources of its figures, each source once."""
        rates = (*self.pj_per_flop.values(), self.pj_per_byte, *self.of_algorithm.values())
        figures = (self.static_w, *rates)
        return "; ".join(dict.fromkeys(one.source for one in figures))

    def require_precision(self, precision: str) -> None:
        """Refuse a precision for which the model has no figure.

        Raises:
            OptionError: the model has no figure for the precision.
        """
        if precision not in self.pj_per_flop:
            known = ", ".join(sorted(self.pj_per_flop)) or "none"
            raise OptionError(
                f"the energy model knows no precision {precision!r}; it knows {known}"
            )

    def energy_uj(
        self,
        time_us: float,
        flops: float,
        size_bytes: float,
        precision: str,
        *,
        algorithm: str = "",
    ) -> float:
        """Return the energy of a kernel from its time, operations and traffic, µJ.

        Raises:
            OptionError: the model has no figure for the precision.
        """
        self.require_precision(precision)
        moving = self.pj_per_flop[precision].value * flops + self.pj_per_byte.value * size_bytes
        if algorithm in self.of_algorithm:
            moving *= self.of_algorithm[algorithm].value
        return self.static_w.value * time_us + moving * 1e-6


@dataclass(frozen=True)
class _FromOneSource:
    """The content of a file with an energy model."""

    static_w: int | float
    pj_per_flop: Mapping[str, int | float]
    pj_per_byte: int | float
    source: str
    of_algorithm: Mapping[str, int | float] = field(default_factory=dict)


def load_energy_model(path: str | os.PathLike[str]) -> EnergyModel:
    """Read an energy model from a file, where all figures have one source.

    The file has the fields ``static_w``, ``pj_per_flop`` by precision, ``pj_per_byte`` and
    ``source``, and may have ``of_algorithm``.

    Raises:
        OptionError: the file cannot be read, lacks a field, or has an implausible figure.
    """
    where = f"the energy model {os.fspath(path)}"
    try:
        given = value_from_json(read_document(path, "an energy model"), _FromOneSource, where)
        source = given.source.strip()
        if not source or not source.isprintable():
            raise StageError(f"{where} does not say in a line where its figures are from")
        if not given.pj_per_flop:
            raise StageError(f"pj_per_flop of {where} names no precision, such as fp32")
        model = EnergyModel(
            Figure(given.static_w, source),
            {name: Figure(value, source) for name, value in given.pj_per_flop.items()},
            Figure(given.pj_per_byte, source),
            {name: Figure(value, source) for name, value in given.of_algorithm.items()},
        )
        check_figures(model, where)
    except StageError as error:
        raise OptionError(str(error)) from error
    return model
