"""Derivation of rules from other rules: both sides in one e-graph, until they meet."""

__all__: list[str] = []
