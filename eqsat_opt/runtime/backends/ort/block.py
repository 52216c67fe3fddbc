"""Number of channels in a block of onnxruntime's blocked layout on this machine."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from eqsat_opt.errors import RuntimeFailed
from eqsat_opt.runtime.backends.ort.nchwc import reorder_in_model
from eqsat_opt.runtime.backends.ort.session import OrtOptions, OrtSession

__all__ = ["nchwc_block"]


@lru_cache(maxsize=1)
def nchwc_block() -> int:
    """Return the channels per block in onnxruntime's blocked layout here; 1 if it has no blocks."""
    try:
        session = OrtSession(reorder_in_model((1, 4, 1, 1)), OrtOptions(1, level="disabled"))
        feeds = {name: np.zeros((1, 4, 1, 1), np.float32) for name in session.input_names}
        return int(session.run(feeds)[0].shape[1])
    except RuntimeFailed:
        return 1
