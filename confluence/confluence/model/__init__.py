"""The relational transformer: batches of any layout laid flat, attention by three paths, heads,
losses, and its outputs."""
