"""The relational transformer: batches of any layout laid flat, attention by four paths, heads,
losses, and its outputs."""
