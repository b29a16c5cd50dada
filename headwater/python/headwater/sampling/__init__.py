"""Batches from a store: the sampler and its options, pools of seeds, passes over seeds, loaders,
and batches as arrays."""
