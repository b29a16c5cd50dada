"""Primary and foreign keys of a draft, declared or inferred, with measured overlap.

keys.py              which columns are the key of a table, and which refer to one
overlaps.py          how many values of a column a key has
near_misses.py       columns that would refer to a key if they were written as it is
references.py        which key a column refers to
typed_references.py  keys whose table another column of the row names
value_tables.py      tables of values, for keys that no one table has
"""
