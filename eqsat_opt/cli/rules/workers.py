"""Processes in which rules are verified."""

from __future__ import annotations

import gc
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from eqsat_opt.common.child_processes import end_with_parent
from eqsat_opt.errors import OptionError
from eqsat_opt.runtime.processor import usable_cores

if TYPE_CHECKING:
    from concurrent.futures import Executor

__all__ = ["checked_jobs", "workers"]


@contextmanager
def workers(jobs: int) -> Iterator[Executor]:
    """Open a pool of fresh processes, which import the rules but not this command line."""
    from eqsat_opt.lab.certification import SerialExecutor

    if jobs == 1:
        yield SerialExecutor()
        return
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    with ProcessPoolExecutor(
        jobs, mp_context=get_context("spawn"), initializer=_prepare_worker
    ) as executor:
        try:
            yield executor
        except BaseException:
            executor.shutdown(wait=False, cancel_futures=True)
            raise


def _prepare_worker() -> None:
    # An interrupt reaches the whole group of processes. A worker that it killed could leave the
    # queue locked, and the others would wait forever, so workers finish their rule before they end.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_with_parent()
    # Proofs make many small values and few cycles. The search for cycles took a fifth of the time.
    gc.freeze()
    gc.set_threshold(1_000_000, 50, 50)


def checked_jobs(jobs: int) -> int:
    """Return the number of processes that ``--jobs`` asks for.

    Raises:
        OptionError: it is negative.
    """
    if jobs < 0:
        raise OptionError(f"--jobs {jobs} is negative; give 0 for one per usable core")
    return jobs or usable_cores()
