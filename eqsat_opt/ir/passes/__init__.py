"""Passes: functions from a graph to an equal graph, and facts about graphs.

Passes are rows of lists, which :mod:`eqsat_opt.ir.passes.protocol` runs: `NORMAL_FORM` in
`normalise` for a graph that is searched, `STORAGE_FORM` in `storage_form` for one to be written.
`in_half` in `fp16` runs only for that precision.

Other modules state facts (`body_flops`, `conditions`, `coverage`, `nonfinite`) or put graphs
together from parts (`new_bodies`, `rebuild`).
"""

__all__: list[str] = []
