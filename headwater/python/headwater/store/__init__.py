"""A store for people: its rows by their keys, contexts as trees, its metadata and sizes, and
whether it is whole."""
