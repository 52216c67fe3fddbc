"""Building blocks of tests: small graphs, and oracles that judge e-graphs and rule books.

They are public, because authors of operators or rules need them too. The oracles are imported by
their own names: ``eqsat_opt.lab.testing.eclasses`` evaluates every e-node and compares it with its
class, ``eqsat_opt.lab.testing.redundancy`` finds the rules of a book that follow from the others.
"""

from __future__ import annotations

from eqsat_opt.lab.testing.graphs import GraphMaker, evaluate, random_inputs, typed_graphs

__all__ = ["GraphMaker", "evaluate", "random_inputs", "typed_graphs"]
