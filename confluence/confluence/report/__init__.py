"""Reports on a run: its page, charts, tables, and the files of evaluations."""
