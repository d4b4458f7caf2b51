"""The facts of `test_routes`, on PostgreSQL."""

from tests.memory_server.test_routes import *  # noqa: F403
