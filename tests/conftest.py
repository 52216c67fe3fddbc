"""What every test gets: one thread, a private profile store, fixed seeds, honest skips."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

# Read by the numeric libraries when they are first loaded, so set before any test module is.
for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")

# A slow machine must not fail a test, so no deadline and no health check that is about speed. Few
# examples: the whole suite is to end within ten minutes on two cores.
settings.register_profile(
    "default",
    derandomize=True,
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
# Chosen with `pytest --hypothesis-profile=nightly`: new examples each time, failures kept on disk.
settings.register_profile(
    "nightly",
    max_examples=5_000,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("default")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow", action="store_true", help="run the tests marked slow as well")
    parser.addoption("--write-transcripts", action="store_true", help="write them as they are now")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("--slow"):
        _skip(items, "slow", "takes minutes or is the rest of a sweep: run with --slow")
    if any(item.get_closest_marker("device") for item in items):
        reason = _why_no_device()
        if reason is not None:
            _skip(items, "device", reason)


def _skip(items: list[pytest.Item], marker: str, reason: str) -> None:
    for item in items:
        if item.get_closest_marker(marker) is not None:
            item.add_marker(pytest.mark.skip(reason=reason))


def _why_no_device() -> str | None:
    """The reason why no CUDA device can be used here, or None if one can."""
    try:
        import cupy
    except ImportError as error:
        return f"needs a CUDA device and the extra 'gpu': {error}"
    try:
        count = cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        return f"needs a CUDA device: {error}"
    return None if count else "needs a CUDA device: the driver lists none"


@pytest.fixture(scope="session", autouse=True)
def private_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep the profile store in a temporary folder: tests never touch the user's own.

    Tables are as wide in every terminal, and where there is none.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", "160")
        patch.setenv("EQSAT_OPT_CACHE", str(tmp_path_factory.mktemp("store")))
        yield


@pytest.fixture
def heeded_signals() -> Iterator[None]:
    """Signals as a terminal gives them: one that starts the tests in the background ignores some.

    A shell without job control starts what ends in & with SIGINT ignored, nohup with SIGHUP.
    """
    usual = (signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)
    before = [(number, signal.signal(number, handler)) for number, handler in usual]
    before.append((signal.SIGTERM, signal.signal(signal.SIGTERM, signal.SIG_DFL)))
    yield
    for number, handler in before:
        signal.signal(number, handler)
