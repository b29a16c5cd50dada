"""From stores to batches on a device: tasks and their labels, the stores of a run, and
whether these are whole."""
