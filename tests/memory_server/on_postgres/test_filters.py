"""The facts of `test_filters`, on PostgreSQL."""

from tests.memory_server.test_filters import *  # noqa: F403
