"""Verification: no rule is in the default set without a certificate.

Names are imported on first use, because whoever only reads certificates needs no verifier.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from eqsat_opt.rules.verify.certificate import Certificate
    from eqsat_opt.rules.verify.counterexample import Refutation
    from eqsat_opt.rules.verify.exact import MIN_POINTS, CheckReport, check_rule, check_rules
    from eqsat_opt.rules.verify.gate import certify_exact

__all__ = [
    "MIN_POINTS",
    "Certificate",
    "CheckReport",
    "Refutation",
    "certify_exact",
    "check_rule",
    "check_rules",
]

_HOME = {
    "Certificate": "certificate",
    "Refutation": "counterexample",
    "MIN_POINTS": "exact",
    "CheckReport": "exact",
    "check_rule": "exact",
    "check_rules": "exact",
    "certify_exact": "gate",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
