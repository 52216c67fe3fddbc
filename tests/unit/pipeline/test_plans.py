"""Plans as users meet them: made, shown, loaded and run; wrong input is told in one line."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import numpy_helper

import eqsat_opt
from eqsat_opt.cli.app import run
from eqsat_opt.cli.plan_plot import draw_timeline
from eqsat_opt.common.text import time_text
from eqsat_opt.errors import ModelError, OptionError, PlanError, RuntimeFailed
from eqsat_opt.pipeline.plans import describe_plan, differences, read_plan, write_plan

TEXT = """
<ir_version: 8, opset_import: ["": 17]>
net (float[N, 2, 4, 4] x) => (float[N, 4, 4, 4] y, float[N, 2, 4, 4] r) {
    a = Conv <kernel_shape = [1, 1]> (x, w)
    r = Relu(a)
    t = Tanh(x)
    y = Concat <axis = 1> (r, t)
}
"""


def net(seed: int = 0) -> onnx.ModelProto:
    model = onnx.parser.parse_model(TEXT)
    weight = np.random.default_rng(seed).standard_normal((2, 2, 1, 1)).astype(np.float32)
    model.graph.initializer.append(numpy_helper.from_array(weight, "w"))
    return model


def image(n: int = 2) -> np.ndarray[Any, Any]:
    return np.random.default_rng(7).standard_normal((n, 2, 4, 4)).astype(np.float32)


def expected(model: onnx.ModelProto, x: np.ndarray[Any, Any]) -> list[np.ndarray[Any, Any]]:
    return [np.asarray(one) for one in eqsat_opt.session(model, threads=1).run(None, {"x": x})]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a model, its inputs and two plans."""
    monkeypatch.chdir(tmp_path)
    onnx.save(net(), "net.onnx")
    np.savez("x.npz", x=image())
    for backend in ("numpy", "ort"):
        shapes = {"N": 2}
        plan = eqsat_opt.plan_model("net.onnx", backend=backend, shapes=shapes, streams=2)
        write_plan(f"{backend}.json", plan)
    return tmp_path


# ** from Python **


@pytest.mark.parametrize("backend", ["numpy", "ort"])
def test_a_plan_runs_like_its_model(here: Path, backend: str) -> None:
    executable = eqsat_opt.load_plan(f"{backend}.json", "net.onnx")
    assert (executable.input_names, executable.output_names) == (("x",), ("y", "r"))
    wanted = expected(net(), image())
    for _ in range(2):
        for got, want in zip(executable.run({"x": image()}), wanted, strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
    found = dict(zip("yr", executable.reference({"x": image()}), strict=True))
    assert differences(found, dict(zip("yr", wanted, strict=True))) == []
    call = executable.bind({"x": image()})
    call()
    call()


@pytest.mark.parametrize("backend", ["numpy", "ort"])
def test_what_does_nothing_stands_in_no_plan(backend: str) -> None:
    model = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["": 17]>
        net (float[3] x) => (float[3] y, float[3] z, float[3] v)
        { a = Relu(x) b = Identity(a) y = Neg(b) z = Identity(b) v = Identity(x) }
    """)
    plan = eqsat_opt.plan_model(model, backend=backend)
    x = np.array([1.0, -2.0, 3.0], np.float32)
    found = eqsat_opt.load_plan(plan, model).run({"x": x})
    for got, want in zip(found, expected(model, x), strict=True):
        np.testing.assert_array_equal(got, want)


def test_outputs_are_fresh(here: Path) -> None:
    executable = eqsat_opt.load_plan("numpy.json", net())
    first = executable.run({"x": image()})
    kept = [one.copy() for one in first]
    executable.run({"x": -image()})
    assert all(np.array_equal(a, b) for a, b in zip(first, kept, strict=True))


def test_weights_from_anywhere(here: Path) -> None:
    weights = {"w": numpy_helper.to_array(net().graph.initializer[0])}
    for model in ("net.onnx", Path("net.onnx"), net(), net().SerializeToString(), weights):
        eqsat_opt.load_plan("numpy.json", model).run({"x": image()})
    plan = read_plan("numpy.json")
    eqsat_opt.load_plan(plan, "net.onnx")


def test_wrong_feeds(here: Path) -> None:
    executable = eqsat_opt.load_plan("numpy.json", "net.onnx")
    with pytest.raises(RuntimeFailed, match="no value is given for input 'x'"):
        executable.run({})
    with pytest.raises(RuntimeFailed, match=r"float32\[2,2,4,4\] in this plan; float32\[3,2,4,4\]"):
        executable.run({"x": image(3)})
    with pytest.raises(RuntimeFailed, match="float64"):
        executable.run({"x": image().astype(np.float64)})
    with pytest.raises(RuntimeFailed, match="no input 'z'; it has x"):
        executable.run({"x": image(), "z": image()})


def test_arrays_as_files_hold_them(tmp_path: Path) -> None:
    """The other byte order, and bfloat16, of which .npz keeps two bytes."""
    text = """
    <ir_version: 8, opset_import: ["": 17]>
    net (bfloat16[3] b, float[2] f) => (bfloat16[3] c, float[2] g) {
        c = Add(b, b)
        g = Neg(f)
    }
    """
    model = onnx.parser.parse_model(text)
    two = np.array([2, 3, 4], ml_dtypes.bfloat16)
    np.savez(tmp_path / "x.npz", b=two, f=np.array([1, 2], ">f4"))
    runner = eqsat_opt.load_plan(eqsat_opt.plan_model(model, backend="numpy"), model)
    with np.load(tmp_path / "x.npz") as file:
        c, g = runner.run(dict(file))
    assert c.dtype == two.dtype
    assert c.tolist() == [4, 6, 8]
    assert g.tolist() == [-1, -2]


@pytest.mark.parametrize("backend", ["numpy", "ort"])
def test_an_input_with_a_value_of_its_own_is_a_weight(backend: str) -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 3, opset_import: ["": 9]> net (float[3] x, float[3] w) => (float[3] y) '
        "{ y = Mul(x, w) }"
    )
    weight = np.array([1, 2, 3], np.float32)
    model.graph.initializer.append(numpy_helper.from_array(weight, "w"))
    runner = eqsat_opt.load_plan(eqsat_opt.plan_model(model, backend=backend), model)
    assert runner.input_names == ("x",)
    assert runner.run({"x": np.ones(3, np.float32)})[0].tolist() == [1, 2, 3]


def test_options_of_a_plan() -> None:
    with pytest.raises(OptionError, match="no backend 'cray' runs plans; there are numpy, ort"):
        eqsat_opt.plan_model(net(), backend="cray", shapes={"N": 1})
    with pytest.raises(OptionError, match="unknown device 'cray'"):
        eqsat_opt.plan_model(net(), target="cray", shapes={"N": 1})
    with pytest.raises(OptionError, match="--input-shape N:SIZE"):
        eqsat_opt.plan_model(net())
    plan = eqsat_opt.plan_model(net(), shapes={"x": (3, 2, 4, 4)})
    assert plan.sizes == {"N": 3}


def test_a_plan_for_another_device_is_described_and_not_run(here: Path) -> None:
    plan = eqsat_opt.plan_model(net(), backend="numpy", shapes={"N": 2}, streams=2, target="h200")
    facts = describe_plan(plan)
    assert facts["analytic"]["profile"] == "h200"
    launches = [one["analytic_us"] for one in facts["launches"]]
    assert facts["analytic"]["sum_us"] == sum(launches)
    assert max(launches) < facts["analytic"]["makespan_us"] < sum(launches) + 10
    with pytest.raises(PlanError, match="for h200, which cannot run here"):
        eqsat_opt.load_plan(plan, net())


def test_differences_see_everything() -> None:
    wanted = {
        "f": np.array([1.0, -2.0, np.inf, np.nan], np.float32),
        "i": np.array([1, 2]),
        "none": np.zeros((0, 2), np.float32),
        "c": np.array([1 + 1j], np.complex64),
    }
    assert differences(wanted, wanted) == []
    near = {**wanted, "f": np.array([1.0001, -2.0, np.inf, np.nan], np.float32)}
    assert differences(near, wanted) == []
    for name, value in (
        ("f", np.array([1.1, -2.0, np.inf, np.nan], np.float32)),
        ("f", np.array([1.0, -2.0, -np.inf, np.nan], np.float32)),
        ("f", np.array([1.0, -2.0, np.inf, 0.0], np.float32)),
        ("f", np.array([np.nan, -2.0, np.inf, np.nan], np.float32)),
        ("i", np.array([1, 3])),
        ("c", np.array([1 + 2j], np.complex64)),
    ):
        (text,) = differences({**wanted, name: value}, wanted)
        assert f"output {name!r} differs" in text


# ** what needs not be there **


def test_running_a_plan_needs_little(here: Path) -> None:
    code = (
        "import sys\n"
        "barred = ('egglog', 'ortools', 'rustworkx', 'platformdirs', 'onnxruntime', 'onnx',\n"
        "          'onnx_ir', 'rich', 'typer', 'eqsat_opt.rules', 'eqsat_opt.egraph')\n"
        "sys.modules.update(dict.fromkeys(barred))  # importing one of them fails\n"
        "import numpy as np, eqsat_opt\n"
        "plan = eqsat_opt.load_plan('numpy.json', 'net.onnx')\n"
        "y, r = plan.run({'x': np.load('x.npz')['x']})\n"
        "np.save('y.npy', y)\n"
        "try:\n"
        "    eqsat_opt.load_plan('ort.json', 'net.onnx')\n"
        "except eqsat_opt.errors.PlanError as error:\n"
        "    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == (
        "the backend 'ort' needs 'onnx', which is not installed; run pip install onnx\n"
    )
    np.testing.assert_allclose(np.load("y.npy"), expected(net(), image())[0], atol=1e-6)


# ** from the command line **


def test_make_show_and_run(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make = ["plan", "make", "net.onnx", "-o", "p.json", "--input-shape", "N:2"]
    assert run([*make, "--backend", "numpy", "--streams", "2"]) == 0
    assert Path("p.json").read_text() == Path("numpy.json").read_text()
    assert run(["plan", "show", "p.json", "--json", "facts.json"]) == 0
    shown = capsys.readouterr().out
    assert "3 kernels on 2 streams, 1 event, 2 views" in shown
    assert "analytic, by the profile xeon, not measured" in shown
    facts = json.loads(Path("facts.json").read_text())
    assert [one["backend"] for one in facts["launches"]] == ["numpy"] * 3
    assert facts["inputs"] == {"x": "float32[2,2,4,4]"}
    assert run(["run", "p.json", "--model", "net.onnx", "--inputs", "x.npz",
                "--outputs", "y.npz", "--check"]) == 0  # fmt: skip
    assert "agree with the definition" in capsys.readouterr().out
    with np.load("y.npz") as found:
        assert sorted(found.files) == ["r", "y"]
        np.testing.assert_allclose(found["y"], expected(net(), image())[0], rtol=1e-5, atol=1e-6)


def test_models_of_the_zoo_have_names(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plan", "make", "zoo:weight_chain@tiny", "-o", "z.json"]) == 0
    plan = read_plan("z.json")
    (port,) = plan.inputs
    _arrays("z.npz", **{port.name: np.ones(plan.buffer_of[port.buffer].dims, np.float32)})
    given = ["--model", "zoo:weight_chain@tiny", "--inputs", "z.npz", "--outputs", "out.npz"]
    assert run(["run", "z.json", *given, "--check"]) == 0
    assert run(["plan", "make", "zoo:none", "-o", "z.json"]) == 1
    assert "none" in capsys.readouterr().err


COLUMNS = "launch kernel backend stream predicted writes offset"


def test_what_show_prints(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plan", "show", "numpy.json"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert " ".join(lines[0].split()) == COLUMNS
    first, total = lines[1].split(), lines[4].split()
    plan, facts = read_plan("numpy.json"), describe_plan(read_plan("numpy.json"))
    assert first[2] == "numpy"
    assert total[:3] == ["total", "3", "kernels"]
    assert total[3:] == [
        "2",
        *time_text(facts["analytic"]["sum_us"]).split(),
        str(plan.arena_bytes),
    ]
    begins = [one["begin_us"] for one in facts["launches"]]
    ends = [one["begin_us"] + one["analytic_us"] for one in facts["launches"]]
    assert facts["analytic"]["makespan_us"] >= max(ends)
    for launch, begin_us in zip(facts["launches"], begins, strict=True):
        for event in launch["waits"]:
            (before,) = (i for i, one in enumerate(facts["launches"]) if event in one["records"])
            assert begin_us >= ends[before]


def test_the_timeline_of_a_plan(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib", reason="needs matplotlib, of the extra 'plot'")
    for name in ("numpy", "ort"):
        assert run(["plan", "show", f"{name}.json", "--plot", f"{name}.svg"]) == 0
        assert b"<svg" in Path(f"{name}.svg").read_bytes()
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> no (float[2] x) => (float[2] y) {y = Relu(x)}'
    )
    onnx.save(model, "no.onnx")
    assert run(["plan", "make", "no.onnx", "-o", "$x$.json", "--backend", "numpy"]) == 0
    assert run(["plan", "show", "$x$.json", "--plot", "no.png"]) == 0
    assert Path("no.png").read_bytes().startswith(b"\x89PNG")
    nothing = {**describe_plan(read_plan("ort.json")), "launches": []}
    draw_timeline(nothing, "nothing.svg", "no launch at all")
    assert b"<svg" in Path("nothing.svg").read_bytes()


def edited(change: Callable[[dict[str, Any]], object], source: str = "numpy.json") -> str:
    value = json.loads(Path(source).read_text())
    change(value)
    Path("edited.json").write_text(json.dumps(value))
    return "edited.json"


def colliding(plan: dict[str, Any]) -> None:
    """A result lies where its operand does."""
    buffers = {buffer["name"]: buffer for buffer in plan["buffers"]}
    buffers["a"]["offset"] = buffers["y"].get("offset", 0)


_BAD: dict[str, tuple[Callable[[], list[str]], str]] = {
    "no plan": (lambda: ["none.json", "net.onnx", "x.npz"], "cannot read none.json"),
    "no JSON": (lambda: ["net.onnx", "net.onnx", "x.npz"], "net.onnx is not JSON"),
    "another format": (
        lambda: [edited(lambda p: p.update(format="eqsat-opt plan 9")), "net.onnx", "x.npz"],
        "'eqsat-opt plan 1' is what can be read here",
    ),
    "a field too many": (
        lambda: [edited(lambda p: p.update(colour=1)), "net.onnx", "x.npz"],
        "'colour'",
    ),
    "a plan with a hazard": (
        lambda: [edited(colliding), "net.onnx", "x.npz"],
        "'r' uses bytes 0 to 127 of the arena for two things",
    ),
    "results side by side in one place": (
        lambda: [
            edited(lambda p: [one.update(offset=0) for one in p["buffers"] if one["name"] == "t"]),
            "net.onnx",
            "x.npz",
        ],
        "nothing orders 'r' and 't', which both use bytes 0 to 127 of the arena",
    ),
    "an arena too small": (
        lambda: [edited(lambda p: p.update(arena_bytes=8)), "net.onnx", "x.npz"],
        "of 8",
    ),
    "an unknown operator": (
        lambda: [
            edited(lambda p: p["launches"][0]["body"]["steps"][0].update(op="Magic")),
            "net.onnx",
            "x.npz",
        ],
        "unknown operator 'Magic'",
    ),
    "an ill typed body": (
        lambda: [
            edited(
                lambda p: [
                    one["body"]["steps"][0]["attrs"].update(group=5)
                    for one in p["launches"]
                    if one["body"]["steps"][0]["op"] == "Conv"
                ]
            ),
            "net.onnx",
            "x.npz",
        ],
        "is not well typed",
    ),
    "an unknown backend": (
        lambda: [
            edited(lambda p: p["launches"][0].update(backend="cray")),
            "net.onnx",
            "x.npz",
        ],
        "no backend 'cray' runs plans",
    ),
    "another version of a backend": (
        lambda: [
            edited(lambda p: p["versions"].update(numpy="numpy 1.0")),
            "net.onnx",
            "x.npz",
        ],
        "made with numpy 1.0 as numpy",
    ),
    "no version of a backend": (
        lambda: [edited(lambda p: p.update(versions={})), "net.onnx", "x.npz"],
        "made with no version as numpy",
    ),
    "an unknown algorithm": (
        lambda: [
            edited(lambda p: p["launches"][0].update(algorithm="fft"), "ort.json"),
            "net.onnx",
            "x.npz",
        ],
        "ort has no algorithm 'fft'",
    ),
    "another device": (
        lambda: [edited(lambda p: p.update(target="h200")), "net.onnx", "x.npz"],
        "for h200, which cannot run here",
    ),
    "other weights": (
        lambda: ["numpy.json", _saved("other.onnx", net(1)), "x.npz"],
        "the weight 'w' of the model is another one",
    ),
    "no weights": (lambda: ["numpy.json", _saved("none.onnx", _bare()), "x.npz"], "no weight 'w'"),
    "no model": (lambda: ["numpy.json", "x.npz", "x.npz"], "not an ONNX model"),
    "no inputs": (lambda: ["numpy.json", "net.onnx", "none.npz"], "cannot read none.npz"),
    "no archive": (
        lambda: ["numpy.json", "net.onnx", "net.onnx"],
        "net.onnx is no .npz file of numbers\n",
    ),
    "other sizes": (
        lambda: ["numpy.json", "net.onnx", _arrays("big.npz", x=image(3))],
        "a plan is made for fixed types and sizes",
    ),
    "objects": (
        lambda: ["numpy.json", "net.onnx", _arrays("o.npz", x=np.array([None]))],
        "is no .npz file",
    ),
    "a single array": (
        lambda: ["numpy.json", "net.onnx", _array("one.npy")],
        "holds one array without a name",
    ),
}


def _saved(path: str, model: onnx.ModelProto) -> str:
    onnx.save(model, path)
    return path


def _bare() -> onnx.ModelProto:
    model = net()
    del model.graph.initializer[:]
    return model


def _arrays(path: str, **arrays: Any) -> str:
    np.savez(path, **arrays)
    return path


def _array(path: str) -> str:
    np.save(path, image())
    return path


@pytest.mark.parametrize("name", _BAD)
def test_bad_input_is_one_line(here: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    given, message = _BAD[name]
    plan, model, inputs = given()
    arguments = ["run", plan, "--model", model, "--inputs", inputs, "--outputs", "out.npz"]
    assert run(arguments) == 1
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert error.count("\n") == 1
    assert message in error
    assert not Path("out.npz").exists()


def no_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openvino", None)


_REFUSED: dict[str, tuple[str, str]] = {
    "a size is not given": ("plan make net.onnx -o p.json", "give 'N' one with --input-shape"),
    "a size is not given to optimize": (
        "optimize net.onnx -o o.onnx --plan p.json",
        "a plan is for fixed sizes; give 'N' one with --input-shape N:SIZE",
    ),
    "an unknown size": (
        "plan make net.onnx -o p.json --input-shape M:2",
        "no input of the model has a symbolic dimension 'M'",
    ),
    "an unknown backend": (
        "plan make net.onnx -o p.json --input-shape N:2 --backend cray",
        "no backend 'cray' runs plans; there are numpy, ort",
    ),
    "an unknown backend of optimize": (
        "optimize net.onnx -o o.onnx --plan p.json --input-shape N:2 --backends ort,cray",
        "no backend 'cray' runs plans; there are numpy, ort",
    ),
    "a missing package": (
        "plan make net.onnx -o p.json --input-shape N:2 --backend openvino",
        "install it with pip install 'eqsat-opt[openvino]'",
    ),
    "a missing package of optimize": (
        "optimize net.onnx -o o.onnx --plan p.json --input-shape N:2 --backends ort,openvino",
        "install it with pip install 'eqsat-opt[openvino]'",
    ),
    "an unknown target": (
        "plan make net.onnx -o p.json --input-shape N:2 --target cray",
        "unknown device 'cray'; there are a100",
    ),
    "an unknown target of optimize": (
        "optimize net.onnx -o o.onnx --plan p.json --input-shape N:2 --target cray",
        "unknown device 'cray'; there are a100",
    ),
    "backends of a target": (
        "optimize net.onnx -o o.onnx --plan p.json --input-shape N:2 --target l4 --backends numpy",
        "the kernels of l4 are those of its profile",
    ),
    "no stream": ("plan make net.onnx -o p.json --input-shape N:2 --streams 0", "1 stream or more"),
    "no folder": (
        "optimize net.onnx -o o.onnx --plan no/p.json --input-shape N:2",
        "the folder no does not exist",
    ),
    "the output": (
        "optimize net.onnx -o o.onnx --plan o.onnx --input-shape N:2",
        "give the plan another name",
    ),
    "a plot of no kind": ("plan show numpy.json --plot p.txt", "end its name in .png, .svg, .pdf"),
    "a plot that is the plan": ("plan show numpy.svg --plot numpy.svg", "numpy.svg is the plan"),
    "a plot in no folder": ("plan show numpy.json --plot no/p.svg", "the folder no does not exist"),
    "a plot and JSON in one": ("plan show numpy.json --plot p.svg --json p.svg", "of --json"),
}


@pytest.mark.parametrize("name", _REFUSED)
def test_what_is_refused_before_any_work(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    command, message = _REFUSED[name]
    if "plot" in name:
        pytest.importorskip("matplotlib", reason="needs matplotlib, of the extra 'plot'")
    if "package" in name:
        no_package(monkeypatch)
    Path("numpy.svg").write_bytes(Path("numpy.json").read_bytes())
    before = {one: one.read_bytes() for one in here.iterdir()}
    assert run(command.split()) == 1
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert error.count("\n") == 1
    assert message in error
    assert {one: one.read_bytes() for one in here.iterdir()} == before


def test_a_plot_says_what_to_install(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("eqsat_opt.cli.plotting.find_spec", lambda _: None)
    assert run(["plan", "show", "numpy.json", "--plot", "p.svg"]) == 1
    assert "install eqsat-opt[plot]" in capsys.readouterr().err


def test_outputs_that_cannot_be_written(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plain = ["run", "numpy.json", "--model", "net.onnx", "--inputs", "x.npz", "--outputs"]
    for target, message in (("no/out.npz", "no"), ("net.onnx", "what is read"), (".", "folder")):
        assert run([*plain, target]) == 1
        assert message in capsys.readouterr().err
    make = ["plan", "make", "net.onnx", "--input-shape", "N:2", "-o"]
    for target in ("no/p.json", "net.onnx"):
        assert run([*make, target]) == 1
    assert run([*make, "p.json", "--input-shape", "N:3"]) == 1
    assert "one set of sizes" in capsys.readouterr().err
    assert run(["plan", "make", "none.onnx", "-o", "p.json"]) == 1
    assert not Path("p.json").exists()


def test_a_wrong_plan_fails_the_check(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from eqsat_opt.runtime.executor import Executable

    monkeypatch.setattr(
        Executable, "reference", lambda self, feeds: [one + 1 for one in self.run(feeds)]
    )
    assert run(["run", "numpy.json", "--model", "net.onnx", "--inputs", "x.npz",
                "--outputs", "out.npz", "--check"]) == 2  # fmt: skip
    assert "output 'y' differs by 1" in capsys.readouterr().err
    assert not Path("out.npz").exists()


def test_a_model_of_another_kind() -> None:
    with pytest.raises(ModelError, match="is not a model"):
        eqsat_opt.load_plan(eqsat_opt.plan_model(net(), shapes={"N": 1}), 3)
