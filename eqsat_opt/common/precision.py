"""The arithmetic in which a device may multiply values that a model has in float32."""

from __future__ import annotations

from difflib import get_close_matches
from enum import StrEnum

from eqsat_opt.errors import OptionError

__all__ = ["Precision"]


class Precision(StrEnum):
    """A precision policy. Results of different policies are never compared with each other.

    ``strict-fp32``: float32 is computed in float32. ``tf32``: libraries may round the factors of
    products and convolutions to 10 bits of fraction, and add in float32. ``fp16``: every value that
    can be is stored in float16, and sums are computed in float32.
    """

    STRICT = "strict-fp32"
    TF32 = "tf32"
    FP16 = "fp16"

    @classmethod
    def parse(cls, text: str) -> Precision:
        """Return the policy with the name that the option uses.

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
        """Return the policy whose arithmetic has this peak rate, strict if there is none."""
        return next((one for one in cls if one.peak == name), cls.STRICT)

    def of(self, dtype: str) -> Precision:
        """Return the arithmetic in which libraries multiply elements of a type under the policy."""
        if dtype == "float16":
            return Precision.FP16
        return Precision.TF32 if (self, dtype) == (Precision.TF32, "float32") else Precision.STRICT

    @property
    def peak(self) -> str:
        """The name of the rate of this arithmetic in device profiles."""
        return "fp32" if self is Precision.STRICT else self.value

    @property
    def share(self) -> float:
        """How far results may be from those of exact arithmetic, as a share of their maximum.

        Factors have 24, 11 and 11 bits; errors add up over layers, and under ``fp16`` each value
        between kernels is rounded as well.
        """
        return {Precision.STRICT: 1e-4, Precision.TF32: 5e-3, Precision.FP16: 2e-2}[self]
