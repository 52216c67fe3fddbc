"""External data: read wherever they may lie, moved with the model, never written over others."""

from __future__ import annotations

import contextlib
import errno
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

from eqsat_opt import api
from eqsat_opt.errors import ModelError
from eqsat_opt.ir.onnx.exporter import export_model
from eqsat_opt.ir.onnx.files import save as onnx_save
from eqsat_opt.ir.onnx.files.external import external_files
from eqsat_opt.ir.onnx.files.load import load_model
from eqsat_opt.ir.onnx.files.save import save_model
from eqsat_opt.ir.onnx.importer import import_model
from eqsat_opt.lab import zoo
from eqsat_opt.pipeline.options import Options

FLOAT = TensorProto.FLOAT
QUICK = Options(measure=False, race=False, check=0, store="", threads=1, alternatives=0)
CHECKED = Options(measure=False, race=False, check=1, store="", threads=1, alternatives=0)


def values(*shape: int, seed: int = 0) -> np.ndarray[Any, np.dtype[np.float32]]:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


X = values(4, 64, seed=9)


def model(seed: int = 0) -> onnx.ModelProto:
    """Two products with rectifiers that can be merged and a scale that can be folded."""
    node = helper.make_node
    graph = helper.make_graph(
        [
            node("MatMul", ["x", "w0"], ["a"]),
            node("Relu", ["a"], ["b"]),
            node("Relu", ["b"], ["c"]),
            node("MatMul", ["c", "w1"], ["d"]),
            node("Mul", ["d", "s"], ["y"]),
        ],
        "products",
        [helper.make_tensor_value_info("x", FLOAT, [4, 64])],
        [helper.make_tensor_value_info("y", FLOAT, [4, 64])],
        [
            numpy_helper.from_array(values(64, 64, seed=seed), "w0"),
            numpy_helper.from_array(values(64, 64, seed=seed + 1), "w1"),
            numpy_helper.from_array(np.full(64, 3, np.float32), "s"),
        ],
    )
    return made(graph)


def made(graph: onnx.GraphProto, **fields: Any) -> onnx.ModelProto:
    domains = ["", *{f.domain for f in fields.get("functions", ())}]
    imports = [helper.make_opsetid(domain, 17 if not domain else 1) for domain in domains]
    return helper.make_model(graph, opset_imports=imports, ir_version=8, **fields)


def save_external(proto: onnx.ModelProto, path: Path) -> Path:
    onnx.save_model(
        proto, path, save_as_external_data=True, location=f"{path.name}.data", size_threshold=100
    )
    return path


def output(path: str | os.PathLike[str], x: Any = X) -> Any:
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return session.run(None, {"x": x})[0]


def names(folder: Path) -> list[str]:
    return sorted(os.listdir(folder))


def data_of(path: Path) -> set[str]:
    return {os.path.basename(name) for name in external_files(load_model(path))}


# ** nothing that another model reads is overwritten **


def test_data_that_another_model_reads_stay(tmp_path: Path) -> None:
    first = save_external(model(), tmp_path / "model.onnx")
    backup = tmp_path / "backup.onnx"
    backup.write_bytes(first.read_bytes())
    data = (tmp_path / "model.onnx.data").read_bytes()
    expected = output(first)
    result = api.run(os.fspath(backup), QUICK, output=first)
    assert result.report.status == "unmeasured"
    assert (tmp_path / "model.onnx.data").read_bytes() == data
    np.testing.assert_allclose(output(first), expected, rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(output(backup), expected)


def test_the_same_data_keep_their_name(tmp_path: Path) -> None:
    source = load_model(save_external(model(), tmp_path / "in.onnx"))
    target = tmp_path / "out.onnx"
    save_model(source, target)
    (data,) = data_of(target)
    stamp = (tmp_path / data).stat().st_mtime_ns
    assert save_model(source, target) == frozenset()
    assert data_of(target) == {data}
    assert (tmp_path / data).stat().st_mtime_ns == stamp
    assert len(names(tmp_path)) == 4


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.write_bytes(path.read_bytes()[:-1]),
        lambda path: path.write_bytes(b"x" + path.read_bytes()[1:]),
        lambda path: (path.rename(path.with_name("gone")), path.symlink_to("gone")),
        lambda path: os.link(path, path.with_name("hard")),
    ],
    ids=["short", "changed", "link", "hard link"],
)
def test_a_damaged_file_of_the_name_is_neither_used_nor_changed(
    damage: Callable[[Path], object], tmp_path: Path
) -> None:
    source = load_model(save_external(model(), tmp_path / "in.onnx"))
    target = tmp_path / "out.onnx"
    save_model(source, target)
    (data,) = data_of(target)
    damage(tmp_path / data)
    content = (tmp_path / data).read_bytes()
    save_model(source, target)
    assert (tmp_path / data).read_bytes() == content
    assert data_of(target) != {data}
    np.testing.assert_array_equal(output(target), output(tmp_path / "in.onnx"))


def test_what_is_read_no_longer_is_told_and_kept(tmp_path: Path) -> None:
    first = load_model(save_external(model(0), tmp_path / "first.onnx"))
    second = load_model(save_external(model(5), tmp_path / "second.onnx"))
    target = tmp_path / "out.onnx"
    assert save_model(first, target) == frozenset()
    (data,) = data_of(target)
    assert save_model(second, target) == {os.path.realpath(tmp_path / data)}
    assert (tmp_path / data).exists()


def test_the_report_names_what_is_read_no_longer(tmp_path: Path) -> None:
    target = save_external(model(), tmp_path / "m.onnx")
    save_external(model(5), tmp_path / "in.onnx")
    report = api.run(tmp_path / "in.onnx", QUICK, output=target).report
    (note,) = [note for note in report.notes if "no longer" in note]
    assert "m.onnx.data" in note
    assert (tmp_path / "m.onnx.data").exists()


def test_data_of_the_input_are_no_target(tmp_path: Path) -> None:
    source = save_external(model(), tmp_path / "in.onnx")
    data = (tmp_path / "in.onnx.data").read_bytes()
    for target in (tmp_path / "in.onnx.data", tmp_path / "link"):
        if target.name == "link":
            target.symlink_to("in.onnx.data")
        with pytest.raises(ModelError, match="holds data of the model"):
            api.run(source, QUICK, output=target)
    assert (tmp_path / "in.onnx.data").read_bytes() == data


def test_a_link_into_another_folder_cannot_have_data(tmp_path: Path) -> None:
    source = save_external(model(), tmp_path / "in.onnx")
    (tmp_path / "there").mkdir()
    (tmp_path / "far.onnx").symlink_to("there/m.onnx")
    (tmp_path / "near.onnx").symlink_to("m.onnx")
    with pytest.raises(ModelError, match="link into another folder"):
        save_model(load_model(source), tmp_path / "far.onnx")
    save_model(load_model(model()), tmp_path / "far.onnx")  # without data it can
    save_model(load_model(source), tmp_path / "near.onnx")
    for path in ("far.onnx", "near.onnx"):
        assert (tmp_path / path).is_symlink()
        np.testing.assert_array_equal(output(tmp_path / path), output(source))


@pytest.mark.parametrize("length", [200, 255])
def test_names_may_be_long(length: int, tmp_path: Path) -> None:
    source = load_model(save_external(model(), tmp_path / "in.onnx"))
    target = tmp_path / ("x" * (length - 5) + ".onnx")
    save_model(source, target)
    np.testing.assert_array_equal(output(target), output(tmp_path / "in.onnx"))


_PEAK = """
import resource, sys
from eqsat_opt import api
from eqsat_opt.pipeline import options
base = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
chosen = options.Options(check=0, race=False, measure=False, store="", threads=1)
api.run(sys.argv[1], chosen, output=sys.argv[2])
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - base) * 1024)
"""


def test_weights_are_never_all_in_memory(tmp_path: Path) -> None:
    size = 128 << 20
    zoo.synthetic_large(tmp_path / "large.onnx", size, width=2048)
    arguments = [sys.executable, "-c", _PEAK, str(tmp_path / "large.onnx"), str(tmp_path / "o")]
    done = subprocess.run(arguments, capture_output=True, text=True, check=True)
    assert int(done.stdout) < size / 2  # the libraries that load meanwhile take their part


# ** every step may fail, and every process die **

_STEPS = ("open", "fdopen", "fsync", "replace", "chmod", "listdir", "lstat", "unlink")


class Faults:
    """Counts the steps of writing, and strikes before one of them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, strike: Callable[[], None]) -> None:
        self.at = -1
        self.count = 0
        for name in _STEPS:
            monkeypatch.setattr(os, name, self._counted(getattr(os, name), strike))

    def _counted(self, real: Callable[..., Any], strike: Callable[[], None]) -> Callable[..., Any]:
        def call(*arguments: Any, **keywords: Any) -> Any:
            self.count += 1
            if self.count == self.at:
                strike()
            return real(*arguments, **keywords)

        return call


def no_space() -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.fixture
def old_and_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[onnx_ir.Model, Path, Any, Any]:
    """A model to be written where another one is, and what either computes."""
    monkeypatch.setattr(os, "fsync", lambda _: None)  # a step like others, but a slow one
    target = tmp_path / "out" / "m.onnx"
    target.parent.mkdir()
    save_model(load_model(save_external(model(0), tmp_path / "old.onnx")), target)
    new = load_model(save_external(model(5), tmp_path / "new.onnx"))
    return new, target, output(tmp_path / "old.onnx"), output(tmp_path / "new.onnx")


def test_a_fault_at_any_step_leaves_one_whole_model(
    old_and_new: tuple[onnx_ir.Model, Path, Any, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    new, target, old_output, new_output = old_and_new
    before = names(target.parent)
    step = 0
    while True:
        step += 1
        with monkeypatch.context() as patch:
            faults = Faults(patch, no_space)
            faults.at = step
            written = False
            with contextlib.suppress(ModelError):
                save_model(new, target)
                written = True
        found = output(target)
        np.testing.assert_array_equal(found, new_output if written else old_output)
        if faults.count < step:
            break
        if written:  # a step that may fail without harm; begin again with the old model
            for name in set(names(target.parent)) - set(before):
                (target.parent / name).unlink()
            save_model(load_model(target.parent.parent / "old.onnx"), target)
        assert names(target.parent) == before
    assert step > 20


@pytest.mark.parametrize("stride", [3, pytest.param(1, marks=pytest.mark.slow)])
def test_a_process_may_die_at_any_step(
    stride: int,
    old_and_new: tuple[onnx_ir.Model, Path, Any, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    new, target, old_output, new_output = old_and_new
    before = names(target.parent)
    step, died = 1 - stride, True
    while died:
        step += stride
        child = os.fork()
        if not child:
            faults = Faults(monkeypatch, lambda: os._exit(9))
            faults.at = step
            save_model(new, target)
            os._exit(0)
        died = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
        found = output(target)
        is_new = bool(np.array_equal(found, new_output))
        assert is_new or np.array_equal(found, old_output)
        # The next run removes what is left, whatever it writes itself.
        save_model(load_model(target.parent.parent / "old.onnx"), target)
        left = set(names(target.parent)) - set(before)
        assert left == (data_of_new(target, left) if is_new else set())
        for name in left:
            (target.parent / name).unlink()
    assert step > 20


def data_of_new(target: Path, left: set[str]) -> set[str]:
    """Data that the target came to read are no litter, even when it reads others now."""
    return {n for n in left if n.startswith(target.name) and n.endswith(".data")}


def test_an_interruption_after_the_last_step_keeps_the_data(
    old_and_new: tuple[onnx_ir.Model, Path, Any, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    new, target, _, new_output = old_and_new
    real = os.replace

    def interrupted(source: str, place: str) -> None:
        real(source, place)
        if place.endswith("m.onnx"):
            raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        save_model(new, target)
    np.testing.assert_array_equal(output(target), new_output)


def _die_before_the_last_step(model: onnx_ir.Model, target: Path) -> None:
    child = os.fork()
    if not child:
        real = os.replace

        def once(source: str, place: str) -> None:
            if place.endswith("m.onnx"):
                os._exit(9)
            real(source, place)

        os.replace = once  # type: ignore[assignment]
        save_model(model, target)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9


def test_data_that_were_there_survive_a_dead_writer(
    old_and_new: tuple[onnx_ir.Model, Path, Any, Any],
) -> None:
    new, target, _, new_output = old_and_new
    old = load_model(target.parent.parent / "old.onnx")
    save_model(new, target)
    backup = target.with_name("backup.onnx")
    backup.write_bytes(target.read_bytes())
    save_model(old, target)
    _die_before_the_last_step(new, target)
    save_model(old, target)
    np.testing.assert_array_equal(output(backup), new_output)


def test_data_that_became_read_survive_a_dead_writer(
    old_and_new: tuple[onnx_ir.Model, Path, Any, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    new, target, _, new_output = old_and_new
    _die_before_the_last_step(new, target)
    assert len(names(target.parent)) == 4  # old model, its data, the new data, a noted part
    # Another folder's writer of the same target adopts the data, and the model moves on.
    monkeypatch.setattr(onnx_save, "remove_abandoned", lambda _: None)
    save_model(new, target)
    monkeypatch.undo()
    target.rename(target.with_name("moved.onnx"))
    save_model(load_model(target.parent.parent / "old.onnx"), target)
    np.testing.assert_array_equal(output(target.with_name("moved.onnx")), new_output)


# ** external data in every place **


def external(name: str, location: str, dims: tuple[int, ...] = (8,), **entries: int) -> TensorProto:
    tensor = TensorProto(name=name, data_type=FLOAT, dims=dims, data_location=TensorProto.EXTERNAL)
    for key, value in {"location": location, **entries}.items():
        tensor.external_data.add(key=key, value=str(value))
    return tensor


def vector_model(nodes: list[onnx.NodeProto], **fields: Any) -> onnx.ModelProto:
    info = helper.make_tensor_value_info
    initializers = fields.pop("initializers", [])
    sparse = fields.pop("sparse", [])
    graph = helper.make_graph(
        nodes, "g", [info("x", FLOAT, [8])], [info("y", FLOAT, [8])], initializers,
        sparse_initializer=sparse,
    )  # fmt: skip
    return made(graph, **fields)


def in_initializer(location: str) -> onnx.ModelProto:
    return vector_model(
        [helper.make_node("Add", ["x", "w"], ["y"])], initializers=[external("w", location)]
    )


def in_attribute(location: str) -> onnx.ModelProto:
    constant = helper.make_node("Constant", [], ["w"], value=external("", location))
    return vector_model([constant, helper.make_node("Add", ["x", "w"], ["y"])])


def in_function(location: str) -> onnx.ModelProto:
    nodes = [
        helper.make_node("Constant", [], ["w"], value=external("", location)),
        helper.make_node("Add", ["a", "w"], ["b"]),
    ]
    function = helper.make_function("own", "F", ["a"], ["b"], nodes, [helper.make_opsetid("", 17)])
    return vector_model([helper.make_node("F", ["x"], ["y"], domain="own")], functions=[function])


def in_subgraph(location: str) -> onnx.ModelProto:
    info = helper.make_tensor_value_info
    branches = {
        f"{kind}_branch": helper.make_graph(
            [helper.make_node("Add", ["x", "w"], ["b"])], kind, [], [info("b", FLOAT, [8])],
            [external("w", location)],
        )
        for kind in ("then", "else")
    }  # fmt: skip
    condition = numpy_helper.from_array(np.asarray(True), "c")
    return vector_model(
        [helper.make_node("If", ["c"], ["y"], **branches)], initializers=[condition]
    )


def in_sparse(location: str) -> onnx.ModelProto:
    indices = numpy_helper.from_array(np.arange(8), "")
    sparse = helper.make_sparse_tensor(external("w", location), indices, [8])
    return vector_model([helper.make_node("Add", ["x", "w"], ["y"])], sparse=[sparse])


def in_tensors(location: str) -> onnx.ModelProto:
    node = helper.make_node("Own", ["x"], ["y"], domain="own")
    attribute = node.attribute.add(name="all", type=onnx.AttributeProto.TENSORS)
    attribute.tensors.extend([numpy_helper.from_array(values(8)), external("w", location)])
    proto = vector_model([node])
    proto.opset_import.append(helper.make_opsetid("own", 1))
    return proto


def in_default(location: str) -> onnx.ModelProto:
    proto = in_function(location)
    default = helper.make_attribute("unused", external("", location))
    proto.functions[0].attribute_proto.append(default)
    return proto


def in_training(location: str) -> onnx.ModelProto:
    proto = vector_model([helper.make_node("Relu", ["x"], ["y"])])
    info = proto.training_info.add()
    info.algorithm.name = "step"
    info.algorithm.initializer.append(external("w", location))
    return proto


PLACES = {
    f.__name__.removeprefix("in_"): f
    for f in (in_initializer, in_attribute, in_function, in_subgraph, in_sparse, in_tensors,
              in_default, in_training)
}  # fmt: skip
RUNNABLE = sorted(set(PLACES) - {"tensors"})


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A working directory that is nobody's folder, a model's folder, and a secret beside it."""
    for name in ("here", "in", "out", "secret"):
        (tmp_path / name).mkdir()
    for name in ("in/w.bin", "secret/s.bin"):
        values(8).tofile(tmp_path / name)
    (tmp_path / "in" / "link.bin").symlink_to("../secret/s.bin")
    (tmp_path / "in" / "folder").symlink_to("../secret")
    os.link(tmp_path / "secret" / "s.bin", tmp_path / "in" / "hard.bin")
    monkeypatch.chdir(tmp_path / "here")
    yield tmp_path
    assert names(tmp_path / "here") == []


@pytest.mark.parametrize("options", [QUICK, CHECKED], ids=["quick", "checked"])
@pytest.mark.parametrize("place", RUNNABLE)
def test_external_data_move_with_the_model(place: str, options: Options, elsewhere: Path) -> None:
    source, target = elsewhere / "in" / "m.onnx", elsewhere / "out" / "m.onnx"
    source.write_bytes(PLACES[place]("w.bin").SerializeToString())
    x = values(8, seed=3)
    expected = output(source, x)
    report = api.run(source, options, output=target).report
    assert not [note for note in report.notes if "dropped" in note or "stays" in note]
    (elsewhere / "in" / "w.bin").unlink()
    np.testing.assert_array_equal(output(target, x), expected)


def test_what_is_left_out_is_told(elsewhere: Path) -> None:
    source = elsewhere / "in" / "m.onnx"
    source.write_bytes(in_training("w.bin").SerializeToString())
    report = api.run(source, QUICK, output=elsewhere / "out" / "m.onnx").report
    assert [note for note in report.notes if "training information" in note]


def test_a_list_of_tensors_moves_with_the_model(elsewhere: Path) -> None:
    source, target = elsewhere / "in" / "m.onnx", elsewhere / "out" / "m.onnx"
    source.write_bytes(in_tensors("w.bin").SerializeToString())
    api.run(source, QUICK, output=target)
    (elsewhere / "in" / "w.bin").unlink()
    (node,) = load_model(target).graph
    first, second = node.attributes["all"].as_tensors()
    np.testing.assert_array_equal(first.numpy(), values(8))
    np.testing.assert_array_equal(second.numpy(), values(8))


@pytest.mark.parametrize("location", [
    "../secret/s.bin", "x/../../secret/s.bin", "link.bin", "folder/s.bin", "hard.bin", "",
    "/etc/hostname", "..", "missing.bin", "null\0byte", "w.bin/x",
])  # fmt: skip
@pytest.mark.parametrize("place", PLACES)
def test_no_place_reaches_outside(place: str, location: str, elsewhere: Path) -> None:
    source = elsewhere / "in" / "m.onnx"
    proto = PLACES[place](location)
    source.write_bytes(proto.SerializeToString())
    os.chdir(elsewhere / "in")
    try:
        for given in (source, proto):
            with pytest.raises(ModelError, match="external data"):
                load_model(given)
    finally:
        os.chdir(elsewhere / "here")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"length": 31}, "31 bytes where its dimensions need 32"),
        ({"offset": 4}, "ends before byte 36"),
        ({"offset": -4}, "malformed"),
        ({"length": "many"}, "malformed"),
    ],
)
@pytest.mark.parametrize("place", PLACES)
def test_sizes_are_checked_in_every_place(
    place: str, change: dict[str, Any], why: str, elsewhere: Path
) -> None:
    proto = PLACES[place]("w.bin")
    for tensor in _tensors(proto):
        for key, value in change.items() if tensor.external_data else ():
            tensor.external_data.add(key=key, value=str(value))
    source = elsewhere / "in" / "m.onnx"
    source.write_bytes(proto.SerializeToString())
    with pytest.raises(ModelError, match=why):
        load_model(source)


def _tensors(message: Any) -> Iterator[TensorProto]:
    if isinstance(message, TensorProto):
        yield message
        return
    for field, value in message.ListFields():
        if field.message_type is not None:
            for item in value if field.is_repeated else (value,):
                yield from _tensors(item)


def test_links_as_a_hub_keeps_them_are_followed(tmp_path: Path) -> None:
    blobs, names_ = tmp_path / "blobs", tmp_path / "names"
    blobs.mkdir()
    names_.mkdir()
    path = save_external(model(), names_ / "m.onnx")
    expected = output(path)
    for name, blob in (("m.onnx", "1f"), ("m.onnx.data", "2e")):
        (names_ / name).rename(blobs / blob)
        (names_ / name).symlink_to(f"../blobs/{blob}")
    report = api.run(path, CHECKED, output=tmp_path / "out.onnx").report
    assert report.status == "unmeasured", report.notes
    np.testing.assert_allclose(output(tmp_path / "out.onnx"), expected, 1e-4, 1e-4)
    # A link that leads elsewhere is refused all the same.
    (blobs / "2e").rename(tmp_path / "secret")
    (names_ / "m.onnx.data").unlink()
    (names_ / "m.onnx.data").symlink_to("../secret")
    with pytest.raises(ModelError, match="leaves the model's folder"):
        load_model(path)


# ** improved from any working directory, whatever it is given as **


@pytest.mark.parametrize("form", ["path", "proto", "ir"])
def test_models_with_external_data_are_improved_from_anywhere(
    form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "here").mkdir()
    source = save_external(model(), tmp_path / "in" / "m.onnx")
    # The paths of a ModelProto count from the working directory.
    monkeypatch.chdir(tmp_path / ("in" if form == "proto" else "here"))
    given: Any = source
    if form == "proto":
        given = onnx.load(source, load_external_data=False)
    elif form == "ir":
        given = load_model(source)
    report = api.run(given, CHECKED, output=tmp_path / "out.onnx").report
    assert report.status == "unmeasured", report.notes
    assert report.errors
    np.testing.assert_allclose(output(tmp_path / "out.onnx"), output(source), 1e-4, 1e-4)
    assert names(tmp_path / "here") == []


def test_computed_weights_lie_with_the_others(tmp_path: Path) -> None:
    source = save_external(model(), tmp_path / "m.onnx")
    graph = import_model(load_model(source))
    save_model(export_model(graph), tmp_path / "out.onnx")
    assert len(data_of(tmp_path / "out.onnx")) == 1
    (data,) = data_of(tmp_path / "out.onnx")
    offsets = [t.offset for t in _externals(tmp_path / "out.onnx")]
    assert all(offset is not None and offset % 4096 == 0 for offset in offsets)
    assert (tmp_path / data).stat().st_size > 2 * 64 * 64 * 4


def _externals(path: Path) -> list[onnx_ir.ExternalTensor]:
    values = load_model(path).graph.initializers.values()
    return [v.const_value for v in values if isinstance(v.const_value, onnx_ir.ExternalTensor)]
