"""The facts of `test_languages`, on PostgreSQL."""

from tests.memory_server.test_languages import *  # noqa: F403
