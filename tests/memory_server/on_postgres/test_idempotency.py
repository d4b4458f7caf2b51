"""The facts of `test_idempotency`, on PostgreSQL."""

from tests.memory_server.test_idempotency import *  # noqa: F403
