"""PyTorch modules: exported, optimised, opened in onnxruntime, and checked against the module.

::

    import eqsat_opt.torch

    fast = eqsat_opt.torch.optimize(module.eval(), (image,))
    logits = fast(image)

Nothing else in the package needs PyTorch.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from io import BytesIO
from typing import TYPE_CHECKING, Any

import onnx
import onnx_ir

from eqsat_opt import api
from eqsat_opt.errors import CheckFailed, ModelError, OptionError, printable, reason
from eqsat_opt.pipeline.options import Options, chosen_options
from eqsat_opt.pipeline.serving import session

if TYPE_CHECKING:
    import torch

__all__ = ["OptimizedModule", "optimize"]

_TOLERANCE = 1e-3
"""Default of the largest difference from the module, as a share of the maximum of an output.

Exporters and onnxruntime sum in other orders than PyTorch does, before anything is optimised.
"""


class OptimizedModule:
    """A module in its optimised form, which is called like the module that it was made of.

    Attributes:
        result: the result of the optimisation, with its report and the ONNX model.
        session: the session of onnxruntime that runs it.
    """

    def __init__(self, result: api.Result, session: Any, example: Any) -> None:
        """Keep a result, its session and outputs of the module as an example of their structure."""
        import torch
        from torch.utils import _pytree as pytree

        self.result = result
        self.session = session
        leaves, self._structure = pytree.tree_flatten(example)
        self._constants = [None if torch.is_tensor(leaf) else (leaf,) for leaf in leaves]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return what the module returns, as tensors on the CPU.

        Raises:
            ModelError: there are more or fewer tensors than the exported model has inputs.
            RuntimeFailed: onnxruntime cannot run the model on these inputs.
        """
        import torch
        from torch.utils import _pytree as pytree

        tensors = _tensors((args, kwargs))
        names = [one.name for one in self.session.get_inputs()]
        if len(tensors) != len(names):
            raise ModelError(
                f"{len(tensors)} tensors are given and the exported model has the inputs "
                f"{', '.join(names) or '(none)'}: give those of the export, in its order"
            )
        arrays = (one.detach().cpu().contiguous().numpy() for one in tensors)
        outputs = iter(self.session.run(None, dict(zip(names, arrays, strict=True))))
        leaves = [
            torch.from_numpy(next(outputs)) if constant is None else constant[0]
            for constant in self._constants
        ]
        return pytree.tree_unflatten(leaves, self._structure)

    def __repr__(self) -> str:
        return f"OptimizedModule({self.result.report})"


def optimize(
    module: torch.nn.Module,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
    dynamo: bool = True,
    tolerance: float = _TOLERANCE,
    **options: Any,
) -> OptimizedModule:
    """Export a module, optimise it, and open it in onnxruntime.

    The optimised model is compared with the exported one as any model is, and once more with the
    module itself on the given arguments, since exporters have faults too.

    Args:
        module: the module, in evaluation mode.
        args: its positional arguments, as for `torch.onnx.export`; they are the example that is
            exported and checked.
        kwargs: its keyword arguments.
        dynamic_shapes: sizes that stay symbolic, as for `torch.onnx.export`.
        dynamo: export by `torch.export`; otherwise by tracing, without ``dynamic_shapes``.
        tolerance: largest difference from the module, as a share of the maximum of an output.
        options: those of `eqsat_opt.optimize`.

    Raises:
        ModelError: the module is in training mode, or PyTorch cannot export it.
        OptionError: an option has no meaning, or PyTorch or its exporter is missing.
        CheckFailed: onnxruntime computes something else than the module.
    """
    try:
        import torch
    except ImportError as error:
        raise OptionError(
            f"eqsat_opt.torch needs PyTorch ({reason(error)}): pip install torch onnxscript"
        ) from None

    chosen = chosen_options(None, options)
    if module.training:
        raise ModelError("the module is in training mode, and dropout is random: call eval() first")
    given, named = tuple(args), dict(kwargs or {})
    with torch.no_grad():
        expected = module(*given, **named)
    exported = _exported(module, given, named, dynamic_shapes, dynamo=dynamo)
    result = api.run(exported, chosen)
    made = OptimizedModule(result, _opened(result, chosen), expected)
    _require_equal(made(*given, **named), expected, tolerance)
    return made


def _exported(
    module: torch.nn.Module,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    dynamic_shapes: Any,
    *,
    dynamo: bool,
) -> onnx_ir.Model:
    import torch

    if not dynamo and dynamic_shapes is not None:
        raise OptionError("dynamic_shapes needs dynamo=True: tracing fixes all sizes")
    file = BytesIO()
    try:
        if dynamo:
            program = torch.onnx.export(
                module, args, kwargs=kwargs, dynamo=True, dynamic_shapes=dynamic_shapes,
                verbose=False,
            )  # fmt: skip
            found: onnx_ir.Model = program.model
            return found
        with warnings.catch_warnings():  # the caller asked for what is deprecated
            warnings.simplefilter("ignore", DeprecationWarning)
            torch.onnx.export(
                module, args, file, kwargs=kwargs or None, dynamo=False, verbose=False
            )
    except ImportError as error:
        raise OptionError(f"PyTorch's exporter needs a package: {reason(error)}") from error
    except Exception as error:  # it raises whatever a module raises
        raise ModelError(
            f"PyTorch cannot export the module: {_cause(error)}; torch.onnx.export alone says more"
        ) from error
    return onnx_ir.from_proto(onnx.load_from_string(file.getvalue()))


def _cause(error: BaseException) -> str:
    """Return the first line of the first error of a chain; the later ones only frame it."""
    while error.__cause__ is not None:
        error = error.__cause__
    return printable(reason(error).strip().partition("\n")[0])


def _opened(result: api.Result, options: Options) -> Any:
    return session(result.model, threads=options.threads, custom_ops=options.custom_ops)


def _tensors(values: Any) -> list[torch.Tensor]:
    import torch
    from torch.utils import _pytree as pytree

    return [leaf for leaf in pytree.tree_leaves(values) if torch.is_tensor(leaf)]


def _require_equal(found: Any, expected: Any, tolerance: float) -> None:
    """Check that outputs are those of the module.

    Raises:
        CheckFailed: they are not.
    """
    import torch

    pairs = zip(_tensors(found), _tensors(expected), strict=True)
    for number, (ours, theirs) in enumerate(pairs):
        wanted = theirs.detach().cpu()
        if ours.shape != wanted.shape:
            raise CheckFailed(
                f"output {number} has the shape {tuple(ours.shape)}, and {tuple(wanted.shape)} in "
                "the module: the export is at fault if the exported model has it too"
            )
        scale = wanted.double().abs().nan_to_num(0, 0, 0).max().item() if wanted.numel() else 0.0
        if torch.allclose(
            ours.double(), wanted.double(), rtol=0, atol=tolerance * scale, equal_nan=True
        ):
            continue
        worst = (ours.double() - wanted.double()).abs().max().item()
        raise CheckFailed(
            f"output {number} differs from the module's by up to {worst:.1e}, where "
            f"{tolerance * scale:.1e} is allowed: a larger tolerance accepts it"
        )
