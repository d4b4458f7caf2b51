"""The facts of `test_snapshots`, on PostgreSQL."""

from tests.memory_server.test_snapshots import *  # noqa: F403
