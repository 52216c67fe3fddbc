"""In which arithmetic a device may multiply what a model has in float32."""

from __future__ import annotations

from difflib import get_close_matches
from enum import StrEnum

from eqsat_opt.errors import OptionError

__all__ = ["Precision"]


class Precision(StrEnum):
    """A policy. What was made under one is compared with nothing that was made under another.

    ``strict-fp32``: float32 is computed in float32. ``tf32``: libraries may round the factors of
    products and convolutions to 10 bits of fraction, and add in float32. ``fp16``: what can be is
    stored in float16, and added in float32.
    """

    STRICT = "strict-fp32"
    TF32 = "tf32"
    FP16 = "fp16"

    @classmethod
    def parse(cls, text: str) -> Precision:
        """From the option's spelling.

        Raises:
            OptionError: there is no such policy.
        """
        names = [one.value for one in cls]
        if text not in names:
            near = get_close_matches(text.lower(), names, 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise OptionError(f"unknown precision {text!r}; choose from {', '.join(names)}{hint}")
        return cls(text)

    @classmethod
    def of_peak(cls, name: str) -> Precision:
        """That of an implementation; strict for what multiplies in its own element type."""
        return next((one for one in cls if one.peak == name), cls.STRICT)

    def of(self, dtype: str) -> Precision:
        """In which a library multiplies elements of a type under this policy."""
        if dtype == "float16":
            return Precision.FP16
        return Precision.TF32 if (self, dtype) == (Precision.TF32, "float32") else Precision.STRICT

    @property
    def peak(self) -> str:
        """What profiles of devices call the rate of its arithmetic."""
        return "fp32" if self is Precision.STRICT else self.value

    @property
    def share(self) -> float:
        """How far results may be from those of exact arithmetic, as a share of their maximum.

        Factors have 24, 11 and 11 bits; errors add up over layers, and under ``fp16`` each value
        between kernels is rounded as well.
        """
        return {Precision.STRICT: 1e-4, Precision.TF32: 5e-3, Precision.FP16: 2e-2}[self]
