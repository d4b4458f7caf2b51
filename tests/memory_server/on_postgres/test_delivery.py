"""The facts of `test_delivery`, on PostgreSQL."""

from tests.memory_server.test_delivery import *  # noqa: F403
