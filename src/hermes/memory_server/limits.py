"""Every limit of the API in one place."""

from __future__ import annotations

NAME_PATTERN = r"^[a-zA-Z0-9_-]+$"
NAME_LENGTH = 512
SCOPE_LENGTH = 506
"""The peer that a scope is has a prefix of six characters before this name."""
MESSAGE_CHARS = 25_000
MESSAGES_PER_CALL = 100
KEY_CHARS = 255
"""For a key that names a request, a message or a conclusion, so that it is not written twice."""
CONCLUSION_CHARS = 65_535
CONCLUSION_TOKENS = 8192
CONCLUSIONS_PER_CALL = 100
RESULTS = 100
"""How many results a search, a query or a representation may have."""
QUERY_CHARS = 10_000
CONTEXT_TOKENS = 100_000
OBSERVERS = 10
FILE_BYTES = 5_242_880
FILE_CHARS = 8_000_000
"""Characters that a file may unfold to."""
PARSERS = 2
"""How many files are read at the same time."""
PARSER_BYTES = 192 * 1024 * 1024
PARSER_SECONDS = 10
"""What reading one file may take of memory (addresses) and of a processor."""
PARSER_DEADLINE = 30.0
PARSER_WAIT = 60.0
"""Seconds that reading one file may last, and that it may wait for its turn."""
TEXT_CHARS = 10_000
"""A text that has no limit of its own, such as a line of a card; and how much is used of what is searched for."""
SEARCH_CHARS = 25_000
REQUEST_BYTES = 16 * 1024 * 1024
"""What a hundred of the longest messages take, as JSON."""
MEMBERS_REQUEST_BYTES = 4 * 1024 * 1024
SMALL_REQUEST_BYTES = 1024 * 1024
"""For requests that name members, and for all others."""
REQUESTS_BYTES = 24 * 1024 * 1024
"""What all requests that are being answered may hold together."""
LARGE_BODY_BYTES = 65_536
"""Larger bodies are counted before they are decoded, and decoded in a thread; larger responses are counted too."""
BODY_VALUES = 50_000
MEMBERS_BODY_VALUES = 20_000
IMPORT_BODY_VALUES = 250_000
"""How many JSON values a large body may hold. Members are a few values each; imported items name their sources."""
RESPONSES_BYTES = 32 * 1024 * 1024
"""What all large responses that clients have not taken yet may hold together."""
SEND_SECONDS = 30.0
"""A connection that takes nothing of a response for so long is closed."""
SCHEMA_PROPERTIES = 100
SCHEMA_CHARS = 65_536
ANSWER_CHARS = 65_536
"""For `response_format`, and for an answer of `chat`, which the properties of the schema share."""
REQUEST_SECONDS = 60.0
STATUS_SESSIONS = 1000
"""How many sessions the status of the queue tells apart."""
CONNECTIONS = 1000
"""Fewer where the system lets a process have few files open."""
HEAD_SECONDS = 10.0
HEAD_BYTES = 65_536
PROBLEMS = 20
INPUT_CHARS = 500
"""How many problems of a request are told, and how much of what was sent is shown with each."""
IMPORTED = 100
"""How many items an import takes at once."""
SOURCES = 100_000
"""How many messages, conclusions or scopes an imported item may name."""
SUMMARY_CHARS = 100_000
MEMBERS = 5000
"""More take so long to look at that others would notice."""
CARD_LINES = 1000
METADATA_CHARS = 100_000
CONFIGURATION_CHARS = 100_000
WEBHOOKS = 10
URL_CHARS = 2048
OAUTH_CLIENTS = 100
REDIRECTS = 10
SIGN_INS = 100
"""Requests to sign in that wait for a decision at the same time."""
GRANTS = 1000
OAUTH_CHARS = 2048
"""A parameter of a sign-in, such as `state`."""
FORM_BYTES = 16 * 1024
PERSON_CHARS = 100
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
INSTRUCTION_CHARS = 50_000
PAGE_SIZE = 100
PAGES = 1_000_000_000
LARGEST_INTEGER = 2**63 - 1
"""What a column can hold."""
LARGEST_COUNT = 2**40
"""What an import may say of a number that is counted on from: a message's place in its session, how often a conclusion
was derived."""
