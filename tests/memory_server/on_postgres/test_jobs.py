"""The facts of `test_jobs`, on PostgreSQL."""

from tests.memory_server.test_jobs import *  # noqa: F403
