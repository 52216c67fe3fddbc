"""Code that several backends share."""

__all__: list[str] = []
