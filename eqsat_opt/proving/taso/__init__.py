"""TASO's substitutions: file reader, readable text, and conversion to rules of this package."""

from __future__ import annotations

from eqsat_opt.proving.taso.convert import Groups, to_rule
from eqsat_opt.proving.taso.reader import TasoOp, TasoRule, read_taso

__all__ = ["Groups", "TasoOp", "TasoRule", "read_taso", "to_rule"]
