"""From stores to batches on a device: tasks and their labels, the stores of a run, packs of
batches, and whether all of these are whole."""
