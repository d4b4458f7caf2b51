"""The facts of `test_extensions`, on PostgreSQL."""

from tests.memory_server.test_extensions import *  # noqa: F403
