"""`eqsat-opt train-graph`: the graph of a training step, from a model and a loss."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from eqsat_opt.cli import arguments as a
from eqsat_opt.cli.models.given import files_of, given
from eqsat_opt.cli.session import check_writable, output_console, write_json

__all__ = ["write_training_graph"]


def write_training_graph(
    model: a.Model,
    output: Annotated[
        str | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Where to write; by default NAME.training.onnx beside the model.",
            show_default=False,
        ),
    ] = None,
    loss: Annotated[
        str, typer.Option(metavar="NAME", help="cross_entropy (of logits and classes) or mse.")
    ] = "cross_entropy",
    optimizer: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="sgd, momentum, adam, adamw, or none for a graph that returns gradients.",
        ),
    ] = "adam",
    of: Annotated[
        str | None,
        typer.Option(
            "--of",
            metavar="OUTPUT",
            help="The output of the model that the loss reads, if it has several.",
            show_default=False,
        ),
    ] = None,
    class_axis: Annotated[
        int, typer.Option(metavar="AXIS", help="The axis of classes for cross_entropy.")
    ] = 1,
    train: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PATTERN",
            help="Train only parameters of this name; * stands for any text. Repeatable.",
            show_default=False,
        ),
    ] = None,
    freeze: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PATTERN",
            help="Keep parameters of this name constant; repeatable.",
            show_default=False,
        ),
    ] = None,
    accumulate: Annotated[
        int,
        typer.Option(
            metavar="N", help="Micro-batches of a step: gradients are added to given ones."
        ),
    ] = 1,
    momentum: Annotated[
        float, typer.Option(metavar="SHARE", help="What momentum keeps of the velocity.")
    ] = 0.9,
    beta1: Annotated[
        float, typer.Option(metavar="SHARE", help="What adam keeps of the first moment.")
    ] = 0.9,
    beta2: Annotated[
        float, typer.Option(metavar="SHARE", help="What adam keeps of the second moment.")
    ] = 0.999,
    epsilon: Annotated[
        float, typer.Option(metavar="X", help="What adam adds to the root of the second moment.")
    ] = 1e-8,
    weight_decay: Annotated[
        float, typer.Option(metavar="X", help="Weight decay; adamw separates it from gradients.")
    ] = 0.0,
    fix_shape: a.FixShape = None,
    json: a.Json = None,
    quiet: a.Quiet = False,
    debug: a.Debug = False,
) -> None:
    """Write the graph of a training step: loss, gradients and updated parameters in plain ONNX.

    A graph of onnxruntime-training is written with plain operators for its gradient operators.
    """
    from eqsat_opt.ir.onnx.files.load import load_model
    from eqsat_opt.ir.onnx.files.save import save_model
    from eqsat_opt.training.joint import TrainingOptions, training_graph
    from eqsat_opt.training.optimisers import OptimiserSettings
    from eqsat_opt.training.reading import lowered_model

    file = output or f"{os.path.splitext(model.removeprefix('zoo:'))[0]}.training.onnx"
    check_writable(file, files_of(model), noun="a file of the model")
    check_writable(json, (file, *files_of(model)), noun="another file of this run")
    options = TrainingOptions(
        loss=loss,
        optimiser=optimizer,
        settings=OptimiserSettings(
            momentum, beta1, beta2, epsilon=epsilon, weight_decay=weight_decay
        ),
        output=of,
        class_axis=class_axis,
        train=train or (),
        freeze=freeze or (),
        accumulate=accumulate,
        fixed=a.parse_fixed(fix_shape or ()),
    )
    loaded = load_model(given(model))
    plain = lowered_model(loaded)
    if plain is not loaded:
        told: dict[str, object] = {"nodes": sum(1 for _ in plain.graph)}
        text = f"{told['nodes']} nodes, gradient operators as plain ones"
        save_model(plain, file)
    else:
        made = training_graph(loaded, options)
        told, text = made.to_json(), str(made)
        save_model(made.model, file)
    if json is not None:
        write_json({"model": model, "output": file, **told}, json)
    if not quiet and json != "-":
        console = output_console()
        console.print(text, soft_wrap=True, markup=False, highlight=False)
        console.print(f"written to {file}", soft_wrap=True, markup=False)
