"""The hooks of `hermes.memory.provider.MemoryPlugin`, each delegated to a module of this package.

The configuration of a running process, read again when a file changes. While a file is invalid, the last valid
configuration stays in force.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from hermes.errors import HomeError, ProviderError, SettingsError
from hermes.home import Home
from hermes.honcho.addresses import find_address
from hermes.honcho.carrying import join_records, migrate_guests
from hermes.honcho.config_file import edit_document, set_keys
from hermes.honcho.configuration import HonchoConfiguration
from hermes.honcho.delivery import SWITCHED_OFF, Delivery
from hermes.honcho.facts import FactReader, to_source
from hermes.honcho.guests import GuestRecord, account_name, add_account, add_owners_peer, check_first, edit_guests
from hermes.honcho.identity import ResolvedPeer, describe_reach, everybody, find_peer
from hermes.honcho.injection import find_log
from hermes.honcho.keys import ENABLED, RECALL_MODE, SAVE_MESSAGES, TABLE, WRITE_FREQUENCY
from hermes.honcho.links import Links
from hermes.honcho.recall_reader import READ_TIMEOUT_SECONDS, RecallReader
from hermes.honcho.remarks import all_remarks, describe_auth
from hermes.honcho.renewal import RenewalTimings
from hermes.honcho.server import Machine, describe_server, find_server
from hermes.honcho.session import HonchoSession
from hermes.honcho.wire import DeliveryTimeouts
from hermes.memory.provider import (
    STILL_IN_FORCE,
    Acquaintance,
    Address,
    Connect,
    Conversation,
    Delivered,
    Entry,
    Fact,
    FactChange,
    FactQuery,
    Facts,
    FactSource,
    Holding,
    Host,
    KnownAs,
    MappingPreview,
    MemoryPlugin,
    MemorySession,
    Notebook,
    Outcome,
    PluginConsole,
    Portrait,
    Remembered,
    SettingInForce,
    Speaker,
    Wording,
)
from hermes.types import Json

if TYPE_CHECKING:
    from hermes.honcho.extensions import OwnersMerging

CARRIED = "guests carried over"
IN_PROJECT = "project/"
"""Prefix of the ids of items in a project's workspace, followed by the workspace's name."""
SHARED = "what is known under your name here is not only yours, so it is not listed; the agent's owner can change that"
"""The notice for a guest whose peer is also someone else's."""
CLOSING_SECONDS = 0.5
"""The part of a shutdown's time that is left for closing connections."""
FLUSH_POLICIES = {
    "async": "at once, in the background",
    "turn": "before each turn ends",
    "session": "when a conversation ends",
}


class HonchoPlugin(MemoryPlugin):
    """See `hermes.memory.provider.MemoryPlugin`."""

    name = "honcho"
    summary = "learns about people across conversations, on this machine or on a server"
    settings = TABLE
    timeouts = DeliveryTimeouts()
    timings = RenewalTimings()

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self.machine = Machine(Home(host.home, host.profile), host.env, host.is_chosen)
        self._connect: Connect | None = None
        self._kept_first: tuple[str, str] | None = None
        self._watch = Watch(self.machine, host.trouble)
        self.links = Links(self.machine, host.clock, self.configuration, self.timeouts, self.timings)
        """The server in force, shared by everything in this process."""
        self._delivery = Delivery(host, self.links, self.configuration, self.timeouts, self._meet)

    def is_available(self) -> bool:
        server = find_server(self.configuration())
        if server.lacks_key:
            hint = "`hermes honcho login` signs in, `hermes memory setup honcho` takes a key"
            raise ProviderError(f"Honcho ({server.shown}) needs a key or a sign-in", hint=hint)
        return True

    def configuration(self) -> HonchoConfiguration:
        """Return the configuration in force. Raises ProviderError until there has been a valid one."""
        try:
            return self._watch.current()
        except SettingsError as error:
            raise ProviderError(error.message, hint=error.hint) from error

    async def start(self) -> None:
        """Import the guests of an earlier version, once per workspace and profile."""
        config = self.configuration()
        if config.get(ENABLED) is False:
            return
        if carried := await self.host.kept(f"{CARRIED} {config.workspace}"):
            self._check_record(config, carried)
            return
        conversations, people = await self.host.conversations(), await self.host.people()

        def find_earlier(known: GuestRecord) -> GuestRecord:
            return migrate_guests(replace(config.identities, guests=known), config.workspace, conversations, people)

        found = find_earlier(config.guests)
        if found.accounts or found.mixed or found.owners:
            self._edit_guests(config, lambda known: join_records(known, find_earlier(known)))
        await self.host.keep(f"{CARRIED} {config.workspace}", True)

    def _check_record(self, config: HonchoConfiguration, first: Json) -> None:
        if not isinstance(first, str):
            return  # no guest was written of yet
        if lost := check_first(self.machine.places.guests, config.workspace, first, config.guests.first):
            raise ProviderError(lost.message, hint=lost.hint)

    async def _keep_first(self) -> None:
        """Store the guests' first platform in the host's store too, by which a lost record is detected."""
        config = self.configuration()
        if config.guests.first is not None and (config.workspace, config.guests.first) != self._kept_first:
            await self.host.keep(f"{CARRIED} {config.workspace}", config.guests.first)
            self._kept_first = (config.workspace, config.guests.first)

    def address(self, place: Conversation | Notebook) -> Address:
        self._meet(place.person, place.platform)
        return find_address(self.configuration(), place)

    def _meet(self, speaker: Speaker | None, platform: str | None) -> None:
        """Record a guest's account, or a new peer of it."""
        config = self.configuration()
        if not platform:
            return
        if speaker is not None and speaker.is_owner:
            peer = find_peer(config.identities, speaker, None, platform).name
            if not config.identities.is_own(peer):
                self._edit_guests(config, lambda known: add_owners_peer(known, peer))
            return
        user_id = None if speaker is None else speaker.user_id
        if config.guests.first is None:
            self._edit_guests(config, lambda known: replace(known, first=known.first or platform))
            config = self.configuration()
        account = account_name(platform, user_id or "")
        peer = find_peer(config.identities, Speaker(user_id), None, platform).name
        if user_id and not config.guests.lists(account, peer):
            self._edit_guests(config, lambda known: add_account(known, account, peer))

    def _edit_guests(self, config: HonchoConfiguration, change: Callable[[GuestRecord], GuestRecord]) -> None:
        def edit(known: GuestRecord) -> GuestRecord:
            return change(known if known.first is not None else config.guests)  # one that was lost is written again

        try:
            edit_guests(self.machine.places.guests, config.workspace, edit)
        except (HomeError, SettingsError) as error:
            raise ProviderError(error.message, hint=error.hint) from error

    def open(self, conversation: Conversation, address: Address) -> MemorySession:
        return HonchoSession(self.host, self.links, self.configuration(), conversation, address)

    async def deliver(self, entries: Sequence[Entry], until: float) -> Sequence[Outcome]:
        outcomes = await self._delivery.deliver(entries, until)
        if any(isinstance(one, Delivered) for one in outcomes):
            await self._keep_first()
        return outcomes

    async def warm_up(self, until: float) -> None:
        if self.configuration().get(ENABLED) is not False:
            await self.links.link(until)

    async def shutdown(self, until: float) -> None:
        await self.links.close(max(0.0, until - self.host.clock.now() - CLOSING_SECONDS))

    def cache_busting_signature(self) -> dict[str, Json] | None:
        return self.configuration().signature

    async def status(self, until: float) -> Mapping[str, Json]:
        config = self.configuration()
        server = find_server(config)
        seconds = max(0.1, until - self.host.clock.now() - 0.5)
        is_on = config.get(ENABLED) is not False
        access = await asyncio.to_thread(describe_server, config, self.machine, seconds)
        return {
            "honcho": server.shown,
            "access": access,
            "auth": describe_auth(config, self.host.clock.now()),
            "workspace": config.workspace,
            "you": config.identities.owner,
            "agent": config.identities.ai,
            "enabled": "yes" if is_on else "no: `hermes honcho enable` switches it on",
            "writing": _writing(config) if is_on else "nothing",
            "recall": config.get(RECALL_MODE) if is_on else "nothing",
        }

    async def facts(self, whose: Notebook, query: FactQuery) -> Facts:
        if whose.person is None:
            return Facts()  # a group's is nobody's own
        if self.configuration().get(ENABLED) is False:
            return Facts(remark=SWITCHED_OFF)
        if self._peer_of(whose).is_shared:
            return Facts(remark=SHARED)
        return await self._fact_reader(whose).find(query)

    async def fact_sources(self, whose: Notebook, fact: Fact) -> Sequence[FactSource]:
        if self._peer_of(whose).is_shared:
            return ()
        can_go = (await self.links.link(self.host.clock.now() + READ_TIMEOUT_SECONDS)).deletes_messages
        return [to_source(one, can_go=can_go) for one in await self._fact_reader(whose).sources(fact)]

    async def fact_changes(self, whose: Notebook, fact: Fact, *, undo: bool) -> Sequence[FactChange]:
        return () if self._peer_of(whose).is_shared else await self._fact_reader(whose).changes(fact, undo=undo)

    async def portraits(self, whose: Notebook) -> Sequence[Portrait]:
        config, peer = self.configuration(), self._peer_of(whose)
        if whose.person is None or peer.is_shared or config.get(ENABLED) is False:
            return ()
        draw = import_module("hermes.honcho.facts").draw_portraits  # by name: a conversation needs none
        reader = RecallReader(self.links, self.host.clock.now, config.workspace)
        found: Sequence[Portrait] = await draw(reader, peer.name, config.identities.ai, self._views(peer.name))
        return found

    def _views(self, peer: str) -> Sequence[str]:
        """Return the observers whose views of a peer are read, the agent first."""
        config = self.configuration()
        return [config.identities.ai, peer] if config.observation["ai"]["observeOthers"] else [peer]

    def _peer_of(self, whose: Notebook) -> ResolvedPeer:
        who = self.configuration().identities
        return find_peer(who, whose.person, whose.gateway_session_key, whose.platform)

    def _fact_reader(self, whose: Notebook) -> FactReader:
        config, peer = self.configuration(), self._peer_of(whose).name
        return FactReader(RecallReader(self.links, self.host.clock.now, config.workspace), peer, self._views(peer))

    def settings_in_force(self) -> Sequence[SettingInForce]:
        found: Sequence[SettingInForce] = self._wizard().settings_in_force(self.machine.load())
        return found

    def identify(self, people: Sequence[Acquaintance]) -> Sequence[KnownAs]:
        known = everybody(self.machine.load().identities, people)
        return [KnownAs(one, peer.name, peer.rung, describe_reach(one, peer)) for one, peer in known]

    def preview_mapping(self, people: Sequence[Acquaintance], account: str, name: str) -> MappingPreview:
        found: MappingPreview = self._peer_commands().preview(self.machine, people, account, name)
        return found

    def map_account(self, console: PluginConsole, preview: MappingPreview, *, merge: bool, is_me: bool) -> None:
        options = ["--merge" if merge else "--leave", *(["--me"] if is_me else [])]
        words = ["peers", "map", *options, "--", preview.account, preview.after]
        self.commands(console)(words, prog_name="hermes honcho", standalone_mode=False)

    def remarks(self, people: Sequence[Acquaintance]) -> Sequence[str]:
        return all_remarks(self.configuration(), people)

    def backup_paths(self) -> Sequence[Path]:
        places = self.machine.places
        found = (places.existing(), places.projects, places.guests)
        return [path for path in found if path is not None and path.exists()]

    def setup(self, console: PluginConsole, arguments: Sequence[str]) -> None:
        self.commands(console)(["setup", *arguments], prog_name="hermes honcho", standalone_mode=False)

    def find_remembered(self, wording: Wording) -> Holding:
        config = self.configuration()
        found: Holding = self._remembered().find(wording)
        for workspace in config.projects.workspaces:
            more: Holding = self._remembered(workspace).find(wording)
            items = (replace(one, id=f"{IN_PROJECT}{workspace}/{one.id}") for one in more.items)
            found = Holding((*found.items, *items), tuple(dict.fromkeys((*found.stays, *more.stays))))
        others = dict(import_module("hermes.honcho.workbench").find_sharing(self.machine, config))
        unknown = [
            f"profile {name} may tell it again: its Honcho configuration is broken"
            for name in others
            if not others[name]
        ]
        if (path := find_log(self.host.env)).exists():
            unknown.append(f"the injection log {path} is left as it is, and may hold it")
        return replace(found, stays=(*found.stays, *unknown), profiles=tuple(name for name in others if others[name]))

    def peers(self) -> Sequence[str]:
        return self._merging().peers()

    def preview_merge(self, peer: str, into: str) -> str:
        return self._merging().preview(peer, into)

    def merge(self, peer: str, into: str) -> None:
        self._merging().merge(peer, into)

    def _merging(self) -> OwnersMerging:
        config, loaded = self.configuration(), import_module("hermes.honcho.extensions")  # by name: it loads httpx
        made: OwnersMerging = loaded.OwnersMerging(loaded.Extensions(config, self.machine), config.identities)
        return made

    def forget(self, items: Sequence[Remembered]) -> None:
        by_workspace: dict[str | None, list[Remembered]] = {}
        for one in items:
            is_projects = one.id.startswith(IN_PROJECT)
            workspace, _, own = one.id.removeprefix(IN_PROJECT).partition("/") if is_projects else (None, "", one.id)
            by_workspace.setdefault(workspace, []).append(replace(one, id=own))
        for where, held in by_workspace.items():
            self._remembered(where).forget(held)

    def _remembered(self, workspace: str | None = None) -> Any:
        # By name: a conversation needs none of it.
        config = self.configuration()
        server = import_module("hermes.honcho.extensions").Extensions(config, self.machine, workspace)
        shown = find_server(config).shown
        return import_module("hermes.honcho.remembered").RememberedWords(server, config.identities.ai, shown)

    def commands(self, console: PluginConsole) -> Any:
        # By name: a conversation needs none of them.
        return import_module("hermes.honcho.commands").make_commands(self.machine, console)

    def connect(self) -> Connect:
        if self._connect is None:  # by name: it loads an HTTP server
            self._connect = import_module("hermes.honcho.web_sign_in").WebSignIn(self.machine)
        return self._connect

    def save_config(self, values: Mapping[str, Json]) -> Path:
        edit = set_keys(values)
        import_module("hermes.honcho.workbench").check_edit(self.machine, edit)
        return edit_document(self.machine.places, edit)

    @staticmethod
    def _wizard() -> Any:
        return import_module("hermes.honcho.wizard")  # by name: a conversation needs none of it

    @staticmethod
    def _peer_commands() -> Any:
        return import_module("hermes.honcho.peer_commands")


def _writing(config: HonchoConfiguration) -> str:
    """Describe what is sent, and when."""
    if not config.get(SAVE_MESSAGES):
        return "nothing by itself, only what tools write on request"
    pace = config.get(WRITE_FREQUENCY)
    return FLUSH_POLICIES.get(str(pace), f"after every {pace} turns")


log = logging.getLogger(__name__)
FilesStamp = tuple[tuple[int, int, int] | None, ...]
ABOUT = "configuration"


class Watch:
    """Caches the configuration. Costs one `stat` per watched path, and a read when one changed.

    `trouble` is called once when the configuration becomes invalid, and with None when it is valid again. Each warning
    is logged once.
    """

    def __init__(self, machine: Machine, trouble: Callable[[str, str | None], object]) -> None:
        self._machine = machine
        self._candidates = machine.places.watched
        self._trouble = trouble
        self._stamp: FilesStamp | None = None
        self._read: HonchoConfiguration | None = None
        self._good: HonchoConfiguration | None = None
        self._reported: str | None = None
        self._remarks: frozenset[str] = frozenset()

    def current(self) -> HonchoConfiguration:
        """Return the configuration in force. Raises SettingsError until there has been a valid one."""
        stamp = tuple(_stamp(path) for path in self._candidates)
        if self._read is None or stamp != self._stamp:
            self._stamp, self._read = stamp, self._load()
            self._tell(self._read)
            if not self._read.problems:
                self._good = self._read
        return self._good or self._read.checked()

    def _load(self) -> HonchoConfiguration:
        """Read the files. A lost record of guests is a problem like an invalid one."""
        found, good = self._machine.load(), self._good
        if good is None or good.guests.first is None or good.workspace != found.workspace or found.problems:
            return found
        lost = check_first(self._machine.places.guests, good.workspace, good.guests.first, found.guests.first)
        return found if lost is None else replace(found, problems=[lost])

    def _tell(self, found: HonchoConfiguration) -> None:
        for line in found.remarks:
            if line not in self._remarks:
                log.info("%s", line)
        self._remarks = frozenset(found.remarks)
        problem = found.problems[0].message if found.problems else None
        if problem != self._reported:
            self._reported = problem
            in_force = f"; {STILL_IN_FORCE}" if self._good is not None else ""
            self._trouble(ABOUT, None if problem is None else f"{problem}{in_force}")


def _stamp(path: os.PathLike[str]) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)  # noqa: PTH116 - cheaper than Path.stat, and before each message
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
