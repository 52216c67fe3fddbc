"""CUDA kernels on a CPU."""
