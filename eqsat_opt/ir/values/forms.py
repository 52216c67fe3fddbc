"""Forms: the memory that holds the value of a tensor, and the order of its elements."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["PLAIN", "Form"]


@dataclass(frozen=True, slots=True, order=True)
class Form:
    """The memory and the layout of a value.

    Attributes:
        space: the memory: ``host``, or that of a runtime between its own kernels, such as ``ort``.
        layout: the order of the elements: ``plain`` is that of ONNX.
    """

    space: str = "host"
    layout: str = "plain"

    def __str__(self) -> str:
        return f"{self.space}/{self.layout}"

    @staticmethod
    def parse(text: str) -> Form:
        """Return the form that ``space/layout`` denotes.

        Raises:
            ValueError: the text is not ``space/layout``.
        """
        space, layout = text.split("/")
        return Form(space, layout)


PLAIN = Form()
