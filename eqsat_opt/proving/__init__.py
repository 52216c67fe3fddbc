"""Verification of rules: no rule is used by default without a certificate (``docs/proving.md``).

Names are imported on first use, because reading certificates needs no verifier.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from eqsat_opt.proving.certificates.certificate import Certificate
    from eqsat_opt.proving.checks.counterexample import Refutation
    from eqsat_opt.proving.checks.exact import MIN_POINTS, CheckReport, check_rule
    from eqsat_opt.proving.gate import certify_exact
    from eqsat_opt.proving.selection import default_rules, load_rules

__all__ = [
    "MIN_POINTS",
    "Certificate",
    "CheckReport",
    "Refutation",
    "certify_exact",
    "check_rule",
    "default_rules",
    "load_rules",
]

_HOME = {
    "Certificate": "certificates.certificate",
    "Refutation": "checks.counterexample",
    "MIN_POINTS": "checks.exact",
    "CheckReport": "checks.exact",
    "check_rule": "checks.exact",
    "certify_exact": "gate",
    "default_rules": "selection",
    "load_rules": "selection",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
