"""Random models at the edges: special values, empty extents, every element type and opset."""
