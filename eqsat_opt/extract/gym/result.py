"""An extraction with the names of its file: as JSON, and read back as an incumbent."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from eqsat_opt.errors import ExtractionError
from eqsat_opt.extract.extraction import Choice, Extraction, active_order
from eqsat_opt.extract.gym.files import GymFile, load_object
from eqsat_opt.extract.objective import AnyObjective

__all__ = ["read_choice", "result_json"]


def result_json(file: GymFile, extraction: Extraction) -> dict[str, Any]:
    """Return plain values for `json.dumps`.

    Returns:
        `choices` {class id: e-node id} for the classes that the roots need, `implementations`
        {class id: name} for those whose e-node names any, and everything else from
        `Extraction.to_json`: `cost`, `lower_bound`, `gap`, `status`, `metrics`, `stages_s` and
        `trace`. Infinities are `None`.
    """
    problem = file.problem
    choices, implementations = {}, {}
    for cls, (node, impl) in sorted(extraction.choice.items()):
        name = file.class_names[cls]
        choices[name] = file.node_names[node]
        begin, end = int(problem.impl_ptr[node]), int(problem.impl_ptr[node + 1])
        if file.implementation_names[begin:end] != ("0",):
            implementations[name] = file.implementation_names[begin + impl]
    rest = {key: item for key, item in extraction.to_json().items() if key != "choices"}
    return {"choices": choices, "implementations": implementations, **rest}


def read_choice(
    path: str | os.PathLike[str],
    file: GymFile,
    objective: AnyObjective,
    *,
    entry: str | None = None,
) -> Choice:
    """Read a known solution from a file such as `result_json` makes.

    Args:
        path: a JSON object with `choices` and perhaps `implementations`. Where these leave one
            open, the e-node gets the implementation with the least weighed metrics.
        file: the e-graph that the names belong to.
        objective: the objective whose weights apply to the metrics.
        entry: the entry that has the `choices` if the file itself has none: the result of a folder
            has one for each e-graph.

    Raises:
        ExtractionError: the file cannot be read, uses names that the e-graph does not have, or the
            choice is incomplete or cyclic.
    """
    data: Any = load_object(path)
    if "choices" not in data and entry is not None:
        data = data.get(entry, data)
    choices = data.get("choices") if isinstance(data, dict) else None
    if not isinstance(choices, dict):
        raise ExtractionError(f"{path} has no choices {{class id: e-node id}}; give a result file")
    names = data.get("implementations", {})
    if not isinstance(names, dict):
        raise ExtractionError(f"{path} has implementations that are not an object")
    try:
        choice = _numbers(file, objective, choices, names)
        active_order(file.problem, choice)
    except ExtractionError as error:
        raise ExtractionError(f"{path}: {error}") from error
    return choice


def _numbers(
    file: GymFile, objective: AnyObjective, choices: Mapping[str, Any], names: Mapping[str, Any]
) -> dict[int, tuple[int, int]]:
    problem = file.problem
    class_number = {name: i for i, name in enumerate(file.class_names)}
    node_number = {name: i for i, name in enumerate(file.node_names)}
    cheapest = problem.cheapest(problem.impl_cost @ objective.vector(problem.metrics))
    choice = {}
    for class_name, node_name in choices.items():
        if class_name not in class_number:
            raise ExtractionError(f"the e-graph has no class {class_name}")
        if not isinstance(node_name, str) or node_name not in node_number:
            raise ExtractionError(f"the e-graph has no e-node {node_name}")
        cls, node = class_number[class_name], node_number[node_name]
        if int(problem.node_class[node]) != cls:
            raise ExtractionError(f"the e-node {node_name} is not in class {class_name}")
        begin, end = int(problem.impl_ptr[node]), int(problem.impl_ptr[node + 1])
        impl = int(cheapest[node]) - begin
        if class_name in names:
            titles = file.implementation_names[begin:end]
            if names[class_name] not in titles:
                raise ExtractionError(
                    f"the e-node {node_name} has no implementation {names[class_name]}; "
                    f"it has {', '.join(titles)}"
                )
            impl = titles.index(names[class_name])
        choice[cls] = (node, impl)
    return choice
