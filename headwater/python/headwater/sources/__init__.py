"""Where data comes from: tables of SQLite, PostgreSQL, DuckDB, files and Python, copied into one
DuckDB as they are."""
