"""Low precision: implementations of products in integers, their prices and errors, and the choice.

The graph stays as extraction chose it. Each product with a constant matrix is a site with several
implementations, and one exact optimum chooses among all of them under a bound on the error of the
outputs.
"""

__all__: list[str] = []
