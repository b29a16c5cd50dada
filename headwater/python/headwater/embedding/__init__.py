"""Texts to vectors: their embedders, the cache, and the vectors of the previous store."""
