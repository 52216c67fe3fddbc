"""On a GPU: what `benchmarks.gpu correctness` looks at, for two small models.

Each kernel by each way, each use of an operator, and plans on one and two streams, in memory that
held NaN: against double precision or the interpreter, captured and launch by launch, 20 runs.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.gpu import correctness
from benchmarks.gpu.bench import GpuBench
from benchmarks.gpu.preparing import prepare
from benchmarks.gpu.unit import Task
from eqsat_opt.errors import RuntimeFailed
from eqsat_opt.runtime.devices.cuda import CudaDevice
from eqsat_opt.runtime.devices.profile import load_profile, profile_names

MODELS = "squeezenet", "sru"


def target() -> str:
    """The device that is here; the test is skipped where it is none that plans are made for."""
    why = "no profile describes a GPU"
    for name in profile_names():
        profile = load_profile(name)
        if profile.description is not None:
            try:
                CudaDevice(profile)
            except RuntimeFailed as error:
                why = str(error)
            else:
                return name
    pytest.skip(why)


@pytest.mark.device
def test_everything_computes_what_it_should(tmp_path: Path) -> None:
    prepare(tmp_path, MODELS, target(), scales=("tiny",))
    bench, faults = GpuBench(), {}
    for unit in correctness.units(Task(tmp_path)):
        found = correctness.run(unit, bench)
        if not (found["is_good"] and found.get("is_eager_equal", True)):
            faults[unit.name] = found
    assert not faults
