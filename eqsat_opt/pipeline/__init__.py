"""The main job: the user's options, its stages, and the forms of its result."""

__all__: list[str] = []
