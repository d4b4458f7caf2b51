"""The history of the tables; `db.schema.open_schema` applies what is missing."""
