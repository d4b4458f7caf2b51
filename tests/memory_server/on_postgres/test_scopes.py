"""The facts of `test_scopes`, on PostgreSQL."""

from tests.memory_server.test_scopes import *  # noqa: F403
