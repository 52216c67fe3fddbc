"""Configurations of layers whose states go from step to step."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tests.conformance.operator_grid.configuration import Configuration, Imported, Operand
from tests.conformance.operator_grid.generation import Values, covering, on_grid, opsets

__all__: list[str] = []

_GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
_NAMED = {
    "LSTM": (None, ("Sigmoid", "Tanh", "Tanh")),
    "GRU": (None, ("sigmoid", "tanh")),
    "RNN": (None, ("Relu",), ("Tanh",), ("Sigmoid",)),
}


@on_grid("LSTM", "GRU", "RNN")
def layers(op: str, values: Values) -> Iterator[Configuration]:
    rows = covering(
        3, direction=(None, "forward", "reverse", "bidirectional"), bias=(False, True),
        lengths=(None, (5, 2, 1), (3, 5, 4)), state=(False, True), cell=(False, True),
        peepholes=(False, True), linear=(None, 0, 1), named=_NAMED[op], opset=opsets(op),
        outputs=(1, 2, 3), size=((5, 3, 4, 2), (1, 3, 2, 3)),
        where=lambda r: (op == "LSTM" or not (r["cell"] or r["peepholes"] or r["outputs"] == 3))
        and (op == "GRU" or r["linear"] is None)
        and (r["lengths"] is None or r["size"][0] == 5),
    )  # fmt: skip
    for row in rows:
        steps, samples, features, hidden = row["size"]
        count = 2 if row["direction"] == "bidirectional" else 1
        rows_ = _GATES[op] * hidden
        operands: list[Operand] = [
            values(steps, samples, features),
            values(count, rows_, features),
            values(count, rows_, hidden),
            values(count, 2 * rows_) if row["bias"] else None,
            None if row["lengths"] is None else np.asarray(row["lengths"], np.int32),
            values(count, samples, hidden) if row["state"] else None,
            values(count, samples, hidden) if row["cell"] else None,
            values(count, 3 * hidden) if row["peepholes"] else None,
        ]
        while operands[-1] is None:
            operands.pop()
        attrs: dict[str, Any] = {"hidden_size": hidden}
        attrs |= {} if row["direction"] is None else {"direction": row["direction"]}
        attrs |= {} if row["linear"] is None else {"linear_before_reset": row["linear"]}
        attrs |= {} if row["named"] is None else {"activations": row["named"] * count}
        yield Imported(op, op, operands, attrs, row["opset"], outputs=row["outputs"])
