"""Boosted trees on the rows that a question may see: lists over time, history, own columns, and
the trees' answers."""
