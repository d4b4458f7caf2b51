"""The facts of `test_uploads`, on PostgreSQL."""

from tests.memory_server.test_uploads import *  # noqa: F403
