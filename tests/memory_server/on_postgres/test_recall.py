"""The facts of `test_recall`, on PostgreSQL."""

from tests.memory_server.test_recall import *  # noqa: F403
