"""The interface of memory providers: two classes that a provider implements, and the parts of the host that it may
use.

    turn ──commit──> outbox row ──any process──> plugin.deliver ──> the provider's server
    turn ──until───> session.recall ──> parts, fenced, in this one request
    turn ──after───> session.prepare ──> prepared results for the next recall

Threads: every hook runs on the plugin's one event loop, in a separate thread; there is one per process and profile. A
hook must not block that loop: use an async client, or `asyncio.to_thread`, which has 16 threads.

Time: `until` is a time of `host.clock`. A hook returns by then with what it has; a late one is cancelled.

Errors: an error of a hook is logged once with the provider's name, and reported to the owner when it starts and when
it ends. The turn continues. An exception from `deliver` is a defect: the entries come again, one by one from the third
attempt on, and become dead letters (`DeadLetter`) after the fifth.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol

from msgspec import Struct, field

from hermes.clock import Clock
from hermes.errors import ProviderError, UsageError
from hermes.memory.values import Address as Address
from hermes.memory.values import Conversation as Conversation
from hermes.memory.values import DeadLetter as DeadLetter
from hermes.memory.values import Delivered as Delivered
from hermes.memory.values import Ending as Ending
from hermes.memory.values import Entry as Entry
from hermes.memory.values import EntryKind as EntryKind
from hermes.memory.values import Fact as Fact
from hermes.memory.values import FactChange as FactChange
from hermes.memory.values import FactQuery as FactQuery
from hermes.memory.values import Facts as Facts
from hermes.memory.values import FactSource as FactSource
from hermes.memory.values import Holding as Holding
from hermes.memory.values import Later as Later
from hermes.memory.values import Notebook as Notebook
from hermes.memory.values import Outcome as Outcome
from hermes.memory.values import Pace as Pace
from hermes.memory.values import Part as Part
from hermes.memory.values import Portrait as Portrait
from hermes.memory.values import Question as Question
from hermes.memory.values import Reach as Reach
from hermes.memory.values import Recalled as Recalled
from hermes.memory.values import Remembered as Remembered
from hermes.memory.values import Said as Said
from hermes.memory.values import Speaker as Speaker
from hermes.memory.values import ToolUse as ToolUse
from hermes.memory.values import Wording as Wording
from hermes.settings import Setting
from hermes.types import Json, Message, ToolSpec
from hermes.types import RecalledLine as RecalledLine

STILL_IN_FORCE = "what it said before is in force"
"""The ending of a trouble line about a file, while the provider uses the values that it read earlier."""


class Acquaintance(Struct, frozen=True):
    """A person who uses a chat platform, or may use it."""

    platform: str
    user_id: str
    name: str = ""
    is_owner: bool = False
    is_marked: bool = False
    """True once someone has said who it is; until then it is a guest."""

    @property
    def who(self) -> str:
        return f"{self.platform}:{self.user_id}"


class KnownAs(Struct, frozen=True):
    """An account of a chat platform, and the peer that a provider sees in it."""

    account: Acquaintance
    peer: str
    by: str
    """The rule that decided it."""
    reads: str
    """A description of what is recalled for it."""


class SettingInForce(Struct, frozen=True):
    """A provider's setting with its current value, without secrets, and the source of the value."""

    setting: Setting[Any]
    value: Json
    origin: str
    question: str = ""
    """The question that a page asks about it; "" for a setting that few people change."""
    choices: Mapping[str, str] = field(default_factory=dict)
    """Usual values with their meanings."""


class MappingPreview(Struct, frozen=True):
    """The effects of assigning an account to another peer."""

    account: str
    before: str
    after: str
    known: str
    """A description of what is known of the previous peer; "" for nothing."""
    can_merge: bool
    """True if it can be merged into the new peer."""
    makes_owner: bool
    """True if it is the owner's peer, so that the account would read everything known of the owner."""


class Host(Protocol):
    """The host, as a plugin sees it."""

    @property
    def home(self) -> Path: ...

    @property
    def profile(self) -> str | None: ...

    @property
    def env(self) -> Mapping[str, str]:
        """The environment; variables from `.env` of the home apply where it has none."""

    @property
    def clock(self) -> Clock: ...

    @property
    def is_chosen(self) -> bool:
        """True if a person chose this provider. One that is merely the default must send nothing off this machine."""

    @property
    def owner_name(self) -> str:
        """The owner's display name, on one line; "" if unknown. Not a peer name."""

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        """Run `work` on the plugin's loop in the background; it is cancelled at shutdown. Raises ProviderError if 64
        tasks run already."""

    async def put(self, session_id: str, key: str, data: Json, speaker: Speaker | None = None) -> str:
        """Commit an `own` entry of a conversation and return its ticket for `outcome`. It is delivered as soon as
        possible, after all entries recorded before it. Repeating a key has no effect until a week after the entry's
        delivery.

        Raises StoreError if nothing was saved, ProviderError for an incognito conversation or data over 64,000
        characters.
        """

    async def outcome(self, ticket: str, until: float) -> Delivered | DeadLetter | None:
        """Return the outcome of an entry, whichever process delivered it; None if it is still queued at `until`."""

    def trouble(self, about: str, line: str | None) -> None:
        """Report a problem once, or its end with None. Never include a secret. A line that ends with `STILL_IN_FORCE`
        means that memory still works."""

    async def ask_model(self, instructions: str, text: str, until: float) -> str:
        """Call the configured model once, without tools and without a trace in the conversation. Raises ProviderError
        without a model, on failure, or if it is late: continue without it."""

    def locked(self, path: Path, until: float) -> AbstractAsyncContextManager[None]:
        """Hold the lock `<path>.lock`, which other processes use too. Raises TimeoutError at `until`."""

    async def kept(self, key: str) -> Json:
        """Return the value stored under `key`, or None."""

    async def keep(self, key: str, value: Json) -> None:
        """Store a small value durably, for this provider and profile; None deletes it."""

    async def conversations(self) -> Sequence[Conversation]:
        """Return every conversation of this profile that the provider has received, in its last known state, with
        `bound`."""

    async def people(self) -> Sequence[Acquaintance]:
        """Return everyone who has used a chat platform of this profile."""


class MemorySession(ABC):
    """One conversation's access to memory, created by `open`. It may be closed and reopened at any time, in any
    process."""

    prompt_block: str = ""
    """A text for the system prompt, constant for the life of the session."""
    block_without_tools: str | None = None
    """The text for a model without tools; None if `prompt_block` does not mention them."""
    tools: Sequence[ToolSpec] = ()
    """Tools that the model may call, constant for the life of the session."""

    async def prepare(self, question: Question | None) -> None:
        """Do slow work for the next `recall` in the background, for up to 120 s: with None right after `open`, then
        with the question of each turn that memory may know. Calls never overlap; of waiting ones, only the newest
        runs."""

    @abstractmethod
    async def recall(self, question: Question) -> Recalled:
        """Return what is available by `question.until`, within the conversation's `reach`. Called once per turn, while
        a person waits."""

    async def call_tool(self, use: ToolUse, speaker: Speaker) -> str:
        """Run one of `tools` within 30 s, for the last speaker. The text goes to the model; raise on failure."""
        raise NotImplementedError(use.name)

    async def before_compress(self, leaving: Sequence[Message], until: float) -> None:
        """Receive the messages that are about to leave the window; none of them is incognito."""

    async def retitled(self, title: str) -> None:
        """Receive a title that the person gave. It never moves the conversation."""

    async def close(self, why: Ending, until: float) -> None:
        """End the session. Must not create anything on a server: outbox entries are delivered without it."""


class Dialog(Protocol):
    """A dialog with a person during set-up."""

    @property
    def can_ask(self) -> bool:
        """True if a person can answer."""

    def ask(self, text: str, default: str = "", *, secret: bool = False) -> str: ...

    def choose(self, text: str, options: Mapping[str, str], default: str) -> str:
        """Let the person choose an option; `options` maps each to its meaning."""

    def say(self, text: str) -> None: ...


class PluginConsole(Protocol):
    """The console of a plugin's commands."""

    @property
    def dialog(self) -> Dialog: ...

    def of_profile(self, name: str) -> PluginConsole:
        """Return the console of another profile of this installation, such as `default`."""

    @property
    def platforms(self) -> Sequence[str]:
        """The configured chat platforms, including the API."""

    def people(self) -> Sequence[Acquaintance]:
        """Return everyone who uses these platforms, or may use them."""

    def mark_owner(self, people: Sequence[Acquaintance]) -> None:
        """Record the person's statement that these are accounts of the owner."""

    def print_lines(self, lines: Sequence[tuple[str, str]]) -> None:
        """Print labels with their values, one per line."""

    def print_table(self, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None: ...

    def print_json(self, value: Json) -> None: ...


class MemoryPlugin(ABC):
    """A memory provider in one process and profile. Keep no state in module globals: two profiles may share the
    module."""

    name: ClassVar[str]
    """The provider's name in the setting `memory.provider`."""
    summary: ClassVar[str] = ""
    """A description in a few words, for people who choose a provider."""
    settings: ClassVar[Sequence[Setting[Any]]] = ()
    """The keys of the provider's own configuration; `hermes.settings` has their types."""

    def __init__(self, host: Host) -> None:
        """Store the host. Do no I/O and no heavy import here: every command of the profile may create a plugin."""
        self.host = host

    @abstractmethod
    def is_available(self) -> bool:
        """Return True if it is configured well enough to try, without the network. Raise ProviderError with the
        problem."""

    async def start(self) -> None:
        """Prepare for `address` and `open`, without the network. Called once per process, after `is_available` and
        before every other hook. An exception is reported, and the call is repeated later."""

    @abstractmethod
    def address(self, place: Conversation | Notebook) -> Address:
        """Return the destination of a place's entries, determined by the settings and `place` alone. While it fails,
        entries wait; they are addressed once it works."""

    @abstractmethod
    def open(self, conversation: Conversation, address: Address) -> MemorySession:
        """Create a session, without the network; thousands may be open. Temporary agents open none."""

    @abstractmethod
    async def deliver(self, entries: Sequence[Entry], until: float) -> Sequence[Outcome]:
        """Deliver up to 50 entries of one lane, in order, whether or not a session is open. Start no request that
        could outlive `until`. Return outcomes of the first entries; one without an outcome comes again, with
        `tried_at`."""

    async def warm_up(self, until: float) -> None:
        """Prepare for a person's first question, for example by starting or connecting a server. Nobody waits for it,
        and its errors are only logged: the first turn notices them itself."""

    def cache_busting_signature(self) -> dict[str, Json] | None:
        """Return values, as `provider.key`, that sessions depend on; when one changes, sessions are reopened. Called
        before each message, so do at most one `stat` per file."""
        return None

    async def status(self, until: float) -> Mapping[str, Json]:
        """Return labels and values for `hermes memory status`, without secrets; the host adds the outbox."""
        return {}

    async def facts(self, whose: Notebook, query: FactQuery) -> Facts:
        """Return facts about the person of a notebook and nobody else, newest first. A provider that lists facts
        accepts `correct` entries for them, and writes the right fact before it deletes the wrong one."""
        return Facts(remark=f"{self.name} cannot list what it holds")

    async def fact_sources(self, whose: Notebook, fact: Fact) -> Sequence[FactSource]:
        """Return the messages that a fact was learnt from; they are deleted when the fact is forgotten."""
        return ()

    async def fact_changes(self, whose: Notebook, fact: Fact, *, undo: bool) -> Sequence[FactChange]:
        """Return the facts that a fact changed, was changed by or contradicts, oldest change first. `undo` first
        reverts these changes, so that both sides of each are valid."""
        return ()

    async def portraits(self, whose: Notebook) -> Sequence[Portrait]:
        """Return summaries of a notebook's person, and of the agent as that person may see it; of nobody else."""
        return ()

    def backup_paths(self) -> Sequence[Path]:
        """Return files that a backup of the home should include beside the store."""
        return ()

    async def shutdown(self, until: float) -> None:
        """Close connections. Nothing is delivered afterwards."""

    # Called by commands and the web page, in their own thread; may block.

    def save_config(self, values: Mapping[str, Json]) -> Path:
        """Write settings to this provider's file, atomically and readable only by its owner; keep foreign keys. Return
        the file's path."""
        raise NotImplementedError(f"{self.name} keeps no configuration")

    def settings_in_force(self) -> Sequence[SettingInForce]:
        """Return the current values of the settings that `save_config` accepts, without the network."""
        return ()

    def identify(self, people: Sequence[Acquaintance]) -> Sequence[KnownAs]:
        """Return the peers of these accounts, and of others that it knows, without the network."""
        return ()

    def preview_mapping(self, people: Sequence[Acquaintance], account: str, name: str) -> MappingPreview:
        """Return the effects of assigning an account to the peer `name`. Raises HermesError if that is refused."""
        raise ProviderError(f"{self.name} maps no accounts", hint="")

    def map_account(self, console: PluginConsole, preview: MappingPreview, *, merge: bool, is_me: bool) -> None:
        """Assign an account to another peer, as previewed. `merge`: move what is known of the previous peer to the new
        one. `is_me`: the owner says that the account is his own."""
        raise ProviderError(f"{self.name} maps no accounts", hint="")

    def remarks(self, people: Sequence[Acquaintance]) -> Sequence[str]:
        """Return notices about the configuration for the owner, a line each, given the people who use it; without the
        network. They are shown when a gateway starts, by `hermes memory status` and by `hermes doctor`."""
        return ()

    def setup(self, console: PluginConsole, arguments: Sequence[str]) -> None:
        """Ask a person for the configuration, and save it. `arguments` come from the command line; a HermesError means
        that nothing was saved. By default, ask for each of `settings`."""
        if arguments:
            raise UsageError(f"{self.name} takes no options here", hint="")
        ask = console.dialog.ask
        if asked := {row.key: ask(row.help, str(row.default), secret=row.secret) for row in self.settings}:
            console.dialog.say(f"Saved in {self.save_config(asked)}.")

    def find_remembered(self, wording: Wording) -> Holding:
        """Find items that contain these words, a few hundred at a time, without changing anything."""
        return Holding(stays=(f"{self.name} cannot look for what it holds",))

    def peers(self) -> Sequence[str]:
        """Return the names of known people, for a merge."""
        return ()

    def preview_merge(self, peer: str, into: str) -> str:
        """Describe the effects of a merge in one line, without changing anything. Raises ProviderError if it is
        impossible."""
        raise ProviderError(f"{self.name} cannot merge what it knows of two people", hint="")

    def merge(self, peer: str, into: str) -> None:
        """Merge everything known of one person into another."""
        raise ProviderError(f"{self.name} cannot merge what it knows of two people", hint="")

    def forget(self, items: Sequence[Remembered]) -> None:
        """Delete items that `find_remembered` found, and what was learnt from them alone. Items already deleted are
        fine."""
        raise NotImplementedError(f"{self.name} cannot delete what it holds")

    def commands(self, console: PluginConsole) -> Any | None:
        """Return a `typer.Typer` for `hermes <name> …`. Called while this provider is chosen."""
        return None

    def connect(self) -> Connect | None:
        """Return the sign-in for web pages, the same object each time; None if the provider has none."""
        return None


ConnectSource = Literal["cli", "web", "desktop"]
"""The place where a person starts to sign in, for the provider's page."""


class ConnectStatus(Struct, frozen=True):
    """The state of a sign-in. `detail` says who is connected, or what went wrong; it contains no secret."""

    state: Literal["idle", "waiting", "connected", "error"]
    detail: str = ""


class Connect(Protocol):
    """The sign-in of one profile, one at a time. All methods may be called from any thread, and may block."""

    def begin(self, source: ConnectSource) -> str:
        """Start a sign-in and return the page to open; a pending one ends. Raises HermesError with the problem."""

    def status(self) -> ConnectStatus:
        """Return the state. An error state ends by itself."""

    def callback(self, query: Mapping[str, str]) -> None:
        """Receive the parameters of a browser's redirect, if it did not reach the provider itself. It counts once.
        Raises ProviderError with the problem."""

    def disconnect(self) -> None:
        """End a pending sign-in, and sign out. Repeating it is harmless."""
