"""The command `eqsat-opt compare`: its options, tables and plots."""

__all__: list[str] = []
