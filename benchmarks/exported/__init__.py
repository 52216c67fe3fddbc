"""Models that PyTorch's exporters write: what is exported, how, and what becomes of the files."""
