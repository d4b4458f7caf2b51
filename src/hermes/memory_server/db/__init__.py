"""Tables, migrations, and access to the database: one SQLite file with one writer per process, or PostgreSQL."""
