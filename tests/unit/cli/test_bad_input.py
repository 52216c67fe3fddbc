"""Bad input: one clear line on standard error, exit code 1, nothing written, the store intact."""

from __future__ import annotations

import builtins
import errno
import os
import signal
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, NoReturn

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from eqsat_opt.cli import main
from eqsat_opt.cost.store import ProfileStore
from eqsat_opt.errors import OptionError
from eqsat_opt.extract.solve import exact
from eqsat_opt.pipeline import conclusion, destination
from eqsat_opt.pipeline import optimise as optimising
from eqsat_opt.pipeline.options import Options
from eqsat_opt.racing import finding

FLOAT, INT = TensorProto.FLOAT, TensorProto.INT64


def model(
    nodes: list[onnx.NodeProto],
    *,
    dims: tuple[int | str, ...] = (2, 3),
    weights: list[onnx.TensorProto] | None = None,
    opset: int = 17,
    elem_type: int = FLOAT,
) -> onnx.ModelProto:
    """A model of one input x and one output y."""
    graph = helper.make_graph(
        nodes,
        "bad",
        [helper.make_tensor_value_info("x", elem_type, dims)],
        [helper.make_tensor_value_info("y", FLOAT, None)],
        weights or [],
    )
    opsets = [helper.make_opsetid("", opset)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def good() -> onnx.ModelProto:
    return model([helper.make_node("Relu", ["x"], ["h"]), helper.make_node("Neg", ["h"], ["y"])])


def symbolic() -> onnx.ModelProto:
    return model([helper.make_node("Relu", ["x"], ["y"])], dims=("N", 3))


def external(location: str) -> onnx.ModelProto:
    weight = TensorProto(name="w", data_type=FLOAT, dims=[3], data_location=TensorProto.EXTERNAL)
    for key, value in (("location", location), ("offset", "0"), ("length", "12")):
        weight.external_data.add(key=key, value=value)
    return model([helper.make_node("Add", ["x", "w"], ["y"])], weights=[weight])


def cyclic() -> onnx.ModelProto:
    first = helper.make_node("Add", ["x", "b"], ["a"])
    return model(
        [first, helper.make_node("Relu", ["a"], ["b"]), helper.make_node("Neg", ["b"], ["y"])]
    )


def short_weight() -> onnx.ModelProto:
    weight = TensorProto(name="w", data_type=FLOAT, dims=[1 << 40], raw_data=b"1234")
    return model([helper.make_node("Add", ["x", "w"], ["y"])], weights=[weight])


INVALID: dict[str, tuple[Callable[[], onnx.ModelProto], str]] = {
    "cycle": (cyclic, "cycle"),
    "missing input": (
        lambda: model([helper.make_node("Add", ["x", "nowhere"], ["y"])]),
        "'nowhere', which nothing defines",
    ),
    "undefined output": (lambda: model([helper.make_node("Relu", ["x"], ["z"])]), "'y'"),
    "wrong dtype": (
        lambda: model([helper.make_node("Neg", ["x"], ["y"])], elem_type=INT),
        "int64",
    ),
    "unknown dtype": (
        lambda: model([helper.make_node("Relu", ["x"], ["y"])], elem_type=99),
        "element type 99",
    ),
    "absurd input": (
        lambda: model([helper.make_node("Relu", ["x"], ["y"])], dims=(1 << 40, 1 << 40)),
        "elements",
    ),
    "absurd weight": (short_weight, "4 bytes"),
    "unknown opset": (
        lambda: model([helper.make_node("Relu", ["x"], ["y"])], opset=999),
        "operator set 999",
    ),
    "external data outside": (lambda: external("../secret.bin"), "outside the model's folder"),
    "external data absolute": (lambda: external("/etc/passwd"), "outside the model's folder"),
    "external data missing": (lambda: external("gone.bin"), "is missing"),
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a good model, where nothing may appear."""
    monkeypatch.setenv("EQSAT_OPT_CACHE", str(tmp_path / "cache"))
    work = tmp_path / "work"
    work.mkdir()
    onnx.save_model(good(), work / "good.onnx")
    monkeypatch.chdir(work)
    return work


@pytest.fixture
def fails(folder: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Run a command that must fail; its line on standard error."""

    def run(*arguments: str) -> str:
        before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
        code = main(list(arguments))
        output, errors = capsys.readouterr()
        assert code == 1, output
        assert errors.startswith("error: ")
        assert errors.count("\n") == 1, errors
        assert errors.endswith("\n")
        assert "Traceback" not in output + errors
        assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before
        with ProfileStore() as store:
            store.rows()
        return errors

    return run


def optimise(path: str, *arguments: str) -> list[str]:
    return ["optimize", path, "-o", "out.onnx", "--no-measure", "--threads", "1", *arguments]


@pytest.mark.parametrize("name", INVALID)
def test_invalid_model(name: str, folder: Path, fails: Callable[..., str]) -> None:
    build, expected = INVALID[name]
    (folder / "bad.onnx").write_bytes(build().SerializeToString())
    assert expected in fails(*optimise("bad.onnx"))


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (good().SerializeToString()[:-20], "truncated"),
        (b"this is a text and no model\n" * 9, "not an ONNX model"),
        (bytes(range(256)), "not an ONNX model"),
        (b"", "not an ONNX model"),
    ],
    ids=["truncated", "text", "binary", "empty"],
)
def test_no_model(content: bytes, expected: str, folder: Path, fails: Callable[..., str]) -> None:
    (folder / "bad.onnx").write_bytes(content)
    assert expected in fails(*optimise("bad.onnx"))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes with names")
@pytest.mark.parametrize("options", [(), ("--json", "report.json")], ids=["plain", "json"])
@pytest.mark.parametrize(
    "command", ["optimize pipe.onnx", "explain pipe.onnx", "bench pipe.onnx pipe.onnx",
                "compare pipe.onnx"],
)  # fmt: skip
def test_a_pipe_cannot_be_read_twice(
    folder: Path, fails: Callable[..., str], command: str, options: Sequence[str]
) -> None:
    os.mkfifo(folder / "pipe.onnx")
    assert "not an ordinary file" in fails(*command.split(), *options)


def test_standard_input_is_no_model(folder: Path, fails: Callable[..., str]) -> None:
    expected = "error: cannot read '-': a model is read more than once, so not from a pipe"
    assert fails("inspect", "-").startswith(expected)


def test_an_interruption_of_the_imports(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(name: str, *rest: Any) -> Any:
        if name == "eqsat_opt.cli.app":
            raise KeyboardInterrupt
        return original(name, *rest)

    original = builtins.__import__
    monkeypatch.setattr(builtins, "__import__", interrupted)
    assert main(["zoo", "list"]) == 1
    assert capsys.readouterr().err == "error: interrupted; nothing was written\n"


def test_a_terminal_without_columns(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "0")
    assert main(["zoo", "list"]) == 0
    assert "squeezenet" in capsys.readouterr().out


def test_no_file(folder: Path, fails: Callable[..., str]) -> None:
    (folder / "a_folder.onnx").mkdir()
    assert "no such file" in fails(*optimise("missing.onnx"))
    assert "the file name of the model is empty" in fails(*optimise(""))
    assert "holds no .onnx file" in fails(*optimise("a_folder.onnx"))
    assert "unknown zoo model" in fails(*optimise("zoo:nonsense"))


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--rules", "nonsense"], "no rule or family 'nonsense'"),
        (["--rules", "missing.py"], "no rule file"),
        (["--rules", ""], "--rules is empty"),
        (["--objective", "beauty"], "unknown metric 'beauty'"),
        (["--objective", "energy", "--target", "l4"], "'energy' has no prices"),
        (["--objective", "time=much"], "'=' where it should end"),
        (["--objective", "0*time"], "weighs nothing"),
        (["--objective", "bytes/time/flops"], "where it should end"),
        (["--objective", "time+critical_path(beauty)"], "unknown metric 'beauty'"),
        (["--limit", "bytes"], "needs '=' where the text ends"),
        (["--limit", "energy=3", "--target", "l4"], "'energy' has no prices"),
        (["--limit", "time=1", "--limit", "time_us<=2"], "two limits name the same metric"),
        (["--numerics", "sloppy"], "unknown numerics 'sloppy'"),
        (["--budget", "-1"], "positive number of seconds"),
        (["--budget", "nan"], "positive number of seconds"),
        (["--threads", "-1"], "must not be negative"),
        (["--nodes", "0"], "positive number"),
        (["--nodes", "many"], "--nodes"),
        (["--input-shape", "x"], "is not NAME:SIZES"),
        (["--input-shape", "x:2,-3"], "is not NAME:SIZES"),
        (["--input-shape", "z:2,3"], "no input 'z'"),
        (["--input-shape", "x:2,3,4"], "does not fit"),
        (["--input-shape", "x:5,3"], "does not fit"),
        (["--input-shape", "x:3"], "does not fit the shape [3]"),
        (["--input-shape", "N:8"], "symbolic dimension 'N'"),
        (["--nonsense"], "No such option"),
        (["--json", "missing/report.json"], "does not exist"),
        (["--json", "."], "is a folder"),
        (["--json", "--quiet"], "a file of that name is ./--quiet"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_bad_option(arguments: list[str], expected: str, fails: Callable[..., str]) -> None:
    assert expected in fails(*optimise("good.onnx", *arguments))


def test_symbolic_size_must_be_one_of_the_model(folder: Path, fails: Callable[..., str]) -> None:
    onnx.save_model(symbolic(), folder / "symbolic.onnx")
    assert "there are: N" in fails(*optimise("symbolic.onnx", "--input-shape", "M:8"))


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("missing/out.onnx", "does not exist"),
        (".", "is a folder"),
        ("new/", "names a folder"),
        (os.devnull, "not an ordinary file"),
    ],
)
def test_no_place_for_the_output(target: str, expected: str, fails: Callable[..., str]) -> None:
    assert expected in fails("optimize", "good.onnx", "-o", target)


def test_no_permission(monkeypatch: pytest.MonkeyPatch, fails: Callable[..., str]) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may write everywhere
    assert "no permission" in fails(*optimise("good.onnx"))


def test_disk_full(monkeypatch: pytest.MonkeyPatch, fails: Callable[..., str]) -> None:
    def full(_handle: object) -> NoReturn:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    assert "No space left" in fails(*optimise("good.onnx"))


@pytest.mark.parametrize(
    ("module", "stage"),
    [
        (optimising, "load_model"),
        (finding, "propose"),
        (finding, "export_model"),
        (conclusion, "race_candidates"),
        (destination, "save_model"),
    ],
)
@pytest.mark.parametrize(
    ("error", "expected"),
    [(KeyboardInterrupt(), "interrupted; nothing was written"), (MemoryError(), "out of memory")],
    ids=["ctrl-c", "memory"],
)
def test_interrupted(
    module: ModuleType,
    stage: str,
    error: BaseException,
    expected: str,
    monkeypatch: pytest.MonkeyPatch,
    fails: Callable[..., str],
) -> None:
    def stop(*_: object, **__: object) -> NoReturn:
        raise error

    monkeypatch.setattr(module, stage, stop)
    # Two products of weights fold into one, so that there is something to export and to race.
    assert expected in fails(*optimise("zoo:weight_chain@tiny"))


def test_models_that_cannot_be_compared(folder: Path, fails: Callable[..., str]) -> None:
    other = symbolic()
    other.graph.output[0].name = other.graph.node[0].output[0] = "z"
    onnx.save_model(other, folder / "other.onnx")
    assert "outputs" in fails("bench", "good.onnx", "other.onnx", "--budget", "1")
    assert "no such file" in fails("bench", "good.onnx", "missing.onnx")


def test_external_data_inside_is_read(folder: Path) -> None:
    np.ones(3, np.float32).tofile(folder / "w.bin")
    (folder / "fine.onnx").write_bytes(external("w.bin").SerializeToString())
    assert main([*optimise("fine.onnx", "--quiet"), "--no-race"]) == 0


# ** Ctrl-C where Python alone would not see it **


class SlowSolver:
    """Stands for a solver in a long search: it ends only when it is told to."""

    def __init__(self) -> None:
        self.parameters = SimpleNamespace()
        self.stopped = threading.Event()

    def solve(self, _model: object) -> bool:
        os.kill(os.getpid(), signal.SIGINT)
        return self.stopped.wait(timeout=60)

    def stop_search(self) -> None:
        self.stopped.set()


@pytest.mark.usefixtures("heeded_signals")
def test_ctrl_c_ends_the_solver() -> None:
    solver = SlowSolver()
    with pytest.raises(KeyboardInterrupt):
        exact.run_solver(solver, None)
    assert solver.stopped.is_set()
    assert solver.parameters.catch_sigint_signal is False


def test_a_negative_seed_is_refused() -> None:
    with pytest.raises(OptionError, match="seed is -1"):
        Options(seed=-1)
