"""Forms: where the value of a tensor lies, and in which order its elements."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["PLAIN", "Form"]


@dataclass(frozen=True, slots=True, order=True)
class Form:
    """Where and how a value lies.

    Attributes:
        space: whose memory: ``host``, or that of a runtime between its own kernels, such as
            ``ort``.
        layout: the order of the elements: ``plain`` is that of ONNX.
    """

    space: str = "host"
    layout: str = "plain"

    def __str__(self) -> str:
        return f"{self.space}/{self.layout}"

    @staticmethod
    def parse(text: str) -> Form:
        """The form that is written like this.

        Raises:
            ValueError: it is not ``space/layout``.
        """
        space, layout = text.split("/")
        return Form(space, layout)


PLAIN = Form()
