"""Recorded devices: prices of another machine, with a profile behind them; and the list of all."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from eqsat_opt.cli import main
from eqsat_opt.cost.export import read_export, write_export
from eqsat_opt.cost.metrics import ENERGY, LAUNCH_US, TIME
from eqsat_opt.cost.pricing import Pricer
from eqsat_opt.cost.profile import ProfileRow
from eqsat_opt.cost.recorded import RecordedPricer, load_recorded, recorded_device
from eqsat_opt.cost.roofline import BANDWIDTH_PROBE, PEAK_PROBE
from eqsat_opt.errors import OptionError
from eqsat_opt.ir.graph.kernel import Kernel
from eqsat_opt.runtime.devices.energy import EnergyModel
from eqsat_opt.runtime.devices.figures import Figure
from eqsat_opt.runtime.devices.profile import load_profile, profile_text
from eqsat_opt.runtime.measure import Measurement
from tests.unit.cost.test_analytic import conv

THERE = "cpu-000000000000"
XEON = load_profile("xeon")
CONV = conv((1, 8, 6, 6), (16, 8, 3, 3))


def row(kernel: Kernel, time_us: float = 7.0, at: str = "2026-05-03", **changes: Any) -> ProfileRow:
    """A kernel as another machine measured it."""
    pricer = Pricer(None, 1)
    key = replace(pricer.key_of(pricer.usual(kernel)), **{"device": THERE, **changes})
    measured = Measurement(time_us, time_us, time_us, 3, 0, "cpu", time_us, time_us)
    return ProfileRow(key, measured, f"{at}T00:00:00+00:00")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EQSAT_OPT_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    write_export("there.json", [row(CONV), row(PEAK_PROBE, 100.0), row(BANDWIDTH_PROBE, 10.0)])
    (tmp_path / "slow.json").write_text(profile_text(replace(XEON, name="slow")))
    return tmp_path


def told(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """What a command prints."""
    assert main(arguments) == 0
    return capsys.readouterr().out


# ** prices **


def test_what_was_recorded_and_what_was_not() -> None:
    pricer = RecordedPricer(recorded_device([row(CONV)], XEON, "there"))
    known = pricer.price(pricer.usual(CONV))
    assert (known.source, known.time_us) == ("recorded", 7.0 + LAUNCH_US)
    bigger = conv((1, 8, 60, 60), (16, 8, 3, 3))
    bound = pricer.price(pricer.usual(bigger))
    assert bound.source == "bound"
    flops, size_bytes = 2 * 8 * 9 * 16 * 3600, 4 * (8 * 3600 + 16 * 8 * 9 + 16 * 3600)
    assert bound.time_us == pytest.approx(max(flops / 4.84e6, size_bytes / 140.8e3) + LAUNCH_US)
    assert pricer.metrics == (TIME,)
    assert pricer.is_known(pricer.usual(bigger))


def test_bounds_are_those_of_the_machine_where_its_probes_are_recorded() -> None:
    rows = [row(PEAK_PROBE, 100.0), row(BANDWIDTH_PROBE, 10.0)]
    device = recorded_device(rows, XEON, "there")
    assert device.profile.peak_tflops["fp32"].value == pytest.approx(
        1.5 * 2 * 256 * 512 * 512 / 100e6
    )
    assert device.profile.bandwidth_gb_s.value == pytest.approx(1.5 * 2 * 4 * 32 * 1024 / 10e3)
    assert "derived: 1.5 times" in device.profile.bandwidth_gb_s.source
    assert device.profile.units.value == 1
    assert recorded_device(rows[:1], XEON, "there").profile.peak_tflops == XEON.peak_tflops


def test_energy_follows_from_recorded_times() -> None:
    energy = EnergyModel(Figure(50.0, "x"), {"fp32": Figure(8.0, "y")}, Figure(40.0, "x"))
    pricer = RecordedPricer(recorded_device([row(CONV)], XEON, "there"), energy)
    quote = pricer.price(pricer.usual(CONV))
    flops, size_bytes = 2 * 8 * 9 * 16 * 36, 4 * (8 * 36 + 16 * 8 * 9 + 16 * 36)
    assert quote.metrics[ENERGY] == pytest.approx(
        50 * quote.time_us + 8e-6 * flops + 40e-6 * size_bytes
    )
    assert pricer.energy_text == "estimated, from x; y"


def test_the_version_that_measured_last_counts() -> None:
    rows = [
        row(CONV, 5.0, "2026-05-03", backend="onnxruntime 1.30.0"),
        row(PEAK_PROBE, 9.0, "2026-05-01", backend="onnxruntime 1.31.0"),
        row(CONV, 8.0, "2026-05-04", backend="onnxruntime 1.31.0"),
        row(CONV, 1.0, "2026-05-05", protocol=0),
        row(CONV, 2.0, "2026-05-05", precision="tf32"),
    ]
    device = recorded_device(rows, XEON, "there")
    assert device.versions == {"onnxruntime 1.31.0": 2}
    pricer = RecordedPricer(device)
    assert pricer.price(pricer.usual(CONV)).time_us == 8.0 + LAUNCH_US


@pytest.mark.parametrize(
    ("rows", "choice", "message"),
    [
        ([], {}, "no price of a kernel that could be used here"),
        ([row(CONV, protocol=0)], {}, "no price of a kernel that could be used here"),
        ([replace(row(CONV), measurement=None)], {}, "no price of a kernel"),
        ([row(CONV), row(CONV, device="gpu-1")], {}, r"cpu-000000000000 \(1 kernels\), gpu-1"),
        ([row(CONV), row(CONV, threads=4)], {}, "of several numbers of threads: 1 .*--threads"),
        ([row(CONV)], {"machine": "gpu"}, "nothing of --machine gpu; it has cpu-000000000000"),
        ([row(CONV)], {"threads": 2}, "nothing of --threads 2"),
        ([row(CONV, -1.0)], {}, "a kernel took -1 µs"),
    ],
)
def test_which_prices_are_meant(
    rows: list[ProfileRow], choice: dict[str, Any], message: str
) -> None:
    with pytest.raises(OptionError, match=message):
        recorded_device(rows, XEON, "there", **choice)


def test_one_of_several_machines() -> None:
    rows = [row(CONV), row(CONV, 3.0, device="gpu-1", threads=4), row(CONV, device="gpu-1")]
    device = recorded_device(rows, XEON, "there", machine="gpu-1", threads=4)
    assert (device.machine, device.threads, len(device.rows)) == ("gpu-1", 4, 1)


# ** from the command line **


def test_prices_of_another_machine_become_a_target(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = told(capsys, "devices", "import", "there.json")
    path = folder / "cache" / "devices" / "there.json"
    assert text.endswith(f"3 of onnxruntime {version()}; written to {path}\n")
    text = told(capsys, "devices", "list")
    assert [line.split()[:2] for line in text.splitlines()[1:2]] == [["cpu", "here"]]
    assert "there      recorded  cpu-000000000000, 1 thread, recorded until 2026-05-03" in text
    text = told(capsys, "devices", "show", "there", "--json", "there.facts.json")
    assert "prices of cpu-000000000000 with --threads 1: 3 kernels of onnxruntime" in text
    assert "TFLOP/s  derived: 1.5 times that of a kernel measured by onnxruntime" in text
    facts = json.loads((folder / "there.facts.json").read_text())
    assert facts["prices"]["kernels"] == {f"onnxruntime {version()}": 3}
    arguments = [
        "zoo:weight_chain@tiny",
        "--target",
        "there",
        "--effort",
        "quick",
        "--budget",
        "20",
    ]
    text = told(capsys, "optimize", *arguments, "-v", "-o", "x.onnx", "--json", "x.json")
    report = json.loads((folder / "x.json").read_text())
    bounds = report["prices"]["bound"]
    assert set(report["prices"]) == {"bound"}
    assert f"{bounds} of the {bounds} prices used here are only bounds" in text
    (note,) = (one for one in report["notes"] if "cpu-000000000000" in one)
    assert note.startswith(f"{bounds} of {bounds} kernels have no price of {THERE}, only bounds")
    assert "profile export FILE, and here with eqsat-opt devices import FILE --name there" in note
    # With all of them recorded, none is a bound.
    explained = told(capsys, "explain", *arguments, "--json", "e.json", "--kernels")
    assert "bound" in explained


def version() -> str:
    import onnxruntime

    return str(onnxruntime.__version__)


def test_answers_of_recorded_prices_alone(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What a machine measured for a model is enough to choose for it elsewhere."""
    model = "zoo:weight_chain@tiny"
    here = [model, "--threads", "1", "--store", "s", "--budget", "600", "--rules", "none"]
    told(capsys, "optimize", *here, "-o", "x.onnx", "--no-race")
    told(capsys, "profile", "export", "mine.json", "--store", "s")
    rows = [replace(one, key=replace(one.key, device=THERE)) for one in read_export("mine.json")]
    write_export("there.json", rows)
    told(capsys, "devices", "import", "there.json", "--name", "vm.2")
    text = told(
        capsys, "optimize", model, "-o", "y.onnx", "--target", "vm.2", "--effort", "quick",
        "--budget", "600", "--rules", "none", "--plan", "y.json", "--json", "r.json",
        "-v",
    )  # fmt: skip
    report = json.loads((folder / "r.json").read_text())
    planned = report["planned"]
    assert planned["bounds"] == 0 < planned["prices"]
    assert planned["predicted_us"] > report["metrics"]["after"]["time_us"]
    assert f"µs; 0 of {planned['prices']} prices are bounds" in " ".join(text.split())
    assert "for vm.2, onnxruntime" in told(capsys, "plan", "show", "y.json")
    assert "recorded on vm.2; all prices used here are recorded" in text
    assert "--name vm.2" not in text


def test_a_profile_becomes_a_target(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "16 figures, 7 of them assumed; written to" in told(
        capsys, "devices", "import", "slow.json"
    )
    assert load_profile("slow") == replace(XEON, name="slow")
    assert load_recorded("slow") is None
    again = told(capsys, "devices", "import", "slow.json")
    assert "takes the place of an earlier one in" in again
    told(capsys, "devices", "import", "there.json", "--profile", "slow", "--name", "two")
    recorded = load_recorded("two")
    assert recorded is not None
    # A device that was imported can be imported under another name.
    path = str(folder / "cache" / "devices" / "two.json")
    told(capsys, "devices", "import", path, "--name", "three")
    assert load_recorded("three") == replace(
        recorded, profile=replace(recorded.profile, name="three")
    )


def broken(text: str) -> Callable[[dict[str, Any]], str]:
    return lambda _data: text


def changed(*keys: Any, to: Any) -> Callable[[dict[str, Any]], str]:
    def change(data: dict[str, Any]) -> str:
        place: Any = data
        for key in keys[:-1]:
            place = place[key]
        place[keys[-1]] = to
        return json.dumps(data)

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (broken(""), "is not JSON"),
        (broken("[]"), "holds no JSON object, so it is not a device"),
        (changed("format", to="eqsat-opt plan 1"), "neither a device profile nor prices"),
        (changed("version", to=9), "is not an export of a profile store"),
        (changed("rows", 0, "threads", to=1 << 80), "is not an export of a profile store"),
        (changed("rows", 0, "threads", to="one"), "got `str` - at `$.threads`"),
        (changed("rows", 0, "measurement", "time_us", to=0), "a kernel took 0 µs"),
        (changed("rows", 0, "measurement", "power_w", to="x"), "got `str` - at `$.power_w`"),
        (changed("rows", 0, "measured_at", to="today"), "Invalid isoformat"),
        (changed("rows", to=[]), "no price of a kernel"),
    ],
)
def test_a_file_that_is_no_device(
    folder: Path,
    change: Callable[[dict[str, Any]], str],
    message: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    bad = folder / "bad.json"
    bad.write_text(change(json.loads((folder / "there.json").read_text())))
    assert main(["devices", "import", "bad.json"]) == 1
    text = capsys.readouterr().err
    assert text.count("\n") == 1
    assert message in text
    assert not (folder / "cache" / "devices").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["import", "none.json"], "cannot read none.json"),
        (["import", "there.json", "--name", "../x"], "a device cannot be called '../x'"),
        (["import", "there.json", "--name", ""], "a device cannot be called ''"),
        (["import", "there.json", "--name", "cpu"], "'cpu' is another device already"),
        (["import", "there.json", "--name", "h200"], "'h200' is another device already"),
        (["import", "there.json", "--profile", "cray"], "unknown device 'cray'"),
        (["import", "slow.json", "--threads", "1"], "are for exports; slow.json is none"),
        (["show", "cray"], "unknown device 'cray'; there are a100"),
        (["show", "there.json"], "has the format"),
        (["show"], "Missing argument"),
        (["shelve"], "No such command"),
        (["--json", "x.json", "list"], "options of devices list stand behind its name"),
        (["list", "--json", "none/x.json"], "does not exist"),
    ],
)
def test_what_devices_refuses(
    folder: Path, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["devices", *arguments]) == 1
    text = capsys.readouterr().err
    assert text.count("\n") == 1
    assert message in text
    assert not (folder / "cache" / "devices").exists()


def test_a_folder_that_cannot_be_written(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "cache").mkdir()
    (folder / "cache" / "devices").write_text("a file where the folder belongs")
    assert main(["devices", "import", "slow.json"]) == 1
    text = capsys.readouterr().err
    assert text.count("\n") == 1
    assert "cannot keep devices in" in text
    assert main(["devices", "list"]) == 0


def test_a_device_that_was_damaged_later(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told(capsys, "devices", "import", "there.json")
    path = folder / "cache" / "devices" / "there.json"
    path.write_text(path.read_text().replace('"threads":1', '"threads":"1"'))
    assert "damaged" in told(capsys, "devices", "list")
    assert main(["optimize", "zoo:sru@tiny", "-o", "x.onnx", "--target", "there"]) == 1
    text = capsys.readouterr().err
    assert text.count("\n") == 1
    assert (
        "holds what is no price: the key of a row cannot be read: Expected `int`, got `str`" in text
    )
