"""Sizes at which another runtime runs: to fail on an empty batch is no reason to refuse it."""

from __future__ import annotations

from dataclasses import replace

from eqsat_opt.errors import RuntimeFailed
from eqsat_opt.runtime.source import Runner
from eqsat_opt.validation.reference import Reference

__all__ = ["served"]

_TOLD = 2
"""Most inputs that are named in the sentence."""


def served(reference: Reference, session: Runner, runtime: str) -> tuple[Reference, str]:
    """Return the reference without inputs that a runtime does not run, and a sentence on them.

    A session that serves the model hands such inputs to onnxruntime. So a runtime that fails on
    tensors without elements, or on images smaller than its windows, is as good as any elsewhere.

    Args:
        reference: outputs of the original, which runs on all of its inputs.
        session: session of the other runtime.
        runtime: name of the other runtime.

    Returns:
        The reduced reference, and the sentence without a period, which is empty where the runtime
        runs everything.
    """
    kept, left_out = [], []
    for trial in reference.trials:
        try:
            session.run(trial.feeds)
        except RuntimeFailed:
            left_out.append(trial.draft.what)
        else:
            kept.append(trial)
    if not left_out:
        return reference, ""
    more = f" and {len(left_out) - _TOLD} more" if len(left_out) > _TOLD else ""
    where = ", ".join(left_out[:_TOLD]) + more
    return (
        replace(reference, trials=tuple(kept)),
        f"{runtime} does not run {where}: there onnxruntime runs the model",
    )
