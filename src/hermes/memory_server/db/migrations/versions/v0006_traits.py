"""What a search knows of a message beside its vector; words of scripts without spaces are found."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from hermes.ranking.traits import traits_of
from hermes.ranking.words import segment

revision = "0006"
down_revision = "0005"
BATCH = 1000
MESSAGES = sa.text(
    "SELECT m.id, m.workspace_id, m.created_at, t.scope, m.content FROM messages m JOIN message_texts t ON t.id = m.id "
    "WHERE m.id > :last ORDER BY m.id LIMIT :most"
)
KNOW = sa.text("UPDATE message_vectors SET traits = :t, said_at = :at WHERE workspace_id = :w AND message_id = :id")
FORGET = sa.text(
    "INSERT INTO message_index (message_index, rowid, scope, content) VALUES ('delete', :id, :scope, :before)"
)
ADD = sa.text("INSERT INTO message_index (rowid, scope, content) VALUES (:id, :scope, :after)")


def upgrade() -> None:
    """Fill the columns from the messages there are, and index anew those whose words were not found."""
    for name in ("traits", "said_at"):
        op.add_column("message_vectors", sa.Column(name, sa.Integer, nullable=False, server_default="0"))
    connection = op.get_bind()
    last = 0
    while rows := connection.execute(MESSAGES, {"last": last, "most": BATCH}).all():
        connection.execute(KNOW, [{"t": traits_of(r.content), "at": r.created_at, "w": r[1], "id": r.id} for r in rows])
        respelled = [{"id": r.id, "scope": r.scope, "before": r.content, "after": segment(r.content)} for r in rows]
        respelled = [row for row in respelled if row["before"] != row["after"]]
        if respelled:
            connection.execute(FORGET, respelled)
            connection.execute(ADD, respelled)
        last = rows[-1].id
