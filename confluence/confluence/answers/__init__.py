"""From the outputs of a model to predictions: read out, averaged over runs, mixed with trees,
calibrated, written, and by keys."""
