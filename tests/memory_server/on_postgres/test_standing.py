"""The facts of `test_standing`, on PostgreSQL."""

from tests.memory_server.test_standing import *  # noqa: F403
