"""The values of a source's columns in numbers, the words of their names, and how far one column
determines another.

    column_facts.py  the counts by which a column is judged
    measure.py       makes them, by a query or two for each column
    formats.py       times that are not ISO 8601
    names.py         the words of a name
    association.py   how far one thing determines another
"""
