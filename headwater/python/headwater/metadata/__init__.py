"""What a person says about a database: metadata.json as a Schema, its checks, and which tables are
read."""
