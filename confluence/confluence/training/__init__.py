"""Learning: the step, the optimizer, a session of steps with its log and checkpoints, and the
starts from other weights."""
