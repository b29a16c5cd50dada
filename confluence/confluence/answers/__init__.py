"""From the outputs of a model to predictions: read out, averaged over runs, mixed with trees,
written, and by keys."""
