"""Batches from a store: the sampler, its options and seeds, passes over seeds, and batches as
arrays."""
