"""The tables of a folder: which files are parts of which, and how parts that differ are one."""
