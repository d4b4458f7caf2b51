"""The facts of `test_truth`, on PostgreSQL."""

from tests.memory_server.test_truth import *  # noqa: F403
