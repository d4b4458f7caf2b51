"""Every key of honcho.json, as one table: validation, help, the wizard, `status` and the reference page come from it.

A value is looked for in the host block, then at the root of the file, then in the variable, then it is the default.

Value kinds of honcho.json, beside those of other settings.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from hermes.errors import SettingsError
from hermes.honcho.identity import peer_text
from hermes.honcho.names import MAX_NAME_CHARS
from hermes.settings import Setting
from hermes.settings.compound_kinds import Either, List, Map, OpenFields, optional
from hermes.settings.kinds import Boolean, Choice, Integer, Kind, Number, RefusedValue, Secret, Text, Url
from hermes.settings.setting import collect


@dataclass(frozen=True, slots=True)
class WrittenText(Text):
    """Text given by a person. Numbers are refused: written in another way, they would be another name."""

    def parse(self, raw: object) -> str:
        if not isinstance(raw, str):
            raise self.refusal(raw)
        return Text.parse(self, raw)


@dataclass(frozen=True, slots=True)
class HonchoName(WrittenText):
    """The name of a workspace or peer. Characters that a name may not have become `-`; "" means unset."""

    def parse(self, raw: object) -> str:
        text = WrittenText.parse(self, raw)
        name = peer_text(text)
        if len(name) > MAX_NAME_CHARS or (text and not name.strip("-")):
            raise self.refusal(raw)
        return name

    def describe(self) -> str:
        return f"a name of letters, digits, `-` and `_`, at most {MAX_NAME_CHARS}"


@dataclass(frozen=True, slots=True)
class Prefix(WrittenText):
    """A prefix of ids, short enough to leave room for them."""

    def parse(self, raw: object) -> str:
        prefix = WrittenText.parse(self, raw)
        if len(prefix) > MAX_NAME_CHARS // 2:
            raise self.refusal(raw)
        return prefix

    def describe(self) -> str:
        return f"text of at most {MAX_NAME_CHARS // 2} characters"


@dataclass(frozen=True, slots=True)
class NonEmptyName(HonchoName):
    def parse(self, raw: object) -> str:
        name = HonchoName.parse(self, raw)
        if not name:
            raise self.refusal(raw)
        return name


@dataclass(frozen=True, slots=True)
class ApiKey(Secret):
    """A key that fits into a request header; surrounding spaces are dropped."""

    def parse(self, raw: object) -> str:
        key = Secret.parse(self, raw).strip() if isinstance(raw, str) else ""
        if not isinstance(raw, str) or not key.isascii() or not key.isprintable() or " " in key:
            raise self.refusal(raw)
        return key

    def describe(self) -> str:
        return "a key of letters, digits and signs"


@dataclass(frozen=True, slots=True)
class Capped(Integer):
    """A whole number. Values above `maximum`, the servers' limit, count as `maximum`."""

    def parse(self, raw: object) -> int:
        whole = Integer(self.minimum).parse(raw)
        return whole if self.maximum is None else min(whole, self.maximum)

    def describe(self) -> str:
        return f"{Integer.describe(self)} (more counts as that)"


@dataclass(frozen=True, slots=True)
class Seconds(Number):
    """A time span. Zero and negative numbers mean unset, as other versions write it."""

    def parse(self, raw: object) -> float:
        return max(Number(None, self.maximum).parse(raw), 0.0)


@dataclass(frozen=True, slots=True)
class Grant(Kind[Mapping[str, object] | None]):
    """The OAuth grant of a sign-in; an empty map means none. Only its client and expiry are shown."""

    @property
    def secret(self) -> bool:
        return True

    def parse(self, raw: object) -> Mapping[str, object] | None:
        if raw == {}:
            return None
        if not isinstance(raw, Mapping) or not isinstance(raw.get("refreshToken"), str):
            raise self.refusal(raw)
        return raw

    def describe(self) -> str:
        return "a map with at least refreshToken"

    def show(self, value: Any) -> Any:
        return {name: value[name] for name in ("clientId", "expiresAt") if name in value}


T_co = TypeVar("T_co", covariant=True)
LEVELS = ("minimal", "low", "medium", "high", "max")
MAX_QUESTION_CHARS, MAX_MESSAGE_CHARS = 10_000, 25_000
"""The longest question, and the longest message, that a Honcho server accepts."""
MAX_CONTEXT_TOKENS = 8_000
"""The most recalled context that the host accepts with a message; a server would send more."""
MAX_TIMEOUT_SECONDS = 600
BASE_PARTS = ("summary", "peerRepresentation", "peerCard", "aiRepresentation", "aiCard")


@dataclass(frozen=True, slots=True)
class Key(Setting[T_co]):
    scope: Literal["host", "shared"] = "host"
    """The place where commands write the key: the profile's host block, or the root that all profiles share."""
    frozen: bool = True
    """Whether open sessions keep the old value, so that a change reopens them."""

    def parse(self, raw: object, where: str, key: str = "") -> T_co:
        try:
            return Setting.parse(self, raw, where, key)
        except SettingsError as error:
            raise SettingsError(error.message, hint="`hermes honcho status` shows every key") from None

    def counted_as(self, raw: object) -> str | None:
        """Return a warning for a value that does not count as it was written; None for other values."""
        try:
            value = self.kind.parse(raw)
        except RefusedValue:  # `parse` reports it
            return None
        is_such = isinstance(self.kind, HonchoName) or (isinstance(value, int) and not isinstance(value, bool))
        if not is_such or str(raw) == str(value):
            return None
        return f"{self.key} is {self.kind.quote(raw)}, which counts as {value}"


API_KEY = Key(
    "apiKey",
    ApiKey(),
    "",
    "The server's key; after a sign-in it holds the access token. A local server gets it only from beside its "
    "`baseUrl` or from the host block.",
    env="HONCHO_API_KEY",
    frozen=False,
)
OAUTH = Key(
    "oauth",
    optional(Grant()),
    None,
    "The grant of a sign-in, whose token is in `apiKey` beside it. It is not written by hand.",
    frozen=False,
)
BASE_URL = Key(
    "baseUrl",
    Url(),
    "",
    "A self-hosted server. It needs a key only if it asks for one; `/v1` to `/v3` at the end is left out.",
    env="HONCHO_BASE_URL",
    frozen=False,
)
ENVIRONMENT = Key(
    "environment",
    Choice(("production", "local")),
    "production",
    "Which server without `baseUrl`: Honcho Cloud, or one on port 8000 of this machine.",
    env="HONCHO_ENVIRONMENT",
    frozen=False,
)
SERVER = Key(
    "server",
    Choice(("auto", "embedded")),
    "auto",
    "`auto` follows URL, key and environment, and is our own memory server where there is none; `embedded` is our own "
    "whatever they say.",
    frozen=False,
)
TIMEOUT = Key(
    "timeout",
    optional(Seconds(0, MAX_TIMEOUT_SECONDS)),
    None,
    "Seconds for one request to the server, and with `recallSync` for all that a turn waits for. Unset or 0: 30, up to "
    "110 for an answer that is thought about, 5 with `recallSync`. A turn never waits longer than its own deadline.",
    also=("requestTimeout",),
)
ENABLED = Key("enabled", optional(Boolean()), None, "Whether Honcho is used in this profile. Unset, it is.")
WORKSPACE = Key(
    "workspace",
    HonchoName(),
    "",
    "The workspace. Profiles in one workspace know the same people. Unset, it is the host key.",
)
PEER_NAME = Key("peerName", HonchoName(), "", "Your own peer. Unset, it is your login name.")
AI_PEER = Key("aiPeer", HonchoName(), "", "The agent's peer. Unset, it is the host key.")

PIN_USER_PEER = Key(
    "pinUserPeer",
    Boolean(),
    False,
    "Take all that comes from your own accounts for `peerName`, whatever aliases say.",
    also=("pinPeerName",),
)
PIN_GUESTS = Key("pinGuests", Boolean(), False, "Let the pin hold for guests too: everyone becomes `peerName`.")
USER_PEER_ALIASES = Key("userPeerAliases", Map(NonEmptyName()), {}, "Ids of platform users, each with the peer it is.")
RUNTIME_PEER_PREFIX = Key("runtimePeerPrefix", Prefix(), "", "What stands before the id of a user without an alias.")

RECALL_MODE = Key(
    "recallMode",
    Choice(("hybrid", "context", "tools"), {"auto": "hybrid"}),
    "hybrid",
    "What the model gets: recalled context and tools, context alone, or tools alone.",
)
RECALL_SYNC = Key(
    "recallSync",
    Boolean(),
    False,
    "Fetch base context and the dialectic answer with the message itself, before the model is called, instead of ahead "
    "of it. What comes too late is dropped. Evidence is always fetched so.",
)
QUERY_REWRITE = Key(
    "queryRewrite",
    Boolean(),
    False,
    "Have your own model turn the message into the first question about the person: one small call for each. When it "
    "fails, the usual question is asked.",
)
INJECTION = Key(
    "injection",
    OpenFields({"sessionStart": List(Choice(BASE_PARTS))}),
    {},
    f"`sessionStart` lists the parts of base context that are recalled: {', '.join(BASE_PARTS)}. Unset, all of them; "
    "an empty list, none.",
)
FIRST_TURN_BASE_WAIT = Key(
    "firstTurnBaseWait",
    optional(Number(0)),
    None,
    "Seconds that the first turn waits for base context, within `memory.first_deadline`; 0 does not wait. Unset, half "
    "of the time that evidence leaves.",
)
FIRST_TURN_DIALECTIC_WAIT = Key(
    "firstTurnDialecticWait", optional(Number(0)), None, "The same for the dialectic answer."
)
INIT_ON_SESSION_START = Key(
    "initOnSessionStart",
    Boolean(),
    True,
    "Accepted, and changes nothing: a conversation's session is always opened at its start.",
    frozen=False,
)
LOGGING = Key(
    "logging",
    Boolean(),
    False,
    "Write a line of JSON for each turn, with what was recalled, to `~/.honcho/injection.log` or the file that "
    "`HONCHO_INJECTION_LOG` names. Only its owner can read it.",
    env="HONCHO_LOGGING",
)
OBSERVATION_MODE = Key(
    "observationMode",
    Choice(("directional", "unified"), {"shared": "unified", "separate": "directional", "cross": "directional"}),
    "directional",
    "Who learns about whom: everyone about everyone, or you about yourself and the agent about you.",
)
_OBSERVED = OpenFields({"observeMe": Boolean(), "observeOthers": Boolean()})
OBSERVATION = Key(
    "observation",
    OpenFields({"user": _OBSERVED, "ai": _OBSERVED}),
    {},
    "The same for each peer; what it leaves out is as `observationMode` has it.",
)

WRITE_FREQUENCY = Key(
    "writeFrequency",
    Either(Choice(("async", "turn", "session")), Integer(1)),
    "async",
    "When what was said is sent: at once in the background, before the turn ends, when the conversation ends, or after "
    "so many turns.",
)
SAVE_MESSAGES = Key(
    "saveMessages",
    Boolean(),
    True,
    "Send what was said and replied, and changes of the notes. If false, only what tools write on request is sent.",
)

SESSION_STRATEGY = Key(
    "sessionStrategy",
    Choice(("per-directory", "per-session", "per-repo", "global")),
    "per-directory",
    "What a terminal's session is named after. Chats on a gateway are named after their key.",
)
SESSION_PEER_PREFIX = Key(
    "sessionPeerPrefix", Boolean(), False, "Put the person's peer before a session's name that was not given by hand."
)
SESSION_AI_PEER_PREFIX = Key(
    "sessionAiPeerPrefix", Boolean(), False, "Put the agent's peer before it, for several agents in one workspace."
)
A2A_SESSIONS = Key(
    "a2aSessions",
    Boolean(),
    True,
    "Keep what the agent and each other bot say to each other in a session of the two; false keeps none of it. "
    "`gateway.agents` names the bots that are heard.",
    frozen=False,
)
SESSIONS = Key(
    "sessions", Map(WrittenText()), {}, "Directories with the session's name that was given to each.", scope="shared"
)
NEW_SESSION_POLICY = Key(
    "newSessionPolicy",
    Choice(("keep", "rotate")),
    "keep",
    "What `/new` does to a chat's session at Honcho: go on in it, or begin another.",
)

DIALECTIC_DEPTH = Key("dialecticDepth", Integer(1, 3, clamped=True), 1, "Questions in a row about the person.")
DIALECTIC_DEPTH_LEVELS = Key(
    "dialecticDepthLevels",
    optional(List(Choice(LEVELS))),
    None,
    "How hard each of them is thought about. Unset, it follows `dialecticReasoningLevel`.",
)
DIALECTIC_REASONING_LEVEL = Key(
    "dialecticReasoningLevel", Choice(LEVELS), "low", "How hard a question is thought about."
)
DIALECTIC_DYNAMIC = Key("dialecticDynamic", Boolean(), True, "Let the model choose the level when it asks by itself.")
DIALECTIC_MAX_CHARS = Key("dialecticMaxChars", Integer(1), 600, "Characters of an answer that are recalled.")
DIALECTIC_MAX_INPUT_CHARS = Key(
    "dialecticMaxInputChars",
    Capped(1, MAX_QUESTION_CHARS),
    MAX_QUESTION_CHARS,
    "Characters of a question to the server.",
)
REASONING_HEURISTIC = Key("reasoningHeuristic", Boolean(), True, "Think harder about long questions.")
REASONING_LEVEL_CAP = Key(
    "reasoningLevelCap", Choice(LEVELS), "high", "How hard at most, when long questions raise it."
)

CONTEXT_TOKENS = Key(
    "contextTokens",
    optional(Capped(1, MAX_CONTEXT_TOKENS)),
    None,
    "Tokens of recalled context in a request. Unset, 1,000.",
)
MESSAGE_MAX_CHARS = Key(
    "messageMaxChars",
    Capped(1, MAX_MESSAGE_CHARS),
    MAX_MESSAGE_CHARS,
    "Characters of one message; longer ones are sent in pieces.",
)

CONTEXT_CADENCE = Key("contextCadence", Integer(1), 1, "Turns until the recalled context is fetched again.")
DIALECTIC_CADENCE = Key("dialecticCadence", Integer(1), 1, "Turns until the server is asked about the person again.")
INJECTION_FREQUENCY = Key(
    "injectionFrequency",
    Choice(("every-turn", "first-turn")),
    "every-turn",
    "Recall with every message, or with the first of a conversation alone.",
)

TABLE: tuple[Key[Any], ...] = tuple(row for row in collect(globals()) if isinstance(row, Key))
ENV_HOST = "HERMES_HONCHO_HOST"
"""The variable that names the host block."""
