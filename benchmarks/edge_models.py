"""Optimise random models at the edges: `python -m benchmarks.edge_models --examples 2000`.

Each of the models of tests/property/edges is optimised in every numerics class and run on ordinary
inputs, special ones and other sizes; what differs beyond its class is printed, with the number
under which the model is drawn again. A model of which onnxruntime dies is named and left out.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from multiprocessing import get_context
from pathlib import Path
from random import Random

from tests.property.edges.allowed import NUMERICS
from tests.property.edges.draft import Impossible
from tests.property.edges.models import draw_model
from tests.property.edges.optimised import wrong_in

_CHUNK = 25
"""Models of one process, which may die."""


def _judge(numbers: range, seed: int, classes: Sequence[str], folder: str) -> None:
    """Judge models one after another; what is found goes to a file, line by line."""
    warnings.simplefilter("error")
    with Path(folder, "found.jsonl").open("a") as found:
        for number in numbers:
            Path(folder, "at").write_text(str(number))
            try:
                edge = draw_model(Random(f"{seed}-{number}"))
            except Impossible:
                print(json.dumps({"number": number, "refused": True}), file=found, flush=True)
                continue
            for numerics in classes:
                try:
                    wrong = wrong_in(edge, numerics, number % 10)
                except Exception as error:  # whatever it is, it is a defect to be printed
                    place = traceback.extract_tb(error.__traceback__)[-1]
                    wrong = [f"{type(error).__name__}: {error} ({place.filename}:{place.lineno})"]
                entry = {"number": number, "class": numerics, "wrong": wrong}
                print(json.dumps(entry), file=found, flush=True)


def _judged(numbers: range, seed: int, classes: Sequence[str]) -> Iterator[dict[str, object]]:
    """The same in processes of their own."""
    context = get_context("fork")
    first = numbers.start
    while first < numbers.stop:
        chunk = range(first, min(first + _CHUNK, numbers.stop))
        with tempfile.TemporaryDirectory() as folder:
            process = context.Process(target=_judge, args=(chunk, seed, classes, folder))
            process.start()
            process.join()
            lines = Path(folder, "found.jsonl").read_text().splitlines()
            yield from map(json.loads, lines)
            first = chunk.stop
            if process.exitcode:
                first = int(Path(folder, "at").read_text()) + 1
                yield {"number": first - 1, "died": process.exitcode}


def main(arguments: list[str] | None = None) -> int:
    """Run the examples; 0 if nothing differs beyond its class."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--examples", type=int, default=2000, help="random models")
    parser.add_argument("--first", type=int, default=0, help="number of the first")
    parser.add_argument("--seed", type=int, default=0, help="another seed makes other models")
    parser.add_argument("--numerics", default=",".join(NUMERICS), help="classes")
    chosen = parser.parse_args(arguments)
    counts: Counter[str] = Counter()
    numbers = range(chosen.first, chosen.first + chosen.examples)
    for entry in _judged(numbers, chosen.seed, chosen.numerics.split(",")):
        if "died" in entry:
            counts["died"] += 1
            print(f"{entry['number']}: the process died ({entry['died']})", flush=True)
        elif "refused" in entry:
            counts["refused"] += 1
        else:
            counts["judged"] += 1
            wrong = entry["wrong"]
            assert isinstance(wrong, list)
            if wrong:
                counts["wrong"] += 1
                print(f"{entry['number']} {entry['class']}:", *wrong[:3], sep="\n    ", flush=True)
    print(
        f"{counts['judged']} models × classes judged, {counts['wrong']} beyond their class, "
        f"{counts['refused']} not drawn, {counts['died']} killed the runtime"
    )
    return int(counts["wrong"] > 0)


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.exit(main())
