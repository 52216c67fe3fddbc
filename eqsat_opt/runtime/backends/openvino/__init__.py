"""OpenVINO, as a runtime of whole models."""

__all__: list[str] = []
