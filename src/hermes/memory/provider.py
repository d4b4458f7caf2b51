"""The two faces of a memory provider, and the little of the host that it sees. Neither side knows anything else.

    turn ──commit──> outbox row ──any process──> plugin.deliver ──> the provider's server
    turn ──until───> session.recall ──> parts, fenced, in this one request
    turn ──after───> session.prepare ──> what the next recall finds ready

Threads: every hook runs on the plugin's one event loop, in a thread of its own; there is one per process and profile. A
hook must not block that loop: use an async client, or `asyncio.to_thread`, which has 16 threads.

Time: `until` is a moment of `host.clock`. A hook returns by then with what it has; one that does not is cancelled.

Errors: what a hook raises is logged once with the provider's name, and told to the owner when it starts and when it
ends. The turn goes on. What `deliver` raises is a defect: the entries come again, alone from the third time on,
and are parked after the fifth.
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
from hermes.memory.values import Parked as Parked
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
"""The end of a line of trouble about a file, while the provider works by what it read earlier."""


class Acquaintance(Struct, frozen=True):
    """Someone who talks on a chat platform, or may."""

    platform: str
    user_id: str
    name: str = ""
    is_owner: bool = False
    is_marked: bool = False
    """Whether anybody has said who it is; until then it is a guest."""

    @property
    def who(self) -> str:
        return f"{self.platform}:{self.user_id}"


class KnownAs(Struct, frozen=True):
    """An account of a chat platform, and who that is to a provider."""

    account: Acquaintance
    peer: str
    by: str
    """The rule that says so."""
    reads: str
    """What is recalled for it."""


class SettingInForce(Struct, frozen=True):
    """A setting of a provider with its value, without secrets, and where that comes from."""

    setting: Setting[Any]
    value: Json
    origin: str
    question: str = ""
    """What a page asks about it at first sight; "" for a setting that few people change."""
    choices: Mapping[str, str] = field(default_factory=dict)
    """Usual values, and what each means."""


class MappingPreview(Struct, frozen=True):
    """What changes when an account becomes another peer."""

    account: str
    before: str
    after: str
    known: str
    """What is known of the peer before, in words; "" for nothing."""
    can_merge: bool
    """Whether that can become the new peer's."""
    makes_owner: bool
    """Whether it is the owner's own peer, so that the account would read all that is known of the owner."""


class Host(Protocol):
    """What a plugin is made with."""

    @property
    def home(self) -> Path: ...

    @property
    def profile(self) -> str | None: ...

    @property
    def env(self) -> Mapping[str, str]:
        """The environment, with `.env` of the home below it."""

    @property
    def clock(self) -> Clock: ...

    @property
    def is_chosen(self) -> bool:
        """Whether a person chose this provider. One that is merely the default sends nothing off this machine."""

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        """Run `work` on the plugin's loop beside the hooks; it is cancelled at shutdown. At most 64 at a time: one more
        raises ProviderError."""

    async def put(self, session_id: str, key: str, data: Json, speaker: Speaker | None = None) -> str:
        """Commit an `own` entry of a conversation; it is delivered as soon as possible, after all that was recorded
        before it. Returns a ticket for `outcome`. The same key twice is one entry, until a week after its delivery.

        Raises StoreError when nothing was saved, ProviderError for an incognito conversation or data over 64,000
        characters.
        """

    async def outcome(self, ticket: str, until: float) -> Delivered | Parked | None:
        """What became of an entry, whichever process delivered it; None while it is still queued at `until`."""

    def trouble(self, about: str, line: str | None) -> None:
        """Say once that something is wrong, and with None that it is over. Never put a secret into it. A line that ends
        with `STILL_IN_FORCE` says that memory goes on all the same."""

    async def ask_model(self, instructions: str, text: str, until: float) -> str:
        """Have the configured model answer once, without tools and without a trace in the conversation. Raises
        ProviderError where there is none, it fails or is late: go on without."""

    def locked(self, path: Path, until: float) -> AbstractAsyncContextManager[None]:
        """Hold the lock `<path>.lock`, which other processes take too. Raises TimeoutError at `until`."""

    async def kept(self, key: str) -> Json:
        """What was kept under `key`, or None."""

    async def keep(self, key: str, value: Json) -> None:
        """Keep a small value durably, for this provider and profile; None keeps nothing any more."""

    async def conversations(self) -> Sequence[Conversation]:
        """Every conversation of this profile that the provider was told of, as it was known last, with `bound`."""

    async def people(self) -> Sequence[Acquaintance]:
        """Everyone who has talked on a chat platform of this profile."""


class MemorySession(ABC):
    """One conversation's view of memory, made by `open`. It may be closed and opened again at any time, anywhere."""

    prompt_block: str = ""
    """A text for the system prompt, the same for the life of the session."""
    block_without_tools: str | None = None
    """The same for a model that is offered no tools; None where nothing in it speaks of them."""
    tools: Sequence[ToolSpec] = ()
    """Tools that the model may call, the same for the life of the session."""

    async def prepare(self, question: Question | None) -> None:
        """Do the slow work for the next `recall`, off the turn, for up to 120 s: None right after `open`, then the
        question of each turn that memory may know. One at a time; of those that wait the newest runs."""

    @abstractmethod
    async def recall(self, question: Question) -> Recalled:
        """Once per turn, while a person waits: what is there by `question.until`, within the conversation's `reach`."""

    async def call_tool(self, use: ToolUse, speaker: Speaker) -> str:
        """Run one of `tools`, in 30 s, for who spoke last. The text goes to the model; raise when it failed."""
        raise NotImplementedError(use.name)

    async def before_compress(self, leaving: Sequence[Message], until: float) -> None:
        """These messages are about to leave the window; none of them is incognito."""

    async def retitled(self, title: str) -> None:
        """The person named the conversation. That never moves it."""

    async def close(self, why: Ending, until: float) -> None:
        """The last call. It creates nothing on a server: what is in the outbox is delivered without it."""


class Dialog(Protocol):
    """How a set-up talks with a person."""

    @property
    def can_ask(self) -> bool:
        """Whether anybody is there to answer."""

    def ask(self, text: str, default: str = "", *, secret: bool = False) -> str: ...

    def choose(self, text: str, options: Mapping[str, str], default: str) -> str:
        """One of the options: a word for each, and what it means."""

    def say(self, text: str) -> None: ...


class Desk(Protocol):
    """Where a plugin's commands do their work."""

    @property
    def dialog(self) -> Dialog: ...

    def of_profile(self, name: str) -> Desk:
        """The desk of another profile of this installation; `default` is one too."""

    @property
    def platforms(self) -> Sequence[str]:
        """The chat platforms that are configured, the API among them."""

    def people(self) -> Sequence[Acquaintance]:
        """Everyone who talks on them, or may."""

    def mark_owner(self, people: Sequence[Acquaintance]) -> None:
        """The person says that these are accounts of the owner."""

    def print_lines(self, lines: Sequence[tuple[str, str]]) -> None:
        """Labels with their values, one below the other."""

    def print_table(self, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None: ...

    def print_json(self, value: Json) -> None: ...


class MemoryPlugin(ABC):
    """One provider, in one process and profile. Keep nothing in module globals: two profiles may share the module."""

    name: ClassVar[str]
    """How `memory.provider` calls it."""
    summary: ClassVar[str] = ""
    """What it is in a few words, for whoever chooses a provider."""
    settings: ClassVar[Sequence[Setting[Any]]] = ()
    """The keys of its own configuration: `hermes.settings` has the kinds."""

    def __init__(self, host: Host) -> None:
        """No I/O and no heavy import: every command of the profile may make one."""
        self.host = host

    @abstractmethod
    def is_available(self) -> bool:
        """Whether it is configured well enough to try, without the network. ProviderError says what is wrong."""

    async def start(self) -> None:
        """Make ready what `address` and `open` need, without the network: called once per process, after
        `is_available` and before every other hook. What it raises is said, and it is tried again later."""

    @abstractmethod
    def address(self, place: Conversation | Notebook) -> Address:
        """Where entries of a place go: a function of the settings and `place` alone. While it fails entries wait, and
        they are addressed when it works again."""

    @abstractmethod
    def open(self, conversation: Conversation, address: Address) -> MemorySession:
        """A session, without the network; thousands may be open. Temporary agents open none."""

    @abstractmethod
    async def deliver(self, entries: Sequence[Entry], until: float) -> Sequence[Outcome]:
        """Up to 50 entries of one lane, in order, whether or not a session is open; start no request that could outlive
        `until`. Outcomes for the first so many; an entry without one comes again, with `tried_at`."""

    async def warm_up(self, until: float) -> None:
        """A person sits down to talk: reach or start what the first question will need. Nobody waits for it, and what
        it raises is only logged: the first turn finds out by itself."""

    def cache_busting_signature(self) -> dict[str, Json] | None:
        """Values, as `provider.key`, that a session has frozen; asked before each message, so at most a `stat` per
        file. Sessions are opened anew when one changes."""
        return None

    async def status(self, until: float) -> Mapping[str, Json]:
        """Labels and values for `hermes memory status`, without secrets; the host adds the outbox."""
        return {}

    async def facts(self, whose: Notebook, query: FactQuery) -> Facts:
        """What it holds about the person of a notebook and about nobody else, the newest first. Who lists facts takes
        `correct` entries for them, delivered like any other: what holds is written before what was wrong goes."""
        return Facts(remark=f"{self.name} cannot list what it holds")

    async def fact_sources(self, whose: Notebook, fact: Fact) -> Sequence[FactSource]:
        """What people said that a fact was learnt from. With a fact that is forgotten, these go too."""
        return ()

    async def fact_changes(self, whose: Notebook, fact: Fact, *, undo: bool) -> Sequence[FactChange]:
        """The facts that a fact changed, was changed by or contradicts, the oldest change first; with `undo` after
        these changes were undone, so that both sides of each hold."""
        return ()

    async def portraits(self, whose: Notebook) -> Sequence[Portrait]:
        """The person of a notebook, and the agent as that person may see it. Nobody else."""
        return ()

    def backup_paths(self) -> Sequence[Path]:
        """Files that a backup of the home should hold beside the store."""
        return ()

    async def shutdown(self, until: float) -> None:
        """Close connections. Nothing is delivered after it."""

    # These are called by commands and the web page, on their own thread, and may block.

    def save_config(self, values: Mapping[str, Json]) -> Path:
        """Write settings where this provider keeps them, for their owner alone and in one step; keys that are not its
        own survive. Where they are now."""
        raise NotImplementedError(f"{self.name} keeps no configuration")

    def settings_in_force(self) -> Sequence[SettingInForce]:
        """The settings that `save_config` takes, as they are now. Without the network."""
        return ()

    def identify(self, people: Sequence[Acquaintance]) -> Sequence[KnownAs]:
        """Who these accounts are, and others that it was told of. Without the network."""
        return ()

    def preview_mapping(self, people: Sequence[Acquaintance], account: str, name: str) -> MappingPreview:
        """What changes when an account becomes the peer `name`. Raises HermesError where that is refused."""
        raise ProviderError(f"{self.name} maps no accounts", hint="")

    def map_account(self, desk: Desk, preview: MappingPreview, *, merge: bool, is_me: bool) -> None:
        """Let an account be another peer, as previewed. `merge`: what is known of the peer before becomes the new
        one's. `is_me`: the owner says that the account is his own."""
        raise ProviderError(f"{self.name} maps no accounts", hint="")

    def remarks(self, people: Sequence[Acquaintance]) -> Sequence[str]:
        """What the owner should know of the configuration, a line each, given who talks; without the network. It is
        said when a gateway starts, by `hermes memory status` and by `hermes doctor`."""
        return ()

    def setup(self, desk: Desk, arguments: Sequence[str]) -> None:
        """Ask a person for what it needs, and save it. `arguments` are what the command line had for it; HermesError
        says that nothing was saved. By default each of `settings` is asked for."""
        if arguments:
            raise UsageError(f"{self.name} takes no options here", hint="")
        ask = desk.dialog.ask
        if asked := {row.key: ask(row.help, str(row.default), secret=row.secret) for row in self.settings}:
            desk.dialog.say(f"Saved in {self.save_config(asked)}.")

    def find_remembered(self, wording: Wording) -> Holding:
        """What it holds in which these words stand, a few hundred things at a time. Nothing is changed."""
        return Holding(stays=(f"{self.name} cannot look for what it holds",))

    def peers(self) -> Sequence[str]:
        """The names under which it knows people, for a merge."""
        return ()

    def preview_merge(self, peer: str, into: str) -> str:
        """What would become another's, in a line. Nothing is changed. Raises ProviderError where it cannot be done."""
        raise ProviderError(f"{self.name} cannot merge what it knows of two people", hint="")

    def merge(self, peer: str, into: str) -> None:
        """Let one person become a part of another."""
        raise ProviderError(f"{self.name} cannot merge what it knows of two people", hint="")

    def forget(self, items: Sequence[Remembered]) -> None:
        """Delete what `find_remembered` found, and what was learnt from it alone. What is gone already is fine."""
        raise NotImplementedError(f"{self.name} cannot delete what it holds")

    def commands(self, desk: Desk) -> Any | None:
        """A `typer.Typer` for `hermes <name> …`. It is asked for while this provider is chosen."""
        return None

    def connect(self) -> Connect | None:
        """Signing in from a page, the same object each time; None for a provider that nobody signs in to."""
        return None


ConnectSource = Literal["cli", "web", "desktop"]
"""Where a person begins to sign in, for the provider's page."""


class ConnectStatus(Struct, frozen=True):
    """How a sign-in stands; `detail` says who is connected, or what went wrong. It holds no secret."""

    state: Literal["idle", "waiting", "connected", "error"]
    detail: str = ""


class Connect(Protocol):
    """Signing in of one profile, one at a time. Every method may be called from any thread, and may block."""

    def begin(self, source: ConnectSource) -> str:
        """Begin to wait, and return the page to open. Ends a sign-in that waited. Raises HermesError, in words."""

    def status(self) -> ConnectStatus:
        """Return how it stands. An error goes away by itself."""

    def callback(self, query: Mapping[str, str]) -> None:
        """Take what a browser brought back, where it did not come to the provider itself. It counts once. Raises
        ProviderError, in words."""

    def disconnect(self) -> None:
        """End what waits, and sign out. Doing it twice is fine."""
