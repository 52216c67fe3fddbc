"""`eqsat-opt run`: run a plan on given inputs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from eqsat_opt.cli import arguments as a
from eqsat_opt.cli.plan import PlanFile, resolved
from eqsat_opt.cli.session import Session, check_writable
from eqsat_opt.common.files import replacing
from eqsat_opt.common.paths import shown
from eqsat_opt.errors import CheckFailed, OptionError, reason

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["run_plan"]


def run_plan(
    context: typer.Context,
    plan: PlanFile,
    model: Annotated[
        str,
        typer.Option(
            "--model",
            metavar="MODEL",
            help="The model that holds the weights: a file, or zoo:NAME.",
            show_default=False,
        ),
    ],
    inputs: Annotated[
        str,
        typer.Option(
            "--inputs", metavar="FILE", help="Arrays by input name, .npz.", show_default=False
        ),
    ],
    outputs: Annotated[
        str,
        typer.Option(
            "--outputs", metavar="FILE", help="Where to write outputs, .npz.", show_default=False
        ),
    ],
    check: Annotated[
        bool,
        typer.Option(
            "--check",
            help="Also evaluate the plan as its operators are defined, which is slow; exit with 2 "
            "and write nothing if outputs differ.",
        ),
    ] = False,
    debug: a.Debug = False,
) -> None:
    """Run a plan once on given inputs, and write its outputs."""
    check_writable(outputs, [plan, model, inputs])
    from eqsat_opt.pipeline import plans

    executable = plans.load_plan(plan, resolved(model))
    feeds = _read_arrays(inputs)
    results = dict(zip(executable.output_names, executable.run(feeds), strict=True))
    if check:
        expected = dict(zip(executable.output_names, executable.reference(feeds), strict=True))
        differences = plans.differences(results, expected, executable.plan.precision)
        if differences:
            raise CheckFailed(f"the plan computes something else: {differences[0]}")
    _write_arrays(outputs, results)
    context.ensure_object(Session).written = outputs
    agree = "; they agree with the definition of the operators" if check else ""
    typer.echo(f"{', '.join(results)} written to {outputs}{agree}")


def _read_arrays(path: str) -> dict[str, Any]:
    import zipfile

    import numpy as np

    try:
        file = np.load(path, allow_pickle=False)
        if not isinstance(file, np.lib.npyio.NpzFile):
            raise OptionError(f"{shown(path)} holds one array without a name; write an .npz")
        with file:
            return {name: file[name] for name in file.files}
    except OSError as error:
        raise OptionError(f"cannot read {shown(path)}: {reason(error)}") from error
    except Exception as error:  # zipfile and NumPy raise unrelated types
        if isinstance(error, OptionError):
            raise
        # For a file that is no archive, NumPy's message recommends to load it as a pickle, which is
        # unsafe.
        why = f": {reason(error)}" if zipfile.is_zipfile(path) else ""
        raise OptionError(f"{shown(path)} is no .npz file of numbers{why}") from error


def _write_arrays(path: str, arrays: Mapping[str, Any]) -> None:
    import zipfile

    import numpy as np

    try:
        with replacing(path) as file, zipfile.ZipFile(file, "w") as archive:
            for name, array in arrays.items():  # numpy.savez refuses the names of its arguments
                with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                    np.lib.format.write_array(member, np.asanyarray(array), allow_pickle=False)
    except (OSError, ValueError) as error:
        raise OptionError(
            f"cannot write {shown(path)}: {reason(error)}; choose another place"
        ) from error
