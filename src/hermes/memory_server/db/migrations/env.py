"""Alembic's door: it works on the connection that `db.schema` hands over, inside its transaction."""

from __future__ import annotations

from alembic import context

from hermes.memory_server.db.tables import metadata

connection = context.config.attributes["connection"]
context.configure(connection=connection, target_metadata=metadata, transactional_ddl=False)
context.run_migrations()
