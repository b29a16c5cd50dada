"""The relational transformer: compact batches into cells, attention by three paths, heads, losses,
and its outputs."""
