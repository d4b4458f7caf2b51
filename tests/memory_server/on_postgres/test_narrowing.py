"""The facts of `test_narrowing`, on PostgreSQL."""

from tests.memory_server.test_narrowing import *  # noqa: F403
