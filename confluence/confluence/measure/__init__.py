"""Measurements before a training: the parts of a step, its memory, and the advice that follows."""
