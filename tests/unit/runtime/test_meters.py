"""Meters of energy on a tree of files like the kernel's, and which of them are believed."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from eqsat_opt.errors import RuntimeFailed
from eqsat_opt.runtime.devices.meters import (
    EnergyMeter,
    PerfMeter,
    RaplMeter,
    find_meter,
    open_meter,
)
from eqsat_opt.runtime.devices.perf_events import open_counter

RANGE_UJ = 262_143_328_850


def domain(root: Path, folder: str, name: str, energy_uj: int) -> Path:
    place = root / folder
    place.mkdir(parents=True)
    (place / "name").write_text(f"{name}\n")
    (place / "max_energy_range_uj").write_text(f"{RANGE_UJ}\n")
    (place / "energy_uj").write_text(f"{energy_uj}\n")
    return place / "energy_uj"


def rising(*steps: tuple[Path, int]) -> Callable[[float], float]:
    """A busy loop during which counters come to stand where they are said to."""

    def busy(seconds: float) -> float:
        for path, value in steps:
            path.write_text(f"{value}\n")
        return seconds

    return busy


def test_packages_are_added_and_their_parts_and_copies_are_not(tmp_path: Path) -> None:
    first = domain(tmp_path, "intel-rapl:0", "package-0", 100)
    second = domain(tmp_path, "intel-rapl:1", "package-1", 1000)
    others = [
        domain(tmp_path, "intel-rapl:0:0", "core", 0),
        domain(tmp_path, "intel-rapl-mmio:0", "package-0", 0),
        domain(tmp_path, "intel-rapl:2", "psys", 0),
    ]
    meter = RaplMeter(tmp_path)
    assert (meter.name, meter.scope, meter.read()) == ("RAPL", "2 processor packages", 0.0)
    rising((first, 150), (second, 1007), *((path, 10**6) for path in others))(0.0)
    assert meter.read() == 57.0


def test_a_counter_that_begins_anew(tmp_path: Path) -> None:
    counter = domain(tmp_path, "intel-rapl:0", "package-0", RANGE_UJ - 10)
    meter = RaplMeter(tmp_path)
    assert meter.scope == "1 processor package"
    rising((counter, 5))(0.0)
    assert meter.read() == 15.0
    rising((counter, 8))(0.0)
    assert meter.read() == 18.0


@pytest.mark.parametrize("power_w", [0.5, 42.0, 5000.0])
def test_a_meter_that_rises_plausibly_counts(tmp_path: Path, power_w: float) -> None:
    counter = domain(tmp_path, "intel-rapl:0", "package-0", 7)
    busy, rest = rising((counter, 7 + round(3e5 * power_w))), rising((counter, 7))
    found = find_meter([partial(RaplMeter, tmp_path)], busy, rest)
    assert found.meter is not None
    assert found.tried == ()
    assert found.idle_w == 0.0


@pytest.mark.parametrize("power_w", [0.0, 0.4, 5100.0])
def test_a_meter_that_does_not_is_told_and_not_used(tmp_path: Path, power_w: float) -> None:
    counter = domain(tmp_path, "intel-rapl:0", "package-0", 7)
    found = find_meter([partial(RaplMeter, tmp_path)], rising((counter, 7 + round(3e5 * power_w))))
    assert found.meter is None
    (why,) = found.tried
    assert "W of a busy processor, which cannot be" in why


def test_what_is_not_there_or_holds_no_count(tmp_path: Path) -> None:
    with pytest.raises(RuntimeFailed, match="No such file"):
        RaplMeter(tmp_path / "none")
    domain(tmp_path, "intel-rapl:0", "psys", 1)
    with pytest.raises(RuntimeFailed, match="no domain of a processor package"):
        RaplMeter(tmp_path)
    counter = domain(tmp_path, "intel-rapl:1", "package-0", 1)
    meter = RaplMeter(tmp_path)
    counter.write_text("-3\n")
    with pytest.raises(RuntimeFailed, match="holds no count"):
        meter.read()
    counter.unlink()  # as for a user who may not read it, whom tests of the superuser cannot be
    found = find_meter([partial(RaplMeter, tmp_path)])
    assert found.meter is None
    assert "energy_uj: No such file" in found.tried[0]


def test_the_next_one_is_tried(tmp_path: Path) -> None:
    counter = domain(tmp_path, "intel-rapl:0", "package-0", 0)
    openers = [partial(RaplMeter, tmp_path / "none"), partial(RaplMeter, tmp_path)]
    found = find_meter(openers, rising((counter, 10**7)))
    assert found.meter is not None
    assert len(found.tried) == 1


def test_power_at_rest_is_told(tmp_path: Path) -> None:
    counter = domain(tmp_path, "intel-rapl:0", "package-0", 0)
    rest, busy = rising((counter, 10**6)), rising((counter, 10**7))
    found = find_meter([partial(RaplMeter, tmp_path)], busy, rest)
    assert found.idle_w == pytest.approx(10.0)


def test_another_process_opens_what_was_found(tmp_path: Path) -> None:
    counter = domain(tmp_path, "intel-rapl:0", "package-0", 3)
    meter = open_meter(RaplMeter(tmp_path).place)
    rising((counter, 10))(0.0)
    assert (meter.name, meter.read()) == ("RAPL", 7.0)


PERF = {
    "type": "21",
    "cpumask": "0,28",
    "events/energy-pkg": "event=0x02",
    "events/energy-pkg.scale": "2.3283064365386962890625e-10",
    "events/energy-pkg.unit": "Joules",
}


def perf(root: Path, **changes: str) -> Path:
    """The folder of an event as the kernel describes it."""
    (root / "power" / "events").mkdir(parents=True)
    for name, text in {**PERF, **changes}.items():
        (root / "power" / name).write_text(f"{text}\n")
    return root


def test_perf_counts_every_package(tmp_path: Path) -> None:
    asked: list[tuple[int, int, int]] = []
    counts = {0: 0, 28: 1 << 32}

    def opened(kind: int, event: int, cpu: int) -> Callable[[], int]:
        asked.append((kind, event, cpu))
        return lambda: counts[cpu]

    meter = PerfMeter(perf(tmp_path), opened)
    assert asked == [(21, 2, 0), (21, 2, 28)]
    assert (meter.name, meter.scope) == ("RAPL, by perf", "2 processor packages")
    before = meter.read()
    counts[0] += 1 << 33
    assert meter.read() - before == pytest.approx(2e6)  # 2^-32 J each
    assert meter.resolution_uj == pytest.approx(2.0**-32 * 1e6)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("events/energy-pkg", "event=0x02,umask=1"),
        ("events/energy-pkg.scale", "nan"),
        ("events/energy-pkg.unit", "Watts"),
        ("cpumask", "0-3"),
        ("cpumask", ""),
    ],
)
def test_an_event_of_another_kind(tmp_path: Path, name: str, text: str) -> None:
    with pytest.raises(RuntimeFailed, match="described in a way that is not known"):
        PerfMeter(perf(tmp_path, **{name: text}), lambda *_: lambda: 0)


def test_perf_comes_after_powercap_and_is_believed_as_little(tmp_path: Path) -> None:
    openers: list[Callable[[], EnergyMeter]] = [
        partial(RaplMeter, tmp_path / "none"),
        partial(PerfMeter, perf(tmp_path), lambda *_: lambda: 0),
    ]
    found = find_meter(openers, rising(), rising())
    assert found.meter is None
    assert "No such file" in found.tried[0]
    assert found.tried[1] == "RAPL, by perf told 0 W of a busy processor, which cannot be"


def test_a_counter_of_the_kernel_that_nobody_has() -> None:
    with pytest.raises(RuntimeFailed, match="perf "):
        open_counter(1 << 31, 0, 0)
