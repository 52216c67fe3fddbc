"""Comparisons of methods: every run in a process of its own, and files with its results."""

from __future__ import annotations

from eqsat_opt.lab.experiments.batch import BatchModel, BatchResult, models_in, run_batch
from eqsat_opt.lab.experiments.saved import Verification, verify_saved
from eqsat_opt.lab.experiments.sweep import Cell, Sweep, read_sweep, run_sweep
from eqsat_opt.lab.experiments.whole import compare_apart
from eqsat_opt.lab.experiments.worker import MethodTask, Reply, run_apart, run_here

__all__ = [
    "BatchModel",
    "BatchResult",
    "Cell",
    "MethodTask",
    "Reply",
    "Sweep",
    "Verification",
    "compare_apart",
    "models_in",
    "read_sweep",
    "run_apart",
    "run_batch",
    "run_here",
    "run_sweep",
    "verify_saved",
]
