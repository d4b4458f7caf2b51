"""The facts of `test_merging`, on PostgreSQL."""

from tests.memory_server.test_merging import *  # noqa: F403
