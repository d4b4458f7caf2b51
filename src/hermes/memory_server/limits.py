"""All limits of the API."""

from __future__ import annotations

NAME_PATTERN = r"^[a-zA-Z0-9_-]+$"
NAME_CHARS = 512
SCOPE_NAME_CHARS = 506
"""Six characters fewer than a peer's name, because the peer that represents a scope has a prefix."""
MESSAGE_CHARS = 25_000
MESSAGES_PER_CALL = 100
KEY_CHARS = 255
"""Length of an idempotency key of a request, a message or a conclusion."""
CONCLUSION_CHARS = 65_535
CONCLUSION_TOKENS = 8192
CONCLUSIONS_PER_CALL = 100
MAX_RESULTS = 100
"""Results of a search, a query or a representation."""
QUERY_CHARS = 10_000
CONTEXT_TOKENS = 100_000
MAX_OBSERVERS = 10
FILE_BYTES = 5_242_880
FILE_CHARS = 8_000_000
"""Characters of text extracted from an uploaded file."""
MAX_PARSERS = 2
"""Files that are parsed at the same time."""
PARSER_MEMORY_BYTES = 192 * 1024 * 1024
PARSER_CPU_SECONDS = 10
"""Address space and CPU time of the process that parses a file."""
PARSER_TIMEOUT_SECONDS = 30.0
PARSER_WAIT_SECONDS = 60.0
"""How long parsing a file may take, and how long it may wait for a free parser."""
TEXT_CHARS = 10_000
"""Length of a text without a specific limit, such as a line of a card; and the part of a search query that is used."""
SEARCH_CHARS = 25_000
REQUEST_BYTES = 16 * 1024 * 1024
"""Enough for a hundred messages of the maximum length, as JSON."""
MEMBERS_REQUEST_BYTES = 4 * 1024 * 1024
SMALL_REQUEST_BYTES = 1024 * 1024
"""Bodies of requests that name members, and of all other small requests."""
REQUESTS_BYTES = 24 * 1024 * 1024
"""Memory for the bodies of all requests that are being processed."""
LARGE_BODY_BYTES = 65_536
"""Larger bodies are counted before they are decoded, and decoded in a thread; larger responses are counted too."""
MAX_BODY_VALUES = 50_000
MAX_MEMBERS_BODY_VALUES = 20_000
MAX_IMPORT_BODY_VALUES = 250_000
"""JSON values in a large body. A member takes a few values; imported items list their sources."""
RESPONSES_BYTES = 32 * 1024 * 1024
"""Memory for all large responses that clients have not received yet."""
SEND_SECONDS = 30.0
"""A connection is closed if its client receives nothing of a response for this long."""
MAX_SCHEMA_PROPERTIES = 100
SCHEMA_CHARS = 65_536
ANSWER_CHARS = 65_536
"""Bounds of `response_format`, and of an answer of `chat`, which the properties of the schema share."""
REQUEST_SECONDS = 60.0
MAX_STATUS_SESSIONS = 1000
"""Sessions that the queue status lists separately."""
MAX_CONNECTIONS = 1000
"""Fewer if the process may open fewer than twice as many files."""
HEAD_SECONDS = 10.0
HEAD_BYTES = 65_536
MAX_PROBLEMS = 20
INPUT_CHARS = 500
"""Problems of a request that an error lists, and the length of the input that it quotes for each."""
MAX_IMPORT_ITEMS = 100
"""Items in one import request."""
MAX_SOURCES = 100_000
"""Messages, conclusions or scopes that an imported item may list."""
SUMMARY_CHARS = 100_000
MAX_MEMBERS = 5000
"""Validating more members would delay other requests noticeably."""
CARD_LINES = 1000
METADATA_CHARS = 100_000
CONFIGURATION_CHARS = 100_000
MAX_WEBHOOKS = 10
URL_CHARS = 2048
MAX_OAUTH_CLIENTS = 100
MAX_REDIRECTS = 10
MAX_SIGN_INS = 100
"""Sign-in requests that await a decision at the same time."""
MAX_GRANTS = 1000
OAUTH_CHARS = 2048
"""Length of a sign-in parameter, such as `state`."""
FORM_BYTES = 16 * 1024
PERSON_CHARS = 100
SESSIONS_PER_RECALL = 1000
MAX_SCOPES = 100
READ_SECONDS = 10.0
"""How long a query or a filter may take. The first search after a start reads a million vectors within this time."""
FILTER_DEPTH = 5
MAX_FILTER_CONDITIONS = 500
"""Databases allow conditions to be nested about twice as deep."""
MAX_METADATA_KEYS = 100
METADATA_DEPTH = 5
INSTRUCTION_TOKENS = 2000
INSTRUCTION_CHARS = 50_000
PAGE_SIZE = 100
MAX_PAGES = 1_000_000_000
MAX_INTEGER = 2**63 - 1
"""Largest integer that a column stores."""
MAX_COUNT = 2**40
"""Largest initial value that an import may give to a counter: the sequence number of a message in its session, or how
often a conclusion was derived."""
