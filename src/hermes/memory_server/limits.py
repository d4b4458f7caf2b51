"""Every limit of the API in one place."""

from __future__ import annotations

NAME_PATTERN = r"^[a-zA-Z0-9_-]+$"
NAME_LENGTH = 512
MESSAGE_CHARS = 25_000
MESSAGES_PER_CALL = 100
CONCLUSION_CHARS = 65_535
CONCLUSION_TOKENS = 8192
CONCLUSIONS_PER_CALL = 100
RESULTS = 100
"""How many results a search, a query or a representation may have."""
QUERY_CHARS = 10_000
CONTEXT_TOKENS = 100_000
OBSERVERS = 10
FILE_BYTES = 5_242_880
REQUEST_BYTES = 64 * 1024 * 1024
"""More than a hundred of the longest messages take, however they are written as JSON."""
WEBHOOKS = 10
URL_CHARS = 2048
SESSIONS_PER_RECALL = 1000
SCOPES = 100
READ_SECONDS = 10.0
"""How long a query or a filter may take. The first search after a start reads a million vectors within it."""
FILTER_DEPTH = 5
FILTER_CONDITIONS = 500
"""Databases nest conditions about twice as deep."""
METADATA_KEYS = 100
METADATA_DEPTH = 5
INSTRUCTION_TOKENS = 2000
PAGE_SIZE = 100
PAGES = 1_000_000_000
LARGEST_INTEGER = 2**63 - 1
"""What a column can hold."""
