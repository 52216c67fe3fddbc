"""Stand-ins for what is not here; for tests only, never in the package."""
