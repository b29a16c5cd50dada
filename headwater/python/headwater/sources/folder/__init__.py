"""The files of a folder: which are parts of which table, how parts that differ are one, and CSV.

table_files.py    which files make which table
part_union.py     parts that differ as one table
first_bytes.py    files that are not what their names promise
csv_files.py      the SQL that reads CSV files by their description
csv_detection.py  drafts that description; csv_rows.py, of rows that are not as the others
"""
