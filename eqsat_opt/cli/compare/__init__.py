"""`eqsat-opt compare`."""

__all__: list[str] = []
