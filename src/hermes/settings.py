"""The one table of settings: validation, `hermes config`, `--help` and docs/configuration.md all come from it.

    config.yaml + environment ──resolve──> Settings ──get(SETTING)──> a value of the setting's type

A variable that starts with HERMES_ overrides the file, since it can only be meant for us; a variable shared with
other programs (OPENAI_API_KEY) only fills in what the file leaves open.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import Any, Generic, Literal, TypeAlias, TypeVar

from hermes.errors import SettingsError
from hermes.redaction import HIDDEN, hide_passwords, hide_url

T = TypeVar("T", str, int, float, bool)
Origin = Literal["file", "environment", "default"]

TRUE_WORDS = frozenset({"true", "yes", "on", "1"})
FALSE_WORDS = frozenset({"false", "no", "off", "0"})


@dataclass(frozen=True, slots=True)
class Setting(Generic[T]):
    """One row of the table. The type is the default's own."""

    name: str
    default: T
    help: str
    env: str | None = None
    choices: tuple[T, ...] = ()
    minimum: float | None = None
    maximum: float | None = None
    secret: bool = False
    url: bool = False
    """It may hold a password, which is not shown."""

    @property
    def kind(self) -> str:
        """The type's name as the docs print it."""
        return {bool: "true/false", int: "whole number", float: "number", str: "text"}[type(self.default)]

    @property
    def allowed(self) -> str:
        """What the setting takes, in words."""
        if self.choices:
            return "one of " + ", ".join(str(choice) for choice in self.choices)
        if self.minimum is not None and self.maximum is not None:
            return f"a {self.kind} from {self.minimum:g} to {self.maximum:g}"
        if self.minimum is not None:
            return f"a {self.kind} of at least {self.minimum:g}"
        if self.maximum is not None:
            return f"a {self.kind} of at most {self.maximum:g}"
        return {"text": "text", "true/false": "true or false"}.get(self.kind, f"a {self.kind}")

    @property
    def env_overrides(self) -> bool:
        """Whether the variable beats the file."""
        return self.env is not None and self.env.startswith("HERMES_")

    def parse(self, raw: object, where: str) -> T:
        """The value that `raw` means, or a SettingsError that names `where`, the value and what is allowed."""
        value = _convert(type(self.default), raw)
        if value is None or not self._in_range(value):
            raise SettingsError(f"{where}: {self.name} is {self._quote(raw)}, but takes {self.allowed}")
        return value

    def shown(self, value: T) -> T | str:
        """The value as a person may see it."""
        if self.secret and value:
            return HIDDEN
        return hide_url(str(value)) if self.url else value

    def _quote(self, raw: object) -> str:
        return HIDDEN if self.secret else hide_passwords(repr(raw))

    def _in_range(self, value: T) -> bool:
        if self.choices and value not in self.choices:
            return False
        if isinstance(value, bool | str):
            return True
        return (self.minimum is None or value >= self.minimum) and (self.maximum is None or value <= self.maximum)


def _convert(kind: type[T], raw: object) -> T | None:
    """`raw` as a value of `kind`, or None when it does not mean one."""
    if kind is bool:
        return _convert_bool(raw)
    if isinstance(raw, bool) or not isinstance(raw, str | int | float):
        return None
    try:
        if kind is str:
            return kind(raw)
        number = float(raw)
        return kind(raw if isinstance(raw, int) else number) if isfinite(number) and _fits(kind, number) else None
    except (ValueError, OverflowError):
        return None


def _fits(kind: type[T], number: float) -> bool:
    return kind is not int or number.is_integer()


def _convert_bool(raw: object) -> bool | None:
    if isinstance(raw, bool):
        return raw
    word = str(raw).strip().lower() if isinstance(raw, str | int) else ""
    return True if word in TRUE_WORDS else False if word in FALSE_WORDS else None


LOCK_TIMEOUT = Setting(
    "store.lock_timeout",
    30.0,
    "Seconds to wait for another process that is writing to the store.",
    env="HERMES_LOCK_TIMEOUT",
    minimum=0.1,
    maximum=600.0,
)
COLOR = Setting(
    "display.color",
    "auto",
    "Colours in the terminal: by itself, always or never.",
    env="HERMES_COLOR",
    choices=("auto", "always", "never"),
)

MEMORY_NOTICES = Setting("display.memory_notices", True, "Say `💾 Memory updated` when a built-in note changes.")
SHOW_REASONING = Setting("display.reasoning", False, "Show what the model thinks aloud.")
BASE_URL = Setting(
    "model.base_url",
    "",
    "Where the model answers: any OpenAI-compatible endpoint. Empty with a key set means OpenAI itself.",
    env="OPENAI_BASE_URL",
    url=True,
)
API_KEY = Setting("model.api_key", "", "The endpoint's key, where it needs one.", env="OPENAI_API_KEY", secret=True)
MODEL = Setting("model.default", "", "The model's name. Empty takes the endpoint's first one.", env="HERMES_MODEL")
CONTEXT_LENGTH = Setting(
    "model.context_length", 128_000, "How many tokens request and reply may have together.", minimum=1024
)
MODEL_TIMEOUT = Setting(
    "model.timeout", 120.0, "Seconds without a sign from the endpoint after which a request is given up.", minimum=1.0
)
MODEL_SILENCE = Setting(
    "model.silence",
    300.0,
    "Seconds without a word of the reply, whatever else the endpoint sends, after which it is given up.",
    minimum=1.0,
)
MODEL_TOTAL = Setting(
    "model.total_timeout", 1800.0, "Seconds that one reply of the model may take in all.", minimum=1.0
)
LONGEST_REPLY = Setting(
    "model.longest_reply",
    200_000,
    "Characters that one reply may have, thoughts and tool calls included; what is longer is cut off there.",
    minimum=1000,
)
MAX_CALLS = Setting(
    "agent.max_calls", 32, "Tool calls of one reply that are run; the others are not.", minimum=1, maximum=1000
)
MAX_STEPS = Setting("agent.max_steps", 30, "Rounds of tool calls in one turn at most.", minimum=1, maximum=500)
TOOLS_OFF = Setting("agent.tools_off", "", "Tools that are neither offered nor callable, separated by commas.")
PROVIDER = Setting(
    "memory.provider", "none", "The external memory provider beside the built-in notes; `none` for none."
)
MEMORY_DEADLINE = Setting(
    "memory.deadline", 2.0, "Seconds that a turn waits for memory at most.", minimum=0.0, maximum=60.0
)
FIRST_DEADLINE = Setting(
    "memory.first_deadline", 3.0, "The same for the first turn of a session.", minimum=0.0, maximum=60.0
)
MEMORY_LIMIT = Setting("memory.notes_limit", 2200, "Characters that MEMORY.md may have.", minimum=100)
USER_LIMIT = Setting("memory.user_limit", 1400, "Characters that USER.md may have.", minimum=100)
AGENT_NAME = Setting("agent.name", "main", "The agent's name in session keys.")
ALLOW = Setting(
    "gateway.allow",
    "",
    "Who may talk unpaired, separated by commas: a person or a group (`telegram:12345`), `telegram:*` or `*`.",
)
AT_ONCE = Setting("gateway.at_once", 64, "Chats that are answered at the same time.", minimum=1, maximum=1000)
CACHED_AGENTS = Setting("gateway.cached_agents", 1000, "Agents that are kept warm at most.", minimum=1)
AGENT_IDLE = Setting("gateway.agent_idle", 1800.0, "Seconds after which an unused agent is closed.", minimum=1.0)
DRAIN = Setting("gateway.drain", 20.0, "Seconds that running turns get to finish at shutdown.", minimum=0.0)
API_ENABLED = Setting("api.enabled", False, "Serve the OpenAI-compatible HTTP API.", env="API_SERVER_ENABLED")
API_HOST = Setting("api.host", "127.0.0.1", "Where the HTTP API listens.", env="API_SERVER_HOST")
API_PORT = Setting(
    "api.port", 8642, "The HTTP API's port; 0 for any free one.", env="API_SERVER_PORT", minimum=0, maximum=65535
)
API_SERVER_KEY = Setting(
    "api.key",
    "",
    "The key that clients of the HTTP API send; needed when it listens beyond this machine.",
    env="API_SERVER_KEY",
    secret=True,
)
API_TIMEOUT = Setting("api.timeout", 30.0, "Seconds that a client has to send a request.", minimum=0.1)
API_CONNECTIONS = Setting("api.connections", 1000, "Connections to the HTTP API at the same time.", minimum=1)
TELEGRAM_TOKEN = Setting(
    "telegram.token", "", "The bot's token; setting it switches Telegram on.", env="TELEGRAM_BOT_TOKEN", secret=True
)
TELEGRAM_BASE_URL = Setting(
    "telegram.base_url", "https://api.telegram.org", "The Bot API server.", env="TELEGRAM_BASE_URL", url=True
)
TELEGRAM_WEBHOOK_URL = Setting(
    "telegram.webhook_url",
    "",
    "The public URL that Telegram posts to; empty for polling.",
    env="TELEGRAM_WEBHOOK_URL",
    url=True,
)
TELEGRAM_WEBHOOK_SECRET = Setting(
    "telegram.webhook_secret",
    "",
    "What Telegram sends along with each post, so that nobody else can.",
    env="TELEGRAM_WEBHOOK_SECRET",
    secret=True,
)
TELEGRAM_WEBHOOK_PORT = Setting(
    "telegram.webhook_port", 8643, "The port on this machine that the webhook is served on.", minimum=0, maximum=65535
)
TELEGRAM_MENTIONS = Setting(
    "telegram.mentions_only", True, "In groups, answer only when addressed: a mention, a reply, a command."
)
COMPRESSION_THRESHOLD = Setting(
    "compression.threshold",
    0.5,
    "The part of the model's window that a request may use before the conversation is compressed.",
    minimum=0.1,
    maximum=0.9,
)
KEEP_TURNS = Setting(
    "compression.keep_turns", 4, "How many of the last turns a compression leaves whole where they fit.", minimum=1
)
COMPRESSION_DEADLINE = Setting(
    "compression.deadline", 180.0, "Seconds that the model may take for a summary.", minimum=1.0
)
COMPRESSION_IDLE = Setting(
    "compression.idle",
    30.0,
    "Seconds after a turn until a long conversation is compressed ahead of the next message; 0 for never.",
    minimum=0.0,
)
LOG_LEVEL = Setting("log.level", "info", "How much is logged.", choices=("debug", "info", "warning", "error"))
LOG_FORMAT = Setting("log.format", "text", "Lines of text or of JSON.", choices=("text", "json"))
REVIEW_EVERY = Setting(
    "memory.review_every", 6, "After how many turns the background review reads along; 0 for never.", minimum=0
)

Table: TypeAlias = Sequence[Setting[Any]]

TABLE: Table = (
    LOCK_TIMEOUT,
    COLOR,
    MEMORY_NOTICES,
    SHOW_REASONING,
    BASE_URL,
    API_KEY,
    MODEL,
    CONTEXT_LENGTH,
    MODEL_TIMEOUT,
    MODEL_SILENCE,
    MODEL_TOTAL,
    LONGEST_REPLY,
    MAX_STEPS,
    MAX_CALLS,
    TOOLS_OFF,
    PROVIDER,
    MEMORY_DEADLINE,
    FIRST_DEADLINE,
    MEMORY_LIMIT,
    USER_LIMIT,
    REVIEW_EVERY,
    AGENT_NAME,
    ALLOW,
    AT_ONCE,
    CACHED_AGENTS,
    AGENT_IDLE,
    DRAIN,
    API_ENABLED,
    API_HOST,
    API_PORT,
    API_SERVER_KEY,
    API_TIMEOUT,
    API_CONNECTIONS,
    TELEGRAM_TOKEN,
    TELEGRAM_BASE_URL,
    TELEGRAM_WEBHOOK_URL,
    TELEGRAM_WEBHOOK_SECRET,
    TELEGRAM_WEBHOOK_PORT,
    TELEGRAM_MENTIONS,
    COMPRESSION_THRESHOLD,
    KEEP_TURNS,
    COMPRESSION_DEADLINE,
    COMPRESSION_IDLE,
    LOG_LEVEL,
    LOG_FORMAT,
)


def find_setting(name: str) -> Setting[Any]:
    """The row called `name`, or a SettingsError that offers the nearest names."""
    for setting in TABLE:
        if setting.name == name:
            return setting
    raise SettingsError(f"there is no setting '{name}'{_nearest(name, TABLE)}")


def _nearest(name: str, table: Table) -> str:
    close = difflib.get_close_matches(name, [setting.name for setting in table], n=1)
    return f" (did you mean {close[0]}?)" if close else ""


@dataclass(frozen=True, slots=True)
class FileEntry:
    """One leaf of config.yaml and where it stands."""

    name: str
    value: object
    where: str


@dataclass(frozen=True, slots=True)
class Settings:
    """Every setting's value and where it came from."""

    values: Mapping[str, Any]
    origins: Mapping[str, Origin] = field(default_factory=dict)

    def get(self, setting: Setting[T]) -> T:
        """The value in force."""
        value: T = self.values[setting.name]
        return value

    def origin(self, setting: Setting[Any]) -> Origin:
        """Where the value in force came from."""
        return self.origins.get(setting.name, "default")


def problems(entries: Iterable[FileEntry], env: Mapping[str, str], table: Table = TABLE) -> list[SettingsError]:
    """Everything that is wrong with a configuration, for the doctor; empty when nothing is."""
    known = {setting.name: setting for setting in table}
    found: list[SettingsError] = []
    entries = list(entries)
    first: dict[str, FileEntry] = {}
    for entry in entries:
        if entry.name not in known and (problem := _misplaced(entry, table)) is not None:
            found.append(problem)
        if (before := first.setdefault(entry.name, entry)) is not entry:
            message = f"{entry.where}: {entry.name} stands there a second time (first: {before.where})"
            found.append(SettingsError(message, hint="Take one of the two out of the file"))
    for setting in table:
        try:
            _resolve_one(setting, {entry.name: entry for entry in entries}, env)
        except SettingsError as error:
            found.append(error)
    return found


def _misplaced(entry: FileEntry, table: Table) -> SettingsError | None:
    """What is wrong with a name that is no setting; nothing when it is a block that was left empty."""
    inside = [setting for setting in table if setting.name.startswith(f"{entry.name}.")]
    if not inside:
        return SettingsError(f"{entry.where}: unknown setting '{entry.name}'{_nearest(entry.name, table)}")
    if entry.value is None:
        return None
    shown = HIDDEN if any(setting.secret for setting in inside) else hide_passwords(repr(entry.value))
    names = ", ".join(setting.name for setting in inside)
    return SettingsError(f"{entry.where}: '{entry.name}' is {shown}, but takes a block of settings ({names})")


def resolve(entries: Iterable[FileEntry], env: Mapping[str, str], table: Table = TABLE) -> Settings:
    """The settings in force. Raises the first problem, and says how many more there are."""
    entries = list(entries)
    if found := problems(entries, env, table):
        more = f" (and {len(found) - 1} more: `hermes doctor` lists them)" if len(found) > 1 else ""
        raise SettingsError(found[0].message + more, hint=found[0].hint)
    by_name = {entry.name: entry for entry in entries}
    resolved = {setting.name: _resolve_one(setting, by_name, env) for setting in table}
    return Settings(
        values={name: value for name, (value, _) in resolved.items()},
        origins={name: origin for name, (_, origin) in resolved.items()},
    )


def resolve_what_is_right(entries: Iterable[FileEntry], env: Mapping[str, str], table: Table = TABLE) -> Settings:
    """The settings in force where they can be read; a wrong value counts as not given. For looking, not for running."""
    by_name = {entry.name: entry for entry in entries}
    resolved: dict[str, tuple[Any, Origin]] = {}
    for setting in table:
        try:
            resolved[setting.name] = _resolve_one(setting, by_name, env)
        except SettingsError:
            resolved[setting.name] = (setting.default, "default")
    return Settings(
        values={name: value for name, (value, _) in resolved.items()},
        origins={name: origin for name, (_, origin) in resolved.items()},
    )


def _resolve_one(setting: Setting[T], entries: Mapping[str, FileEntry], env: Mapping[str, str]) -> tuple[T, Origin]:
    entry = entries.get(setting.name)
    variable = env.get(setting.env) if setting.env else None
    left_open = entry is None or entry.value is None
    if variable and (left_open or setting.env_overrides):
        return setting.parse(variable, f"environment variable {setting.env}"), "environment"
    if entry is not None and entry.value is not None:
        return setting.parse(entry.value, entry.where), "file"
    return setting.default, "default"
