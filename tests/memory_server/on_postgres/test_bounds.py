"""The facts of `test_bounds`, on PostgreSQL."""

from tests.memory_server.test_bounds import *  # noqa: F403
