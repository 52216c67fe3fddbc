"""Rewrite rules: declared once as equations, read by e-graph, searches, checker and docs."""

from __future__ import annotations

if not __name__.startswith("eqsat_opt."):
    raise ImportError("import eqsat_opt.rules; the top-level link is for readers")

from eqsat_opt.rules.library import default_rules, families, load_rules
from eqsat_opt.rules.rule import Numerics, Rule, rule

__all__ = ["Numerics", "Rule", "default_rules", "families", "load_rules", "rule"]
