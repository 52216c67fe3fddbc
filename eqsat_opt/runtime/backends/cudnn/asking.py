"""A process that asks cuDNN about absent devices.

It is a separate process because cuDNN aborts its process if cuBLAS is missing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from eqsat_opt.common.child_processes import answer_requests
from eqsat_opt.runtime.backends.cudnn.build import built, plans
from eqsat_opt.runtime.backends.cudnn.spec import spec_from_json

__all__ = ["serve"]


def serve() -> None:
    """Answer requests until there are no more."""
    import cudnn  # the parent has checked that the wheels are installed

    version = int(cudnn.backend_version())  # ends the process if the library is not found
    properties: dict[str, Any] = {}

    def answer(
        request: dict[str, Any], _: list[bytes]
    ) -> tuple[Mapping[str, Any], Sequence[bytes]]:
        text = request["description"]
        try:
            if text not in properties:
                properties[text] = cudnn.create_device_properties(text)
            spec = spec_from_json(request["spec"])
            graph = built(cudnn, spec, device_property=properties[text])
            found = list(plans(graph, request["most"]))
        except Exception as error:
            return {"version": version, "plans": [], "why": str(error)[-300:]}, ()
        return {"version": version, "plans": found}, ()

    answer_requests(answer)
