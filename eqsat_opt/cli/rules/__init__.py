"""The command `eqsat-opt rules`: the book, its verification, and files of rules."""

__all__: list[str] = []
