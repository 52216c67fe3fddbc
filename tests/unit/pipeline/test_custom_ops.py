"""Operators of a user's own: the library is loaded into every session that a run makes."""

from __future__ import annotations

import math
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import eqsat_opt
from eqsat_opt import api
from eqsat_opt.cli import main
from eqsat_opt.errors import OptionError, RuntimeFailed
from eqsat_opt.runtime.backends.ort.session import OrtOptions, OrtSession

SOURCE = r"""
#include <stddef.h>
#include <stdint.h>

/* The entries of onnxruntime's C interface that one operator needs. Their places never change. */
typedef struct { const void *const *(*get_api)(uint32_t); } ApiBase;
enum { CREATE_DOMAIN = 26, ADD_OP = 27, ADD_DOMAIN = 28, DATA = 51, INPUT = 90, OUTPUT = 91 };
typedef struct Op {
  uint32_t version;
  void *(*create)(const struct Op *, const void *const *, const void *);
  const char *(*name)(const struct Op *);
  const char *(*provider)(const struct Op *);
  int (*input_type)(const struct Op *, size_t);
  size_t (*inputs)(const struct Op *);
  int (*output_type)(const struct Op *, size_t);
  size_t (*outputs)(const struct Op *);
  void (*compute)(void *, void *);
  void (*destroy)(void *);
  int (*input_kind)(const struct Op *, size_t);
  int (*output_kind)(const struct Op *, size_t);
} Op;

static const void *const *api;
static void *create(const Op *op, const void *const *a, const void *info) { return (void *)op; }
static const char *name(const Op *op) { return "Twice"; }
static const char *provider(const Op *op) { return NULL; }
static int type(const Op *op, size_t i) { return 1; }
static size_t one(const Op *op) { return 1; }
static int required(const Op *op, size_t i) { return 0; }
static void destroy(void *kernel) {}
static void compute(void *kernel, void *context) {
  const int64_t dims[] = {2, 3};
  void *input, *output;
  float *x, *y;
  ((void *(*)(void *, size_t, void **))api[INPUT])(context, 0, &input);
  ((void *(*)(void *, size_t, const int64_t *, size_t, void **))api[OUTPUT])(
      context, 0, dims, 2, &output);
  ((void *(*)(void *, void **))api[DATA])(input, (void **)&x);
  ((void *(*)(void *, void **))api[DATA])(output, (void **)&y);
  for (int i = 0; i < 6; i++) y[i] = 2 * x[i];
}
static const Op twice = {8, create, name, provider, type, one, type, one, compute, destroy,
                         required, required};

void *RegisterCustomOps(void *options, const ApiBase *base) {
  void *domain;
  api = base->get_api(8);
  ((void *(*)(const char *, void **))api[CREATE_DOMAIN])("test.custom", &domain);
  ((void *(*)(void *, const Op *))api[ADD_OP])(domain, &twice);
  return ((void *(*)(void *, void *))api[ADD_DOMAIN])(options, domain);
}
"""
"""test.custom:Twice doubles a tensor of 2 x 3 floats. onnxruntime knows its domain until the
process ends, so no other test may use it. No package brings onnxruntime's header along."""

FAST = {"threads": 1, "measure": False, "store": "", "budget": 600}


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A library with one operator."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler here to build a library of operators")
    folder = tmp_path_factory.mktemp("library")
    source, target = folder / "twice.c", folder / "libtwice.so"
    source.write_text(SOURCE)
    subprocess.run([compiler, "-shared", "-fPIC", "-o", target, source], check=True)
    return str(target)


@pytest.fixture(scope="module")
def quintuple(library: str) -> str:
    """Another library that has the same operator."""
    target = Path(library).with_name("libquintuple.so")
    source = target.with_suffix(".c")
    source.write_text(SOURCE.replace("2 * x[i]", "5 * x[i]"))
    subprocess.run([str(shutil.which("cc")), "-shared", "-fPIC", "-o", target, source], check=True)
    return str(target)


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> onnx.ModelProto:
    """Two products of weights behind the operator; saved as well."""
    weights = np.random.default_rng(0).standard_normal((2, 3, 3)).astype(np.float32)
    graph = helper.make_graph(
        [
            helper.make_node("Twice", ["x"], ["a"], domain="test.custom"),
            helper.make_node("MatMul", ["a", "v"], ["b"]),
            helper.make_node("MatMul", ["b", "w"], ["y"]),
        ],
        "test.custom",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 3])],
        [numpy_helper.from_array(w, name) for w, name in zip(weights, "vw", strict=True)],
        value_info=[helper.make_tensor_value_info("a", TensorProto.FLOAT, [2, 3])],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("test.custom", 1)]
    result = helper.make_model(graph, opset_imports=opsets, ir_version=9)
    monkeypatch.chdir(tmp_path)
    onnx.save_model(result, "model.onnx")
    return result


def test_with_its_library_a_model_is_checked_and_improved(
    library: str, model: onnx.ModelProto
) -> None:
    found = eqsat_opt.optimize(model, report=True, custom_ops=library, race=False, **FAST)
    assert found.report.operators_after == {"MatMul": 1, "Twice": 1}
    assert [one.name for one in found.report.errors] == ["y"]
    options = OrtOptions(threads=1, custom_ops=(library,))
    feeds = {"x": np.ones((2, 3), np.float32)}
    (before,), (after,) = (OrtSession(m, options).run(feeds) for m in (model, found.model))
    np.testing.assert_allclose(before, after, rtol=1e-5)


def test_without_it_the_original_stays_and_nothing_is_claimed(model: onnx.ModelProto) -> None:
    found = eqsat_opt.optimize(model, report=True, **FAST)
    assert found.report.status == "unchanged"
    assert found.report.latency == {}
    assert any("test.custom:Twice" in note for note in found.report.notes)


def test_the_race_loads_it_too(library: str, model: onnx.ModelProto) -> None:
    found, differences = api.bench(model, model, custom_ops=[library], threads=1, budget=1)
    assert all(math.isfinite(one.time_us) for one in found.entries.values())
    assert not any(one.why for one in differences)
    with pytest.raises(RuntimeFailed, match=r"test\.custom:Twice"):
        api.bench(model, model, threads=1, budget=1)


def test_a_plan_that_cannot_be_made_says_what_is_written(
    library: str, model: onnx.ModelProto, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--threads", "1", "--no-measure", "--no-race", "--store", "", "-q"]
    command = ["optimize", "model.onnx", "-o", "out.onnx", "--plan", "out.plan.json", *arguments]
    assert main([*command, "--custom-ops", library]) == 1
    told = capsys.readouterr().err
    assert "Twice cannot stand in a plan" in told
    assert "out.onnx is written, out.plan.json not" in " ".join(told.split())
    assert Path("out.onnx").exists()
    assert not Path("out.plan.json").exists()


def test_on_the_command_line(library: str, model: onnx.ModelProto) -> None:
    arguments = ["--threads", "1", "--no-measure", "--no-race", "--store", "", "-q"]
    command = ["optimize", "model.onnx", "-o", "out.onnx", *arguments]
    assert main([*command, "--custom-ops", library, "--custom-ops", library]) == 0
    assert len(onnx.load_model("out.onnx").graph.node) == 2


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda: "missing.so", "no such file"),
        (lambda: ".", "no such file"),
        (lambda: "model.onnx", "cannot load custom operator library 'model.onnx'"),
    ],
    ids=["missing", "folder", "no library"],
)
@pytest.mark.parametrize("run", [api.run, api.explain, lambda m, o: api.bench(m, m, o)])
def test_a_library_that_cannot_be_loaded_is_an_error(
    make: Callable[[], str],
    expected: str,
    run: Callable[[str, eqsat_opt.Options], object],
    model: onnx.ModelProto,
) -> None:
    with pytest.raises(OptionError, match=expected):
        run("model.onnx", eqsat_opt.Options(custom_ops=(make(),)))


@pytest.mark.parametrize("run", [api.run, api.explain, lambda m, o: api.bench(m, m, o)])
def test_libraries_with_one_operator_are_at_fault_not_the_model(
    run: Callable[[str, eqsat_opt.Options], object],
    library: str,
    quintuple: str,
    model: onnx.ModelProto,
) -> None:
    options = eqsat_opt.Options(custom_ops=(library, quintuple))
    with pytest.raises(OptionError, match=r"libtwice\.so.*libquintuple\.so.*Conflicting"):
        run("model.onnx", options)
