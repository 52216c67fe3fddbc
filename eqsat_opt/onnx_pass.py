"""A pass of onnx-ir, so that the optimisation takes its place in pipelines of such passes.

::

    import onnx_ir.passes as passes
    from eqsat_opt.onnx_pass import EqSatPass

    made = passes.Sequential(EqSatPass(budget=10), ...)(model).model
"""

from __future__ import annotations

from typing import Any

import onnx_ir
from onnx_ir.passes import FunctionalPass, PassResult

from eqsat_opt import api
from eqsat_opt.pipeline.options import chosen_options

__all__ = ["EqSatPass"]


class EqSatPass(FunctionalPass):
    """Replaces a model by a faster one that computes the same, where one is found.

    Attributes:
        result: the result of the last call, with its report; ``None`` before the first.
    """

    def __init__(self, **options: Any) -> None:
        """Resolve the options, which are those of `eqsat_opt.optimize`.

        Raises:
            OptionError: an option has no meaning.
        """
        super().__init__()
        self._options = chosen_options(None, options)
        self.result: api.Result | None = None

    def call(self, model: onnx_ir.Model) -> PassResult:
        """Return the result for a model, which is left as it is.

        Raises:
            ModelError, CheckFailed: see `eqsat_opt.optimize`.
        """
        self.result = api.run(model, self._options)
        found = self.result.model
        return PassResult(model.clone() if found is model else found, found is not model)
