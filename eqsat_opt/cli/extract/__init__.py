"""The command `eqsat-opt extract`: its options, files and tables."""

__all__: list[str] = []
