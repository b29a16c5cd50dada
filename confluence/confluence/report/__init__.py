"""What is shown of a run: the page, charts and tables, and the files of evaluations."""
