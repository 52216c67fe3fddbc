"""Tools that every room may use: files, deadlines, codecs, child processes, text."""

__all__: list[str] = []
