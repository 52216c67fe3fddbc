"""Costs of kernels: metrics, lower bounds, measured prices and the store that keeps them."""

from __future__ import annotations

from eqsat_opt.cost.metrics import LAUNCH_US, METRICS, TIME, Metric, metric_name

__all__ = ["LAUNCH_US", "METRICS", "TIME", "Metric", "metric_name"]
