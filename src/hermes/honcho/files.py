"""Import of the owner's files, once for each of the owner's own sessions: notes under the owner's peer, SOUL.md
under the agent's. Sessions of guests and groups never get them."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

from msgspec.structs import replace

from hermes.errors import HermesError
from hermes.files import read_file
from hermes.home import Home
from hermes.honcho.addresses import MESSAGES, EntryTarget
from hermes.honcho.attempt import Attempt
from hermes.honcho.conclusions import TakeFiles, encode_act
from hermes.honcho.messages import write_messages
from hermes.memory.notes import Notes
from hermes.memory.provider import DeadLetter, Delivered, Entry, Host, Outcome, Speaker
from hermes.scope import OWNER
from hermes.types import Json

log = logging.getLogger(__name__)
MAX_FILE_BYTES = 1024 * 1024
"""Bytes of a file that are sent."""
FILE: Json = {"file": True}
"""Marks a file's text, from which the server must not conclude: each note is also sent as a conclusion."""


class Files:
    """Queues the files for a session after the server has accepted a first message of it."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._offered: set[str] = set()

    async def offer(self, entry: Entry, target: EntryTarget, outcome: Outcome) -> None:
        """Queue the files after the first delivered messages of an owner's session."""
        mark = _mark(target)
        is_first = entry.kind in MESSAGES and target.takes_files and mark not in self._offered
        if not is_first or entry.session_id is None or not isinstance(outcome, Delivered):
            return
        try:
            if await self._host.kept(mark) is None:
                await self._host.put(entry.session_id, mark, encode_act(TakeFiles()))
            self._offered.add(mark)
        except HermesError as error:  # incognito meanwhile, deleted, a full disk: the next message offers again
            log.info("the owner's files could not be queued for Honcho yet: %s", error.line())


async def take_files(attempt: Attempt, entry: Entry) -> Outcome:
    """Send the files' current contents to a session. Raises Failure."""
    home = Home(attempt.host.home, attempt.host.profile)
    try:
        entries = await asyncio.to_thread(_read, home, entry)
    except OSError as error:
        return DeadLetter(f"a file cannot be read: {error}")
    outcomes = await write_messages(attempt, entries) if entries else []
    if wrong := next((one for one in outcomes if not isinstance(one, Delivered)), None):
        return wrong
    await attempt.host.keep(_mark(attempt.target), entry.key)
    return Delivered(f"{len(entries)} files")


def _read(home: Home, entry: Entry) -> list[Entry]:
    """Return the existing files as entries: notes as the owner's messages, SOUL.md as the agent's."""
    owner = Speaker(is_owner=True)
    found = [*((path, "said") for path in note_files(home)), (home.soul_file, "reply")]
    return [
        replace(
            entry, key=f"{entry.key}-{path.name}", kind=kind, text=f"{path.name}:\n\n{text}", speaker=owner, data=FILE
        )
        for path, kind in found
        if path.exists() and (text := read_file(path)[:MAX_FILE_BYTES].decode("utf-8-sig", "replace").strip())
    ]


def note_files(home: Home) -> list[Path]:
    notes = Notes(home.path, OWNER, {})
    return [notes.path("user"), notes.path("memory")]


def _mark(target: EntryTarget) -> str:
    return f"files:{target.workspace}/{target.session}"
