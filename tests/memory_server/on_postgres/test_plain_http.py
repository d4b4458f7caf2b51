"""The facts of `test_plain_http`, on PostgreSQL."""

from tests.memory_server.test_plain_http import *  # noqa: F403
