"""Proofs for all sizes: index notation in normal form, integers decided by z3."""

from __future__ import annotations

from eqsat_opt.proving.proof.driver import Proof, Status, prove

__all__ = ["Proof", "Status", "prove"]
