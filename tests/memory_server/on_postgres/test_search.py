"""The facts of `test_search`, on PostgreSQL."""

from tests.memory_server.test_search import *  # noqa: F403
