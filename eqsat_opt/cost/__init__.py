"""Prices of kernels: metrics, bounds, measurements and their store."""
