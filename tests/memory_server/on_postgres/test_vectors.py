"""The facts of `test_vectors`, on PostgreSQL."""

from tests.memory_server.test_vectors import *  # noqa: F403
