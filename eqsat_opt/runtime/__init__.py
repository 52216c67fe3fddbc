"""Running and measuring of models: inputs, plans, the timing protocol, and the backends."""

if not __name__.startswith("eqsat_opt."):
    raise ImportError("import eqsat_opt.runtime; the top-level link is for readers")

__all__: list[str] = []
