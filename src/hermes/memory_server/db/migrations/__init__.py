"""The history of the tables; `db.schema.open_database` applies what is missing."""
