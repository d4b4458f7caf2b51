"""The facts of `test_limits`, on PostgreSQL."""

from tests.memory_server.test_limits import *  # noqa: F403
