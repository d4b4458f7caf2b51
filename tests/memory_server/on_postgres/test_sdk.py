"""The facts of `test_sdk`, on PostgreSQL."""

from tests.memory_server.test_sdk import *  # noqa: F403
