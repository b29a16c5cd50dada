"""From a source to a store: rows, edges, tasks and seeds, resumed after a kill and published at
once."""
