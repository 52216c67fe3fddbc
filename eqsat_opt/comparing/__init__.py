"""Comparisons of methods: every run in a process of its own, and what is saved of it."""

from __future__ import annotations

from eqsat_opt.comparing.saved import Verification, verify_saved
from eqsat_opt.comparing.whole import compare_apart
from eqsat_opt.comparing.worker import Reply, Task, run_apart, run_here

__all__ = [
    "Reply",
    "Task",
    "Verification",
    "compare_apart",
    "run_apart",
    "run_here",
    "verify_saved",
]
