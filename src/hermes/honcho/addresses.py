"""Destinations at Honcho: the workspace, session and agent of a conversation, frozen into each outbox entry. Pure,
except that sessions named after repositories read the disk."""

from __future__ import annotations

import json
from typing import cast

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from hermes.honcho import keys
from hermes.honcho.configuration import HonchoConfiguration
from hermes.honcho.guests import split_account
from hermes.honcho.identity import ResolvedPeer, find_peer
from hermes.honcho.keys import MESSAGE_MAX_CHARS
from hermes.honcho.names import (
    CLIENT_PLATFORMS,
    MIN_KEY_PARTS,
    Client,
    SessionName,
    Whereabouts,
    digest,
    find_manual,
    find_repository,
    hash_name,
    name_session,
)
from hermes.memory.provider import Address, Conversation, EntryKind, Notebook, Pace, Speaker
from hermes.memory.values import DEFAULT_WANTS
from hermes.types import Json

MESSAGES: frozenset[EntryKind] = frozenset({"said", "reply"})
AUTOMATIC: frozenset[EntryKind] = MESSAGES | {"note"}
"""Kinds that are sent without a request from anybody; `saveMessages: false` skips them."""
WANTS: frozenset[EntryKind] = DEFAULT_WANTS | {"undo"}


class EntryTarget(Struct, frozen=True, rename="camel"):
    """The destination that is stored with an outbox entry (`Address.data`). Notes have no `session`."""

    workspace: str
    session: str | None
    ai_peer: str
    naming: str = ""
    """A hash of the settings that produced the session's name. The name is kept while the hash stays the same."""
    session_key: str | None = None
    """The fallback id of a speaker without one: the chat's key on a gateway, else the session's id, unless the
    conversation is the owner's."""
    max_chars: int = MESSAGE_MAX_CHARS.default
    """The length above which a message is split. Stored here so that every attempt splits alike."""

    platform: str = ""
    """The platform of the conversation; "" in entries of earlier versions, whose key names it."""
    takes_files: bool = False
    """Whether the session gets the contents of the owner's files, once. Only the owner's own sessions do."""

    is_own: bool = False
    """Whether only the owner takes part in the conversation; its messages are marked so."""
    talk_of: str | None = None
    """For a session of our agent and another agent: the name of the people's session beside it."""

    @property
    def came_by(self) -> str | None:
        """Return the platform; for an entry of an earlier version, the one in its key."""
        parts = (self.session_key or "").split(":")
        is_whole = len(parts) >= MIN_KEY_PARTS and parts[0] == "agent"
        return self.platform or (parts[2] if is_whole else "api" if parts[0] == "api" else None)

    def to_json(self) -> Json:
        return msgspec.to_builtins(self)

    @classmethod
    def from_json(cls, value: Json) -> EntryTarget:
        return msgspec.convert(value, cls)


def find_address(config: HonchoConfiguration, place: Conversation | Notebook) -> Address:
    """Return the address of a conversation or notebook: its destination, the wanted entry kinds, and the flush
    policy."""
    ai = config.identities.ai
    if isinstance(place, Notebook):
        platform = place.platform or ""
        whose = find_peer(config.identities, place.person, place.gateway_session_key, platform or None).name
        workspace = workspace_of(config, place.gateway_session_key)
        target = EntryTarget(workspace, None, ai, session_key=place.gateway_session_key, platform=platform)
        return Address(f"{workspace}/notes/{whose}", target.to_json(), _wants(config), "async")
    named, mark = session_name(config, place), _naming_mark(config, place)
    chars = config.get(MESSAGE_MAX_CHARS)
    by_itself = config.naming.strategy == "per-session" or named.source == "session id"
    files = place.reach == "everything" and not by_itself
    pace = cast(Pace, config.get(keys.WRITE_FREQUENCY))
    key, workspace = _speaker_key(place), workspace_of(config, _project_key(place))
    is_own = place.reach == "everything"
    target = EntryTarget(workspace, named.name, ai, mark, key, chars, place.platform, files, is_own)
    return Address(f"{target.workspace}/{target.session}", target.to_json(), _wants(config), pace)


def workspace_of(config: HonchoConfiguration, gateway_key: str | None) -> str:
    """Return the workspace of a chat: its project's, else the configured one."""
    project = config.projects.find(gateway_key)
    return config.workspace if project is None else project.workspace


def peer_in(config: HonchoConfiguration, conversation: Conversation, speaker: Speaker | None = None) -> ResolvedPeer:
    """Return the peer of the person in a direct chat, or of the speaker in a group."""
    person, key = conversation.person or speaker, _speaker_key(conversation)
    return find_peer(config.identities, person, key, conversation.platform)


def move_out(config: HonchoConfiguration, target: EntryTarget) -> EntryTarget:
    """Return the destination of a queued entry, redirected if an earlier version mixed its guest with others in that
    session."""
    named = config.guests.mixed.get(target.session or "", {}).get(target.session_key or "")
    if named is None or target.session is None or target.workspace != config.workspace:
        return target
    return replace(target, session=hash_name(target.session, *split_account(named), target.session_key or ""))


def agent_session(target: EntryTarget, agent: Speaker) -> EntryTarget:
    """Return the destination for messages between our agent and another one: a session of the two."""
    sender = agent.user_id or agent.name or ""
    whole = f"{target.session}-a2a-{target.ai_peer}-{sender}"
    name = hash_name(whole, "a2a", target.session or "", target.came_by or "", sender)
    return replace(target, session=name, talk_of=target.session, is_own=False, takes_files=False)


def _speaker_key(conversation: Conversation) -> str | None:
    """Return the fallback id for speakers without one; None in the owner's conversations outside a gateway."""
    is_owners = conversation.person is not None and conversation.person.is_owner
    return conversation.gateway_session_key or (None if is_owners else conversation.session_id)


def session_name(config: HonchoConfiguration, conversation: Conversation) -> SessionName:
    """Return the name of the conversation's session, unchanged while the settings that produce it are unchanged."""
    bound, project = conversation.bound, config.projects.find(_project_key(conversation))
    if project is not None:
        return SessionName(project.session, "map")
    found = name_session(config.naming, _place(config, conversation), _prefix_peer(config, conversation))
    if isinstance(bound, dict) and bound.get("session") and bound.get("naming") == _naming_mark(config, conversation):
        found = SessionName(str(bound["session"]), found.source)
    key = conversation.gateway_session_key or ""
    if (account := config.guests.mixed.get(found.name, {}).get(key)) is not None:
        return SessionName(hash_name(found.name, *split_account(account), key), found.source)
    return found


def _project_key(conversation: Conversation) -> str | None:
    """Return the key that selects a project; None for guests of clients, who choose their key and could pick a
    project."""
    client = _client(conversation)
    return conversation.gateway_session_key if client is None or client.guest is None else None


def _place(config: HonchoConfiguration, conversation: Conversation) -> Whereabouts:
    directory, strategy = conversation.directory, config.naming.strategy
    repository = find_repository(directory) if directory is not None and strategy == "per-repo" else None
    key, client = conversation.gateway_session_key, _client(conversation)
    return Whereabouts(conversation.session_id, key, directory, repository, conversation.title, client)


def _client(conversation: Conversation) -> Client | None:
    """Return the client that chose the conversation's key; None if a platform made the key."""
    parts = (conversation.gateway_session_key or "").split(":")
    platform, person = conversation.platform, conversation.person
    is_platforms = len(parts) >= MIN_KEY_PARTS and parts[0] == "agent" and parts[2] == platform
    if is_platforms and platform not in CLIENT_PLATFORMS:
        return None
    is_guest = person is not None and not person.is_owner
    return Client(platform, (person.user_id or "") if is_guest and person is not None else None)


def _prefix_peer(config: HonchoConfiguration, conversation: Conversation) -> str:
    """Return the peer whose name prefixes the session's name; in a group, the owner."""
    return config.identities.owner if conversation.person is None else peer_in(config, conversation).name


def _naming_mark(config: HonchoConfiguration, conversation: Conversation) -> str:
    """Return a hash of exactly the settings that affect this conversation's session name."""
    naming = config.naming
    by = [
        naming.workspace,
        naming.strategy,
        naming.rotate,
        find_manual(naming, conversation.directory),
        _prefix_peer(config, conversation) if naming.peer_prefix else None,
    ]
    if naming.ai_prefix:  # not otherwise: the marks of earlier versions stay valid
        by.append(naming.ai_prefix)
    return digest(json.dumps(by))


def _wants(config: HonchoConfiguration) -> frozenset[EntryKind]:
    if config.get(keys.ENABLED) is False:
        return frozenset()
    return WANTS if config.get(keys.SAVE_MESSAGES) else WANTS - AUTOMATIC
