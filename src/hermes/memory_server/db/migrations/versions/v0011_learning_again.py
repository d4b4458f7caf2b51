"""Retries of failed learning, summaries, dreams and scopes."""

from __future__ import annotations

from alembic import op

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    """Requeue these jobs. Peers deleted or merged since, and scopes that the session has left, learn nothing from
    them."""
    op.execute(
        """
        DELETE FROM job_observers WHERE EXISTS (
            SELECT 1 FROM jobs AS j
            WHERE j.id = job_observers.job_id AND j.state = 'failed' AND j.kind = 'representation'
            AND NOT EXISTS (SELECT 1 FROM peers AS p WHERE p.id = job_observers.peer_id AND p.kind = 'peer')
            AND NOT EXISTS (
                SELECT 1 FROM scope_sessions AS s
                WHERE s.scope_id = job_observers.peer_id AND s.session_id = j.session_id
            )
        )
        """
    )
    op.execute(
        "UPDATE jobs SET state = 'pending', not_before = 0, finished_at = NULL "
        "WHERE state = 'failed' AND kind IN ('representation', 'summary', 'dream', 'scope')"
    )
