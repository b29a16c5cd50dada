"""Boosted trees on what was visible to a question: lists over time, history, own columns, and what
they answer."""
