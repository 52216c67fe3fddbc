"""What surrounds a call: forked processes, the log of the host, keywords and wrong types."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import eqsat_opt
from eqsat_opt import api
from eqsat_opt.errors import ModelError, OptionError
from eqsat_opt.pipeline.options import Options, chosen_options
from eqsat_opt.racing.race import race
from eqsat_opt.racing.race_result import RaceResult

LIMIT_S = 600
"""A child that hangs is killed after this; one that works needs a few seconds."""

PREPARE = """
import logging, os, sys
import eqsat_opt
from eqsat_opt.lab import zoo

def improve(_=0, **options):
    model = zoo.build("weight_chain", scale="tiny")
    found = eqsat_opt.optimize(
        model, report=True, race=False, measure=False, store="", threads=1, budget=600, **options)
    return len(found.model.graph.node)

def warnings(**options):
    model = zoo.build("weight_chain", scale="tiny")
    return eqsat_opt.optimize(
        model, report=True, race=False, measure=False, store="", threads=1, budget=600, **options
    ).report.warnings

def answer(status):
    return os.waitstatus_to_exitcode(status)
"""


def output_of(program: str) -> str:
    """Standard output of a script in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-W", "ignore:.*fork:DeprecationWarning", "-c",
         PREPARE + textwrap.dedent(program)],
        cwd=Path(eqsat_opt.__file__).parents[1],
        capture_output=True, text=True, timeout=LIMIT_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout.strip()


forks = pytest.mark.skipif(sys.platform == "win32", reason="Windows does not fork")


@forks
def test_a_fork_after_use_works() -> None:
    program = """
        import threading, time
        used = threading.Event()
        def use_and_wait():  # another thread's engine, which the child inherits without its thread
            improve(); used.set(); time.sleep(600)
        threading.Thread(target=use_and_wait, daemon=True).start()
        used.wait()
        assert improve() == 1
        if (child := os.fork()) == 0:
            assert improve() == 1
            if (grandchild := os.fork()) == 0:
                os._exit(improve())
            os._exit(answer(os.waitpid(grandchild, 0)[1]))
        print(answer(os.waitpid(child, 0)[1]), improve(), flush=True)
        os._exit(0)
    """
    assert output_of(program) == "1 1"


@forks
def test_pools_of_forked_processes_work() -> None:
    program = """
        import concurrent.futures, multiprocessing
        def warned(_):  # with a process of its own for the saturation
            return warnings(deadline_s=60)
        improve()
        context = multiprocessing.get_context("fork")
        with concurrent.futures.ProcessPoolExecutor(1, mp_context=context) as pool:
            print(*pool.map(improve, range(2)))
        with context.Pool(1) as pool:
            print(*pool.map(improve, range(2)), *pool.map(warned, [0]))
    """
    assert output_of(program) == "1 1\n1 1 ()"


@pytest.mark.parametrize(
    ("level", "expected"),
    [("NOTSET", "['eqsat_opt'] True"), ("INFO", "['egglog', 'eqsat_opt'] True")],
)
def test_the_engine_logs_only_where_the_host_asks_for_it(level: str, expected: str) -> None:
    program = f"""
        names = set()
        class Collect(logging.Handler):
            def emit(self, record):
                names.add(record.name.partition(".")[0])
        logging.basicConfig(level=logging.INFO, handlers=[Collect()])
        logging.getLogger("egglog").setLevel(logging.{level})
        improve()
        print(sorted(names), logging.getLogger().level == logging.INFO)
    """
    assert output_of(program) == expected


# ** keywords and types **


@pytest.fixture
def model() -> onnx.ModelProto:
    """Two products, of which the weights fold into one."""
    weights = np.random.default_rng(0).standard_normal((2, 8, 8)).astype(np.float32)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "v"], ["h"]),
         helper.make_node("MatMul", ["h", "w"], ["y"])],
        "chain",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 8])],
        [numpy_helper.from_array(w, name) for w, name in zip(weights, "vw", strict=True)],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def test_explain_takes_the_keywords_of_optimize(model: onnx.ModelProto) -> None:
    keywords: dict[str, Any] = {"threads": 1, "measure": False, "store": "", "budget": 600}
    assert "matmul/assoc" in eqsat_opt.explain(model, **keywords).report.rules
    found = eqsat_opt.explain(model, Options(rules="none"), **keywords)
    assert found.report.rules == {}
    with pytest.raises(OptionError, match="unknown option 'thread'; did you mean threads"):
        eqsat_opt.explain(model, thread=1)


def test_bench_takes_the_keywords_of_optimize(
    model: onnx.ModelProto, monkeypatch: pytest.MonkeyPatch
) -> None:
    terms: dict[str, Any] = {}

    def held(entrants: Any, original: str, feeds: Any, **given: Any) -> RaceResult:
        terms.update(given, rows=[len(array) for array in feeds.values()])
        return race(entrants, original, feeds, **given)

    monkeypatch.setattr(api, "race", held)
    _, found = eqsat_opt.bench(model, model, threads=1, budget=0.5, shapes={"N": 3}, check=1)
    assert (terms["threads"], terms["time_limit_s"], terms["rows"]) == (1, 0.25, [3])
    assert [one.why for one in found] == [""]
    with pytest.raises(OptionError, match="unknown option 'speed'"):
        eqsat_opt.bench(model, model, speed="high")


def test_models_of_other_inputs_cannot_be_raced(model: onnx.ModelProto) -> None:
    other = onnx.ModelProto()
    other.CopyFrom(model)
    other.graph.input[0].name += "_renamed"
    for node in other.graph.node:
        node.input[:] = [
            f"{n}_renamed" if n == model.graph.input[0].name else n for n in node.input
        ]
    with pytest.raises(OptionError, match="the models have different inputs"):
        eqsat_opt.bench(model, other)


def test_options_are_options(model: onnx.ModelProto) -> None:
    with pytest.raises(OptionError, match=r"give eqsat_opt\.Options"):
        eqsat_opt.explain(model, {"threads": 1})  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="the same; keep one"):
        eqsat_opt.optimize(model, budget=1, budget_s=2)


@pytest.mark.parametrize(
    ("keywords", "expected"),
    [
        ({"budget": "fast"}, "budget is 'fast'; give a number"),
        ({"budget": 10**400}, "give a number"),
        ({"threads": 1.5}, "threads is 1.5; give a whole number"),
        ({"threads": True}, "threads is True; give a whole number"),
        ({"threads": 10**6}, "1000000 threads are too many"),
        ({"threads": "2"}, "threads is '2'"),
        ({"check": "all"}, "check is 'all'"),
        ({"effort": 3}, "effort is 3; give a text"),
        ({"nodes": 2e4}, "nodes is 20000.0"),
        ({"alternatives": [2]}, r"alternatives is \[2\]"),
        ({"deadline_s": "1"}, "deadline is '1'"),
        ({"seed": "a"}, "seed is 'a'"),
        ({"objective": 3}, "objective is 3; give an objective as a text"),
        ({"limits": 3}, "limits is 3; give texts"),
        ({"limits": [3]}, "limits is 3; give a text"),
        ({"objective": {"time": "x"}}, r"objective\['time'\] is 'x'"),
        ({"objective": {1: 1.0}}, "objective is 1; give a text"),
        ({"rules": ["default"]}, "rules is"),
        ({"numerics": 1}, "numerics is 1"),
        ({"target": None}, "target is None"),
        ({"measure": "no"}, "measure is 'no'; give True or False"),
        ({"race": 1}, "race is 1"),
        ({"shapes": "x"}, "shapes is 'x'; give a mapping"),
        ({"shapes": {"x": "8"}}, "the size of 'x' is '8'; give a whole number"),
        ({"shapes": {"x": (1.0, 2)}}, "the size of 'x' is 1.0"),
        ({"shapes": {1: 2}}, "a name in shapes is 1"),
        ({"store": 1}, "store is 1; give a path"),
        ({"store": b"s"}, "store is b's'"),
        ({"custom_ops": 1}, "custom_ops is 1; give paths"),
        ({"custom_ops": [1]}, "custom_ops is 1; give a path"),
    ],
    ids=str,
)
def test_a_wrong_type_is_a_sentence(keywords: dict[str, Any], expected: str) -> None:
    with pytest.raises(OptionError, match=expected) as caught:
        eqsat_opt.optimize("model.onnx", **keywords)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("what", [None, 3, b"", ["model.onnx"]], ids=str)
@pytest.mark.parametrize("call", ["optimize", "explain", "bench", "session"])
def test_what_is_no_model_is_told(call: str, what: Any) -> None:
    if call == "session" and isinstance(what, bytes):
        pytest.skip("a session is opened from bytes too")
    arguments = (what, what) if call == "bench" else (what,)
    with pytest.raises(ModelError, match="is not a model; give a path"):
        getattr(eqsat_opt, call)(*arguments)


def test_what_is_no_output_is_told_at_once(model: onnx.ModelProto) -> None:
    with pytest.raises(OptionError, match="output is 3; give a path"):
        eqsat_opt.optimize(model, output=3)


def test_numbers_of_numpy_are_numbers() -> None:
    options = Options(
        budget_s=np.float32(2.5),  # type: ignore[arg-type]
        threads=np.int64(3),  # type: ignore[arg-type]
        race=np.bool_(False),  # type: ignore[arg-type]
        shapes={"x": np.array([1, 2])},  # type: ignore[dict-item]
        objective={"time": np.float64(2.0)},
        store=Path("s.sqlite3"),  # type: ignore[arg-type]
        custom_ops=Path("ops.so"),  # type: ignore[arg-type]
    )
    assert options == Options(
        budget_s=2.5, threads=3, race=False, shapes={"x": (1, 2)}, objective={"time": 2.0},
        store="s.sqlite3", custom_ops=("ops.so",),
    )  # fmt: skip
    assert type(options.threads) is int
    assert type(options.budget_s) is float
    assert chosen_options(options, {"budget": 1}).budget_s == 1.0


def test_the_engine_is_loaded_without_the_package_around_it() -> None:
    """Its imports take longer than a small search; who imports it shares the engine."""
    program = """
    import sys
    from eqsat_opt.egraph.engine.library import engine_library

    engine = engine_library().EGraph()
    assert "egglog" not in sys.modules
    import egglog.bindings

    assert isinstance(engine, egglog.bindings.EGraph)
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(program)], check=True)
