"""Any Honcho server, written through its public API. Data that the API cannot store is counted; nothing is written
twice.

Messages and conclusions are the two kinds that a server would store again. Before a part of them is sent, the server's
item count is saved. If the response is lost or the import is killed, the count shows whether the part arrived.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import Any

from hermes.errors import TransferError
from hermes.transfer.importing import Progress
from hermes.transfer.lines import Chunk, Numbered, TransferItem
from hermes.transfer.remote import RefusedError, Remote, UnheardError, segment

MAX_PARCEL_ITEMS = 50
MAX_SEND_ATTEMPTS = 5
QUIET = {"reasoning": {"enabled": False}}
"""Message configuration that prevents new conclusions, since the export contains the existing ones."""
IDS = "messages: their ids"
DATES = "workspace, peers, sessions and scopes: when they were made"
STAYS = "members: when they joined, and stays that ended"
CONCLUSIONS = "conclusions: ids, dates, how often they were derived, and what they came from"
LEVELS = "conclusions that are not explicit: they are stored as explicit ones"
HISTORIES = "conclusions: what they said before they were edited"
CARDS = "cards: who wrote them, and when"
SUMMARIES = "summaries: the server makes its own"
FILES = "messages: facts of the files they came from"


@dataclass(frozen=True, slots=True)
class Parcel:
    """Items that are sent together: path, body, and the amount by which a count on the server grows when they
    arrive."""

    group: Numbered
    path: str
    body: dict[str, Any]
    total: Callable[[], int]
    grows_by: int


@dataclass(slots=True)
class PublicTarget:
    """Writes everything that the API can store."""

    remote: Remote
    kind: str = "honcho"

    def take(self, chunk: Chunk, progress: Progress) -> None:
        if chunk.section == "messages":
            self._take_messages(chunk.items, progress)
        elif chunk.section == "conclusions":
            self._take_conclusions(chunk.items, progress)
        elif chunk.section == "summaries":
            progress.lacking[SUMMARIES] += sum(len(item["summaries"]) for _, item in chunk.items)
        else:
            for line, item in chunk.items[progress.parts :]:
                try:
                    progress.carried[chunk.section] += self._bring(chunk.section, item, progress)
                except RefusedError as error:
                    self._stop_if_barred(error)
                    progress.refuse(line, error.reason)
                progress.parts += 1
                progress.save()

    def _bring(self, section: str, item: TransferItem, progress: Progress) -> bool:
        """Send an item that can be repeated without harm. Return False if the server cannot store it."""
        ask, lacking = self.remote.ask, progress.lacking
        match section:
            case "workspace":
                said = {"metadata": item["metadata"], "configuration": item["configuration"]}
                ask("POST", "/v3/workspaces", {"id": self.remote.workspace, **said})
                lacking[DATES] += 1
            case "peers" if item["kind"] == "scope":
                ask("POST", "scopes", {"id": item["id"], "metadata": item["metadata"]})
                lacking[DATES] += 1
            case "peers" | "sessions":
                ask("POST", section, {name: item[name] for name in ("id", "metadata", "configuration")})
                lacking[DATES] += 1
            case "scopes":  # before messages: conclusions of a scope are transferred too
                for scope in item["scopes"]:
                    ask("POST", f"scopes/{segment(scope)}/sessions", {"session_ids": [item["session_id"]]})
            case "memberships":
                lacking[STAYS] += 1
                if item["left_seq"] is not None:
                    return False
                config = {name: item[name] for name in ("observe_me", "observe_others") if item[name] is not None}
                ask("POST", f"sessions/{segment(item['session_id'])}/peers", {item["peer_id"]: config})
            case "departures":  # sending messages made former members join again
                ask("DELETE", f"sessions/{segment(item['session_id'])}/peers", [item["peer_id"]])
            case "cards":
                target = {} if item["observer_id"] == item["observed_id"] else {"target": item["observed_id"]}
                ask("PUT", f"peers/{segment(item['observer_id'])}/card", {"peer_card": item["lines"]}, target)
                lacking[CARDS] += 1
            case "webhooks":
                ask("POST", "webhooks", {"url": item["url"]})
        return True

    def _take_messages(self, items: Numbered, progress: Progress) -> None:
        names = ("content", "peer_id", "metadata", "created_at")

        def part_of(group: Numbered) -> Parcel:
            session = segment(group[0][1]["session_id"])
            said = [{**{name: item[name] for name in names}, "configuration": QUIET} for _, item in group]
            total = partial(self.remote.total, f"sessions/{session}/messages/list")
            return Parcel(group, f"sessions/{session}/messages", {"messages": said}, total, len(group))

        for group in self._each_once("messages", _by_session(items), itemgetter("session_id"), part_of, progress):
            progress.lacking[IDS] += len(group)
            _count(progress, FILES, sum(item["file"] is not None for _, item in group))

    def _take_conclusions(self, items: Numbered, progress: Progress) -> None:
        names = ("content", "observer_id", "observed_id", "session_id")

        def part_of(group: Numbered) -> Parcel:
            said = [{name: item[name] for name in names if item[name] is not None} for _, item in group]
            one = {name: said[0][name] for name in ("content", "observer_id", "observed_id")}
            twins = sum({name: new[name] for name in one} == one for new in said)
            total = partial(self.remote.total, "conclusions/list", one)
            return Parcel(group, "conclusions", {"conclusions": said}, total, twins)

        for group in self._each_once("conclusions", items, lambda _: None, part_of, progress):
            progress.lacking[CONCLUSIONS] += len(group)
            _count(progress, LEVELS, sum(item["level"] != "explicit" for _, item in group))
            _count(progress, HISTORIES, sum(bool(item["versions"]) for _, item in group))

    def _each_once(
        self,
        section: str,
        items: Numbered,
        kind: Callable[[TransferItem], object],
        part_of: Callable[[Numbered], Parcel],
        progress: Progress,
    ) -> Iterator[Numbered]:
        """Send items exactly once, a few of one `kind` at a time, and yield the accepted groups. A group with a refused
        item is sent again one by one."""
        while progress.parts < len(items):
            most = 1 if progress.parts < progress.alone_until else MAX_PARCEL_ITEMS
            waiting = items[progress.parts : progress.parts + most]
            group = list(next(groupby(waiting, key=lambda one: kind(one[1])))[1])
            refused = self._send(part_of(group), progress)
            if refused is not None and len(group) > 1:
                progress.alone_until, progress.tried = progress.parts + len(group), None
                continue
            if refused is None:
                progress.carried[section] += len(group)
                yield group
            else:
                progress.refuse(group[0][0], refused)
            progress.parts, progress.tried = progress.parts + len(group), None
            progress.save()

    def _send(self, part: Parcel, progress: Progress) -> str | None:
        """Send a part exactly once; return the reason if the server refuses it."""
        first, last = part.group[0][0], part.group[-1][0]
        for attempt in range(MAX_SEND_ATTEMPTS):
            if progress.tried is not None and self._arrived(progress.tried["before"], part):
                return None
            progress.tried = {"before": part.total()}
            progress.save()
            try:
                self.remote.send_once(part.path, part.body, f"import-{progress.sha256[:24]}-{first}-{last}")
                return None
            except UnheardError:
                self.remote.pause(attempt)
            except RefusedError as error:
                self._stop_if_barred(error)
                return error.reason
        raise TransferError(f"{self.remote.url} does not respond", hint="Run the same command again to resume")

    def _arrived(self, before: int, part: Parcel) -> bool:
        now = part.total()
        if now not in (before, before + part.grows_by):
            raise TransferError(
                f"lines {part.group[0][0]} to {part.group[-1][0]} were sent and it is not known whether they arrived: "
                f"{self.remote.url} held {before} such items before, and holds {now} now",
                hint="Somebody else writes there. Check the server, then delete the file that ends in .progress",
            )
        return now != before

    def _stop_if_barred(self, error: RefusedError) -> None:
        """Raise TransferError for a wrong key or a server error, which does not concern a single item."""
        if error.status in (401, 403) or error.status >= 500:
            raise TransferError(f"{self.remote.url}: {error.reason}") from error


def _count(progress: Progress, what: str, number: int) -> None:
    if number:
        progress.lacking[what] += number


def _by_session(items: Numbered) -> Numbered:
    """Return the messages grouped by session, in order."""
    found: dict[str, list[tuple[int, dict[str, Any]]]] = {}
    for line, item in items:
        found.setdefault(item["session_id"], []).append((line, item))
    return [numbered for group in found.values() for numbered in group]
