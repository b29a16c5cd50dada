"""Packs: batches that are made before a training, in memory or in a folder, and replayed."""
