"""Child processes do not outlive their parent, even one that was killed."""

from __future__ import annotations

import os
import threading
import time

__all__ = ["end_with_parent"]

_LOOK_S = 0.5


def end_with_parent() -> None:
    """End this process soon after its parent ended, whatever it is doing.

    The end of a pipe would only reach a process that reads it.
    """
    threading.Thread(target=_watch, args=(os.getppid(),), daemon=True).start()


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_LOOK_S)
    os._exit(1)
