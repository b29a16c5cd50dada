"""Watches a training: its log, meters of the machine, and the trackers that receive figures."""
