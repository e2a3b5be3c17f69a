"""Running PyG models, unchanged, on blocks."""
