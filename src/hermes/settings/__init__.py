"""The table of settings, from which validation, `hermes config` and docs/reference.md are made.

A row is a module-level `Setting`; `TABLE` collects them, so a new setting needs only a new row. `kinds` and
`compound_kinds` define value types, `layers` decides which value is in force. Memory plugins use the same types.
"""

from __future__ import annotations

from typing import Any

from hermes.errors import SettingsError
from hermes.settings.compound_kinds import Either, List, Map
from hermes.settings.kinds import Boolean, Choice, Integer, Number, Secret, Text, Url
from hermes.settings.layers import Settings as Settings
from hermes.settings.setting import Setting as Setting
from hermes.settings.setting import collect, nearest

LOCK_TIMEOUT = Setting(
    "store.lock_timeout",
    Number(0.1, 600.0),
    30.0,
    "Seconds to wait for another process that is writing to the store.",
    env="HERMES_LOCK_TIMEOUT",
    env_wins=True,
)

COLOR = Setting(
    "display.color",
    Choice(("auto", "always", "never")),
    "auto",
    "Colours in the terminal: automatically, always or never.",
    env="HERMES_COLOR",
    env_wins=True,
)
OWNER_NAME = Setting(
    "owner.name",
    Text(),
    "",
    "What you are called, in the headings of what memory recalls of you; no peer is named after it.",
    env="HERMES_OWNER_NAME",
    env_wins=True,
)
MEMORY_NOTICES = Setting(
    "display.memory_notices", Boolean(), True, "Show `💾 Memory updated` when a built-in note changes."
)
MARKDOWN = Setting(
    "display.markdown",
    Boolean(),
    True,
    "Render Markdown in replies. If off, and where lines cannot be redrawn, replies stay as they were written.",
)
SHOW_REASONING = Setting("display.reasoning", Boolean(), False, "Show the model's reasoning.")

BASE_URL = Setting(
    "model.base_url",
    Url(),
    "",
    "URL of the model's endpoint, any OpenAI-compatible one. Empty with a key set means OpenAI itself.",
    env="OPENAI_BASE_URL",
)
API_KEY = Setting("model.api_key", Secret(), "", "The endpoint's key, if it needs one.", env="OPENAI_API_KEY")
MODEL = Setting(
    "model.default",
    Text(),
    "",
    "The model's name. Empty selects the endpoint's first chat model.",
    env="HERMES_MODEL",
    env_wins=True,
    also=("model",),
)
CONTEXT_LENGTH = Setting(
    "model.context_length",
    Integer(1024),
    128_000,
    "Maximum tokens of request and reply together; if unset, the endpoint's value.",
)
MODEL_TIMEOUT = Setting(
    "model.timeout", Number(1.0), 120.0, "Seconds without any data from the endpoint after which a request fails."
)
MODEL_SILENCE = Setting(
    "model.silence",
    Number(1.0),
    300.0,
    "Seconds without a word of the reply, whatever else the endpoint sends, after which the request fails.",
)
MODEL_TOTAL = Setting("model.total_timeout", Number(1.0), 1800.0, "Maximum seconds for one whole reply of the model.")
SWITCH = Choice(("auto", "on", "off"), {"true": "on", "false": "off"})
MODEL_TOOLS = Setting(
    "model.tools",
    Either(SWITCH, Map(SWITCH)),
    "auto",
    "Whether a model is offered tools: `auto` if it passes a short test, which its first turn starts; or a map from "
    "model names to these values, with `*` for all others.",
    env="HERMES_MODEL_TOOLS",
    env_wins=True,
)
MAX_REPLY_CHARS = Setting(
    "model.longest_reply",
    Integer(1000),
    200_000,
    "Maximum characters of one reply, including reasoning and tool calls; a longer one is cut off.",
)

AGENT_NAME = Setting("agent.name", Text(), "main", "The agent's name in session keys.")
MAX_STEPS = Setting(
    "agent.max_steps",
    Integer(1, 10_000),
    30,
    "Maximum rounds of tool calls in one turn.",
    also=("agent.max_turns",),
)
MAX_CALLS = Setting(
    "agent.max_calls", Integer(1, 1000), 32, "Maximum tool calls of one reply that are run; the others are not."
)
MAX_REQUESTS = Setting(
    "agent.max_requests", Integer(1, 100_000), 200, "Maximum model requests of one turn, including those of sub-agents."
)
DELEGATE_STEPS = Setting("agent.delegate_steps", Integer(1, 100), 8, "Maximum rounds of tool calls of a sub-agent.")
DELEGATE_TIMEOUT = Setting("agent.delegate_timeout", Number(1.0), 120.0, "Maximum seconds for a sub-agent's task.")
TOOLS_OFF = Setting("agent.tools_off", List(Text()), (), "Tools that are neither offered nor callable.")

PROVIDER = Setting(
    "memory.provider",
    Text({"": "none"}),
    "honcho",
    "The external memory provider beside the built-in notes, or `none`. If unset, messages stay on this machine.",
    env="HERMES_MEMORY_PROVIDER",
)
MEMORY_DEADLINE = Setting("memory.deadline", Number(0.0, 60.0), 2.0, "Maximum seconds that a turn waits for memory.")
FIRST_DEADLINE = Setting(
    "memory.first_deadline",
    Number(0.0, 60.0),
    3.0,
    "The same for the first turn of a session. Unset, `hermes chat -q` waits up to 8 seconds: no turn follows.",
)
MEMORY_LIMIT = Setting(
    "memory.notes_limit",
    Integer(100),
    2200,
    "Maximum characters of MEMORY.md.",
    also=("memory.memory_char_limit",),
)
USER_LIMIT = Setting(
    "memory.user_limit", Integer(100), 1400, "Maximum characters of USER.md.", also=("memory.user_char_limit",)
)
REVIEW_EVERY = Setting(
    "memory.review_every",
    Integer(0),
    6,
    "Number of turns after which the background review reads a session; idle sessions are read too. 0 for never.",
)

MEMORY_IDLE = Setting(
    "memory.server_idle",
    Number(0.0, 31_536_000.0),
    900.0,
    "Seconds without use after which the background memory server ends, once it has nothing left to do; 0 for never. "
    "The default home's value applies to all profiles.",
    env="HERMES_MEMORY_SERVER_IDLE",
    env_wins=True,
)

MEMORY_DREAMS = Setting(
    "memory.dreams",
    Boolean(),
    True,
    "Whether the memory server revises its conclusions automatically, once enough is new and all is quiet. The "
    "default home's value applies to all profiles.",
    env="HERMES_MEMORY_DREAMS",
    env_wins=True,
)

FINER_EMBEDDER = Setting(
    "memory.finer_embedder",
    Choice(("minilm", "endpoint", "none")),
    "minilm",
    "Source of a second vector per message beside the word vector: `minilm`, which is included, an `endpoint` with "
    "OpenAI's /embeddings API, or none. For this and the next three, the default home's value applies to all profiles.",
    env="HERMES_FINER_EMBEDDER",
    env_wins=True,
)
EMBEDDINGS_URL = Setting(
    "memory.embeddings_url",
    Url(),
    "",
    "URL of the embeddings endpoint, up to /v1. Every message is sent to it.",
    env="HERMES_EMBEDDINGS_URL",
    env_wins=True,
)
EMBEDDINGS_MODEL = Setting(
    "memory.embeddings_model",
    Text(),
    "",
    "The endpoint's embedding model. After a change all messages are embedded again.",
)
EMBEDDINGS_KEY = Setting(
    "memory.embeddings_key",
    Secret(),
    "",
    "Key of the embeddings endpoint, if it needs one.",
    env="HERMES_EMBEDDINGS_KEY",
    env_wins=True,
)

COMPRESSION_ENABLED = Setting(
    "compression.enabled",
    Boolean(),
    True,
    "Compress long conversations automatically. If off, only on request, or if a request could not be sent.",
)
COMPRESSION_THRESHOLD = Setting(
    "compression.threshold",
    Number(0.1, 0.9),
    0.5,
    "Share of the model's window that a request may use before the conversation is compressed.",
)
KEEP_TURNS = Setting(
    "compression.keep_turns", Integer(1), 4, "Number of last turns that a compression leaves whole if they fit."
)
COMPRESSION_DEADLINE = Setting(
    "compression.deadline", Number(1.0), 180.0, "Maximum seconds for the model to write a summary."
)
COMPRESSION_IDLE = Setting(
    "compression.idle",
    Number(0.0),
    30.0,
    "Seconds after a turn until a long conversation is compressed before the next message; 0 for never.",
)

AUTO_TITLE = Setting(
    "sessions.auto_title",
    Boolean(),
    True,
    "Give a session a title after its first exchange, made by the model, or from the first words without one.",
    env="HERMES_AUTO_TITLE",
    env_wins=True,
)

ALLOW = Setting(
    "gateway.allow",
    List(Text()),
    (),
    "Who may write without pairing: a person or a group (`telegram:12345`), `telegram:*` or `*`.",
)
AGENTS = Setting(
    "gateway.agents",
    List(Text()),
    (),
    "Other bots that the agent answers in groups, such as `discord:12345`. They cannot be the owner or use commands.",
)
AGENT_REPLIES = Setting(
    "gateway.agent_replies",
    Integer(0),
    6,
    "Maximum consecutive replies to other agents. Then the agent waits for a person, and says so once.",
)
CHAT_NOTICES = Setting(
    "gateway.notices",
    Boolean(),
    True,
    "Show notices in chats, in one line after the reply; never in groups.",
)
MAX_CONCURRENT_CHATS = Setting(
    "gateway.at_once", Integer(1, 1000), 64, "Maximum chats that are answered at the same time."
)
CACHED_AGENTS = Setting("gateway.cached_agents", Integer(1), 1000, "Maximum agents that are kept in memory.")
AGENT_IDLE = Setting("gateway.agent_idle", Number(1.0), 1800.0, "Seconds after which an unused agent is closed.")
DRAIN = Setting("gateway.drain", Number(0.0), 20.0, "Seconds that running turns get to finish at shutdown.")

API_ENABLED = Setting(
    "api.enabled", Boolean(), False, "Serve the OpenAI-compatible HTTP API.", env="API_SERVER_ENABLED"
)
API_HOST = Setting("api.host", Text(), "127.0.0.1", "Address on which the HTTP API listens.", env="API_SERVER_HOST")
API_PORT = Setting(
    "api.port", Integer(0, 65535), 8642, "The HTTP API's port; 0 for any free one.", env="API_SERVER_PORT"
)
API_SERVER_KEY = Setting(
    "api.key",
    Secret(),
    "",
    "The key that clients of the HTTP API send; required if it listens beyond this machine.",
    env="API_SERVER_KEY",
)
API_USERS = Setting(
    "api.users",
    Choice(("label", "guests")),
    "label",
    "Meaning of `user` in a request: a label, while the key's holder is the owner; or a separate guest each.",
)
API_MEMORY = Setting(
    "api.memory",
    Choice(("off", "recall", "full")),
    "recall",
    "Memory for a request that names no session: none; `recall` reads memory and keeps nothing; `full` keeps messages "
    "too. A client can choose by the model's name: `hermes:off`, `hermes:recall`, `hermes:full`.",
)
API_TIMEOUT = Setting("api.timeout", Number(0.1), 30.0, "Maximum seconds for a client to send a request.")
API_CONNECTIONS = Setting("api.connections", Integer(1), 1000, "Maximum simultaneous connections to the HTTP API.")

TELEGRAM_TOKEN = Setting(
    "telegram.token", Secret(), "", "The bot's token; setting it switches Telegram on.", env="TELEGRAM_BOT_TOKEN"
)
TELEGRAM_BASE_URL = Setting(
    "telegram.base_url", Url(), "https://api.telegram.org", "The Bot API server.", env="TELEGRAM_BASE_URL"
)
TELEGRAM_WEBHOOK_URL = Setting(
    "telegram.webhook_url",
    Url(),
    "",
    "The public URL that Telegram posts to; empty for polling.",
    env="TELEGRAM_WEBHOOK_URL",
)
TELEGRAM_WEBHOOK_SECRET = Setting(
    "telegram.webhook_secret",
    Secret(),
    "",
    "Secret that Telegram sends with each post, so that nobody else can post.",
    env="TELEGRAM_WEBHOOK_SECRET",
)
TELEGRAM_WEBHOOK_PORT = Setting(
    "telegram.webhook_port", Integer(0, 65535), 8643, "The port on this machine that the webhook is served on."
)
TELEGRAM_MENTIONS = Setting(
    "telegram.mentions_only",
    Boolean(),
    True,
    "In groups, answer only when addressed: a mention, a reply, a command.",
)

DISCORD_TOKEN = Setting(
    "discord.token", Secret(), "", "The bot's token; setting it switches Discord on.", env="DISCORD_BOT_TOKEN"
)
DISCORD_BASE_URL = Setting("discord.base_url", Url(), "https://discord.com/api/v10", "The API of Discord.")
DISCORD_MENTIONS = Setting(
    "discord.mentions_only", Boolean(), True, "In servers, answer only when addressed: a mention or a reply."
)
SLACK_TOKEN = Setting(
    "slack.bot_token", Secret(), "", "The bot's token (xoxb-…); setting it switches Slack on.", env="SLACK_BOT_TOKEN"
)
SLACK_APP_TOKEN = Setting(
    "slack.app_token", Secret(), "", "The app-level token (xapp-…) that opens the websocket.", env="SLACK_APP_TOKEN"
)
SLACK_BASE_URL = Setting("slack.base_url", Url(), "https://slack.com/api", "The Web API of Slack.")
SLACK_MENTIONS = Setting(
    "slack.mentions_only",
    Boolean(),
    True,
    "In channels, answer only when addressed: a mention, or a reply in a thread.",
)
LATE_MESSAGES = Setting(
    "gateway.late_messages",
    Choice(("answer", "mark")),
    "answer",
    "Messages of Discord and Slack that were sent while no gateway ran: answer them like others, or mark them, so that "
    "the agent sees how long ago they were sent.",
)

LEVELS = ("debug", "info", "warning", "error")
LOG_LEVEL = Setting(
    "log.level",
    Choice(LEVELS, {**{level.upper(): level for level in LEVELS}, "CRITICAL": "error"}),
    "info",
    "Minimum level of logged messages.",
    also=("logging.level",),
)
LOG_FORMAT = Setting("log.format", Choice(("text", "json")), "text", "Log lines as text or as JSON.")

TABLE = collect(globals())


def secrets_in(settings: Settings) -> list[str]:
    """Return every secret value in force, such as keys, which a log must hide."""
    return [settings.get(setting) for setting in TABLE if isinstance(setting.kind, Secret)]


def find_setting(key: str) -> Setting[Any]:
    """Return the row called `key`. Raises SettingsError, which suggests a similar key or lists the neighbours."""
    for setting in TABLE:
        if key in setting.keys:
            return setting
    message = f"there is no setting '{key}'"
    if (meant := nearest(key, [setting.key for setting in TABLE])) is not None:
        raise SettingsError(f"{message} (did you mean {meant}?)")
    block = key.partition(".")[0]
    beside = [setting.key for setting in TABLE if setting.key.startswith(f"{block}.")]
    raise SettingsError(message, hint=f"'{block}' has {', '.join(beside)}" if beside else None)
