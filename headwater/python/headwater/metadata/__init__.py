"""A person's description of a database: metadata.json as a Schema, its checks, and which tables are
read."""
