"""Level 1: what is compared at instances, and which class of numerics a rule earns."""

__all__: list[str] = []
