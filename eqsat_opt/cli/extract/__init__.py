"""`eqsat-opt extract`."""

__all__: list[str] = []
