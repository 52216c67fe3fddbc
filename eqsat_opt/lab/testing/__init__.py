"""What tests are made of: small graphs, and oracles that judge e-graphs and rule books.

Public, because whoever adds operators or rules needs the same. The oracles are imported by their
own names: ``eqsat_opt.lab.testing.eclasses`` evaluates every e-node and compares it with its class,
``eqsat_opt.lab.testing.redundancy`` says which rules of a book follow from the others.
"""

from __future__ import annotations

from eqsat_opt.lab.testing.graphs import GraphMaker, evaluate, random_inputs, typed_graphs

__all__ = ["GraphMaker", "evaluate", "random_inputs", "typed_graphs"]
