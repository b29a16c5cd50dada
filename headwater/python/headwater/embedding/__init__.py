"""Texts to vectors: who embeds them, what is kept in the cache, and what the store before had."""
