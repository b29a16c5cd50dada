"""From stores to batches on a device: tasks and their labels, the stores of a run, whether these
are whole, and what contexts cannot show."""
