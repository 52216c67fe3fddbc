"""Application of rules to a model by phases within a budget, in this process or a child."""

__all__: list[str] = []
