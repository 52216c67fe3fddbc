"""What every room may use: files, deadlines, codecs, child processes, text, numerics classes."""

__all__: list[str] = []
