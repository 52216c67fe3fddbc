"""Energy of kernels and of runs: by a meter, by a model of the user's, and what is refused."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from eqsat_opt.cli import main
from eqsat_opt.common.deadline import Deadline
from eqsat_opt.common.text import amount_text
from eqsat_opt.cost.energy import MeteredEnergy, metered_energy
from eqsat_opt.cost.metrics import ENERGY, LAUNCH_US
from eqsat_opt.cost.pricing import Pricer
from eqsat_opt.cost.profile import ProfileKey
from eqsat_opt.cost.store import ProfileStore
from eqsat_opt.errors import OptionError, RuntimeFailed, StageError
from eqsat_opt.ir.onnx.exporter import export_model, model_proto
from eqsat_opt.lab.comparison.compare import prices_text
from eqsat_opt.lab.comparison.settings import CompareSettings
from eqsat_opt.lab.testing.graphs import GraphMaker
from eqsat_opt.racing.race_apart import Entrant, hold_race, race_here
from eqsat_opt.runtime.backends.sandbox import packed
from eqsat_opt.runtime.backends.tuned_file import Execution
from eqsat_opt.runtime.devices import meters
from eqsat_opt.runtime.devices.energy import EnergyModel, load_energy_model
from eqsat_opt.runtime.devices.figures import Figure
from eqsat_opt.runtime.devices.meters import FoundMeter, RaplMeter
from eqsat_opt.runtime.devices.profile import load_profile, profile_text
from eqsat_opt.runtime.measure import Measurement, measure, metered
from tests.unit.cost.test_analytic import conv
from tests.unit.machines import Machine, race_prepared
from tests.unit.runtime.test_meters import domain

MODEL: dict[str, Any] = {
    "static_w": 20,
    "pj_per_flop": {"fp32": 8.0},
    "pj_per_byte": 40.0,
    "source": "bench of 3 May",
}
RANGE_UJ = 30_000_000
"""At 40 W a counter begins anew every 0.75 s, so in every test that takes longer."""


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A counter of 40 W that is the only one of this machine; it wraps around."""
    root = tmp_path / "powercap"
    counter = domain(root, "intel-rapl:0", "package-0", 0)
    (counter.parent / "max_energy_range_uj").write_text(f"{RANGE_UJ}")
    stop, begin = threading.Event(), time.perf_counter()

    def count() -> None:
        while not stop.is_set():
            used_uj = round(40e6 * (time.perf_counter() - begin)) % RANGE_UJ
            new = counter.with_name("new")  # nobody may read half a number
            new.write_text(f"{used_uj}\n")
            new.replace(counter)
            time.sleep(0.002)

    thread = threading.Thread(target=count)
    thread.start()
    monkeypatch.setattr(meters, "_OPENERS", (partial(RaplMeter, root),))
    meters.found_meter.cache_clear()
    yield root
    stop.set()
    thread.join()
    meters.found_meter.cache_clear()


@pytest.fixture
def no_meter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(meters, "_OPENERS", (partial(RaplMeter, tmp_path / "none"),))
    meters.found_meter.cache_clear()
    yield
    meters.found_meter.cache_clear()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EQSAT_OPT_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.json").write_text(json.dumps(MODEL))
    return tmp_path


class FakeMeter:
    """Counts so many watts of a simulated clock; fails from a reading on, if one is given."""

    name, scope, place, resolution_uj = "fake", "a desk lamp", "none:", 1.0

    def __init__(self, machine: Machine, power_w: float, failing: float = float("inf")) -> None:
        self._machine, self._power_w, self._left = machine, power_w, failing

    def read(self) -> float:
        self._left -= 1
        if self._left < 0:
            raise RuntimeFailed("the lamp is broken")
        return self._power_w * self._machine.now_ns / 1e3


# ** one kernel **


def test_power_is_told_beside_the_time() -> None:
    machine = Machine()

    def call() -> None:
        machine.now_ns += 50_000

    meter = FakeMeter(machine, 30.0)
    with metered(meter.read):
        found = measure(call, threads=1, clock=machine)
    assert found.power_w == pytest.approx(30.0)
    assert found.time_us == pytest.approx(50.0)
    assert measure(call, threads=1, clock=machine).power_w is None
    assert Measurement.from_json(found.to_json()) == found
    with metered(FakeMeter(machine, 30.0, failing=1).read):
        assert measure(call, threads=1, clock=machine).power_w is None
    with metered(FakeMeter(machine, 0.0).read):
        assert measure(call, threads=1, clock=machine).power_w is None


def test_rows_without_a_power_are_as_before() -> None:
    plain = Measurement(1.0, 1.0, 1.0, 3, 0, "cpu", 1.0, 1.0)
    assert "power_w" not in plain.to_json()
    assert Measurement.from_json(plain.to_json()) == plain
    with pytest.raises(StageError, match=r"got `str` - at `\$.power_w`"):
        Measurement.from_json({**plain.to_json(), "power_w": "much"})


def test_a_pricer_with_a_meter_needs_powers(tmp_path: Path) -> None:
    machine = Machine()
    store = ProfileStore(tmp_path / "store")
    energy = MeteredEnergy(FakeMeter(machine, 30.0), floor_w=4.0)
    with store:
        pricer = Pricer(store, 1, energy=energy)
        assert pricer.energy_text == "measured by fake of a desk lamp"
        offer = pricer.usual(conv((1, 8, 6, 6), (16, 8, 3, 3)))
        bound = pricer.price(offer)
        assert bound.metrics[ENERGY] == pytest.approx(4.0 * bound.time_us)
        key: ProfileKey = pricer.key_of(offer)
        row = Measurement(9.0, 9.0, 9.0, 3, 0, "cpu", 9.0, 9.0)
        store.put_many({key: row})
        pricer.recall([offer])
        assert pricer.price(offer).is_bound  # of its time alone
        plain = Pricer(store, 1)
        plain.recall([offer])
        assert not plain.price(offer).is_bound
        with_power = Measurement(9.0, 9.0, 9.0, 3, 0, "cpu", 9.0, 9.0, power_w=25.0)
        store.put_many({key: with_power})
        pricer.recall([offer])
        quote = pricer.price(offer)
    assert quote.source == "measured"
    assert quote.metrics[ENERGY] == pytest.approx(25.0 * (9.0 + LAUNCH_US))


def test_kernels_are_measured_with_the_meter_of_this_machine(tree: Path) -> None:
    energy = metered_energy()
    assert energy.floor_w == pytest.approx(20.0, rel=0.5)  # half of what it draws at rest
    pricer = Pricer(None, 1, energy=energy)
    try:
        offer = pricer.usual(conv((1, 8, 6, 6), (16, 8, 3, 3)))
        pricer.measure([offer])
    finally:
        pricer.close()
    quote = pricer.price(offer)
    assert quote.source == "measured"
    assert quote.metrics[ENERGY] == pytest.approx(40.0 * quote.time_us, rel=0.5)


def test_without_a_meter_what_was_tried_is_told() -> None:
    with pytest.raises(OptionError, match=r"no meter counts here \(a; b\); give a model"):
        metered_energy(FoundMeter(None, ("a", "b")))


@pytest.mark.parametrize(
    ("value_uj", "text"), [(0.0, "0 µJ"), (999.0, "999 µJ"), (1010.0, "1.01 mJ"), (5e6, "5 J")]
)
def test_energies_as_they_read_best(value_uj: float, text: str) -> None:
    assert amount_text(value_uj, "µJ") == text


# ** a race **


def test_a_race_tells_the_energy_of_a_run() -> None:
    machine = Machine()
    runners = {"original": machine.session("original", 100.0), "fast": machine.session("fast", 50)}
    held = race_prepared(
        runners, "original", threads=1, clock=machine, meter=FakeMeter(machine, 30.0)
    )
    assert held.meter == "fake, a desk lamp"
    energies = [entry.energy_uj for entry in held.entries.values()]
    assert energies == [pytest.approx(3000.0), pytest.approx(1500.0)]


def test_races_of_tuned_forms_tell_it_too(tree: Path, tmp_path: Path) -> None:
    """In this process and in another one, which opens the meter that was found here."""
    g = GraphMaker()
    graph = g.graph(g("Relu", g.input("x", 4)))
    path = tmp_path / "relu.onnx"
    path.write_bytes(model_proto(export_model(graph)).SerializeToString())
    terms = {"threads": 1, "rounds": 1, "builds": 2, "time_limit_s": 0.1}
    feeds = {"x": np.zeros(4, np.float32)}
    one = Entrant(str(path), Execution("ort", 1))
    held, _ = hold_race({"it": one}, "it", feeds, None, deadline=Deadline.never(), **terms)
    assert held.meter.startswith("RAPL")
    blobs: list[Any] = []
    value = {
        "entrants": {"it": [str(path), asdict(one.execution), ()]},
        "original": "it",
        "feeds": {name: packed(fed, blobs) for name, fed in feeds.items()},
        "terms": terms,
    }
    place = f"powercap:{tree}"
    assert race_here({**value, "meter": place}, blobs)["meter"] == held.meter
    assert race_here({**value, "meter": f"{place}/none"}, blobs)["meter"] == ""
    assert race_here({**value, "meter": ""}, blobs)["meter"] == ""


@pytest.mark.parametrize("failing", [0, 1, 7])
def test_a_meter_that_fails_does_not_end_a_race(failing: int) -> None:
    machine = Machine()
    runners = {"original": machine.session("original", 100.0), "fast": machine.session("fast", 50)}
    meter = FakeMeter(machine, 30.0, failing)
    held = race_prepared(runners, "original", threads=1, clock=machine, meter=meter)
    assert (held.winner, held.meter) == ("fast", "")
    assert {entry.energy_uj for entry in held.entries.values()} == {None}


# ** from the command line **


def test_the_objective_by_a_meter(
    folder: Path, tree: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = "optimize zoo:weight_chain@tiny -o x.onnx --objective energy --json x.json"
    # Bounds of energy are enough here: nothing is measured but in the race.
    quick = ["--threads", "1", "--effort", "quick", "--budget", "20", "-v"]
    assert main([*command.split(), *quick]) == 0
    text = capsys.readouterr().out
    assert "measured by RAPL of 1 processor package" in text
    assert "measured energy (RAPL, 1 processor package)" in text
    report = json.loads((folder / "x.json").read_text())
    assert report["energy"] == "measured by RAPL of 1 processor package"
    before, after = (report["metrics"][side] for side in ("before", "after"))
    assert 0 < after["energy_uj"] <= before["energy_uj"]
    assert report["prices"] == {"bound": report["kernels"]["unmeasured"]}
    assert report["latency"]["result"]["energy_uj"] > 0


def test_the_meter_of_this_machine_is_shown(
    folder: Path, tree: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["devices", "show", "cpu"]) == 0
    assert "energy: RAPL of 1 processor package" in capsys.readouterr().out


def test_why_there_is_none_is_shown(
    folder: Path, no_meter: None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["devices", "show", "cpu"]) == 0
    assert "energy: no meter counts (" in capsys.readouterr().out


def test_bench_by_a_meter(folder: Path, tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pair = ["zoo:weight_chain@tiny", "zoo:weight_chain@tiny"]
    assert main(["bench", *pair, "--budget", "2", "--threads", "1", "--json", "b.json"]) == 0
    text = capsys.readouterr().out
    assert "energy of a run by RAPL, 1 processor package, other processes included" in text
    race = json.loads((folder / "b.json").read_text())["race"]
    for entry in race["entries"].values():
        assert entry["energy_uj"] > 0


def test_the_objective_by_a_model(
    folder: Path, no_meter: None, capsys: pytest.CaptureFixture[str]
) -> None:
    command = "zoo:weight_chain@tiny --objective energy --energy-model model.json --threads 1"
    arguments = [*command.split(), "--effort", "quick", "--budget", "20"]
    told = "estimated, from bench of 3 May"
    assert main(["optimize", *arguments, "-v", "-o", "x.onnx", "--json", "x.json"]) == 0
    text = capsys.readouterr().out
    assert text.count(told) == 2  # in the headline, and beside the figures
    assert json.loads((folder / "x.json").read_text())["energy"] == told
    assert main(["explain", *arguments]) == 0
    assert told in capsys.readouterr().out
    assert main(["explain", *arguments, "--stage", "problem"]) == 0
    text = capsys.readouterr().out
    assert "energy_uj" in text
    assert told in text


def test_a_comparison_by_the_model_of_a_profile(folder: Path) -> None:
    own = EnergyModel(Figure(50.0, "a"), {"fp32": Figure(8.0, "b")}, Figure(40.0, "a"))
    (folder / "own.json").write_text(profile_text(replace(load_profile("v100"), energy=own)))
    settings = CompareSettings(device="own.json", objective="energy")
    assert prices_text(settings, None) == "analytic v100 (energy estimated, from a; b)"
    assert prices_text(CompareSettings(device="v100"), None) == "analytic v100"


def test_the_objective_without_either(
    folder: Path, no_meter: None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["optimize", "zoo:sru@tiny", "-o", "x.onnx", "--limit", "energy<=5"]) == 1
    text = capsys.readouterr().err
    assert text.count("\n") == 1
    assert f"no meter counts here ({folder}/none: No such file or directory)" in text
    assert not (folder / "x.onnx").exists()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is not JSON"),
        ("[]", "holds no JSON object, so it is not an energy model"),
        ({"static_w": None}, "Expected `int | float`, got `null` - at `$.static_w`"),
        ({"static_w": -1}, "static_w of the energy model bad.json is -1, which no device has"),
        ({"static_w": {"float": "nan"}}, "got `object` - at `$.static_w`"),
        ({"pj_per_byte": 1e300}, "is 1e+300, which no device has"),
        ({"pj_per_byte": 10**400}, "is 10000000000000000000, which no device has"),
        ({"pj_per_byte": True}, "got `bool` - at `$.pj_per_byte`"),
        ({"pj_per_byte": "\ud800"}, "the energy model bad.json cannot be read"),
        ({"pj_per_flop": 8}, "Expected `object`, got `int` - at `$.pj_per_flop`"),
        ({"pj_per_flop": {}}, "names no precision"),
        ({"pj_per_flop": {"fp32": 0}}, "pj_per_flop.fp32 of the energy model bad.json is 0"),
        ({"pj_per_flop": {"fp32": 1, "a\nb": ""}}, "got `str` - at `$.pj_per_flop.a b`"),
        ({"pj_per_flop": {"fp16": 1}}, "knows no precision 'fp32'; it knows fp16"),
        ({"source": ""}, "does not say in a line where its figures are from"),
        ({"source": "a\nb"}, "does not say in a line where its figures are from"),
        (
            {"source": ...},
            "the energy model bad.json cannot be read: Object missing required field",
        ),
        ({"of_algorithm": 1}, "Expected `object`, got `int` - at `$.of_algorithm`"),
        ({"of_algorithm": {"gemm": 0}}, "of_algorithm.gemm of the energy model bad.json is 0"),
        ({"unit": "J"}, "bad.json has a field that is not known - at `$.unit`"),
        ({"a\nb": "J"}, "a field that is not known - at `$.a b`"),
    ],
)
@pytest.mark.parametrize("target", ["cpu", "h200"])
def test_a_model_that_cannot_be_used(
    folder: Path,
    text: str | dict[str, Any],
    message: str,
    target: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if isinstance(text, dict):
        changed = {key: one for key, one in {**MODEL, **text}.items() if one is not ...}
        text = json.dumps(changed)
    (folder / "bad.json").write_text(text)
    command = f"optimize zoo:sru@tiny -o x.onnx --energy-model bad.json --target {target}"
    assert main(command.split()) == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert message in error
    assert not (folder / "x.onnx").exists()


def test_a_model_that_is_not_there(folder: Path) -> None:
    with pytest.raises(OptionError, match="cannot read"):
        load_energy_model(folder / "none.json")


@pytest.mark.parametrize("option", ["-o", "--json", "--plan", "--tuned"])
def test_a_model_is_not_written_over(
    folder: Path, option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = (folder / "model.json").read_bytes()
    command = "optimize zoo:sru@tiny --energy-model model.json"
    assert main([*command.split(), option, "model.json"]) == 1
    assert "model.json is what is read; give another name" in capsys.readouterr().err
    assert (folder / "model.json").read_bytes() == before
