"""Rules of other systems: readers of their files, and a verdict on each rule."""

__all__: list[str] = []
