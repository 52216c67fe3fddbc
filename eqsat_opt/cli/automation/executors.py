"""Executors of work of many parts: threads of this process, or a cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

from eqsat_opt.errors import OptionError, printable

__all__ = ["open_executor", "require_workers"]

_CONNECT_S = "10s"


def require_workers(workers: int, cluster: str) -> None:
    """Refuse a number of workers that has no meaning.

    Raises:
        OptionError: there are none, or those of a cluster besides.
    """
    if workers < 1:
        raise OptionError(f"workers is {workers}; give at least 1")
    if cluster and workers > 1:
        raise OptionError("a cluster has workers of its own; leave out --workers or --cluster")


@contextmanager
def open_executor(workers: int, cluster: str) -> Iterator[Executor]:
    """Open what runs the parts of a work: threads, or the workers of a cluster.

    Raises:
        OptionError: no cluster answers, or dask is not installed.
    """
    if cluster:
        with _client(cluster) as client:
            yield client.get_executor()
        return
    # Threads suffice, as each only waits for a process of its own.
    executor = ThreadPoolExecutor(workers)
    try:
        yield executor
    finally:
        executor.shutdown(cancel_futures=True)


def _client(address: str) -> Any:
    if find_spec("distributed") is None:
        raise OptionError("--cluster needs dask; install eqsat-opt[distributed]")
    from distributed import Client

    connect: Callable[..., Any] = Client
    try:
        return connect(address, timeout=_CONNECT_S)
    except (OSError, ValueError) as error:  # a timeout is an OSError
        raise OptionError(
            f"no cluster answers at {address} ({printable(str(error)) or type(error).__name__}); "
            "give the address of a dask scheduler, tcp://host:8786 for instance"
        ) from error
