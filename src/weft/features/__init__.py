"""Vertex ids to rows of features."""
