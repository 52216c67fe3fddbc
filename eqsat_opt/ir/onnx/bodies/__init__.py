"""The import of bodies of If, Loop and Scan."""

__all__: list[str] = []
