"""Migrations in order; `db.schema.open_database` applies those that are missing."""
