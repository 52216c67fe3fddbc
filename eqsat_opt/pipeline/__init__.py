"""The main job: what the user asks for, and one module for each stage and each form of a result."""

__all__: list[str] = []
