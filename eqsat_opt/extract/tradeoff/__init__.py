"""Two metrics at once: products and quotients, and the plane that their fronts lie in."""

__all__: list[str] = []
