"""The facts of `test_hostile`, on PostgreSQL."""

from tests.memory_server.test_hostile import *  # noqa: F403
