"""The folder of a run: its files, its log and trackers, and its checkpoints."""
