"""The Alembic environment. It uses the connection and the transaction that `db.schema` passes."""

from __future__ import annotations

from alembic import context

from hermes.memory_server.db.tables import metadata

connection = context.config.attributes["connection"]
context.configure(connection=connection, target_metadata=metadata, transactional_ddl=False)
context.run_migrations()
