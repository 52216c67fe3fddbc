"""Child processes that do not outlive their parent, even if it is killed."""

from __future__ import annotations

import os
import threading
import time

__all__ = ["end_with_parent"]

_LOOK_S = 0.5


def end_with_parent() -> None:
    """End this process soon after its parent has ended, whatever this process is doing.

    Only a process that reads a pipe would notice that the parent no longer holds the other end.
    """
    threading.Thread(target=_watch, args=(os.getppid(),), daemon=True).start()


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_LOOK_S)
    os._exit(1)
