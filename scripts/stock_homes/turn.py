"""Runs a turn of ours in every chat of a home, and judges the request to its model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from scripts.stock_homes.drive import Said
from scripts.stock_homes.judge import Past, find_faults, words
from scripts.stock_homes.loopback import Model
from scripts.stock_homes.ours import ask_ours, find_doors, read_everything

TOLD = ("began-anew", "left-behind")


def what_is_told(report: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the doctor's findings about messages that a chat does not see."""
    return [finding for finding in report["findings"] if finding["code"] in TOLD]


async def take_turn(
    model: Model, work: Path, said: Sequence[Said], told: Sequence[Mapping[str, Any]], text: str
) -> tuple[list[str], list[Said]]:
    """Run a turn in every chat; return the faults of the requests, and all messages so far."""
    chats = list(dict.fromkeys(one.chat for one in said))
    everything = {
        session: {word for content in contents for word in words(content)}
        for session, contents in (await read_everything(work)).items()
    }
    readable = {word for seen in everything.values() for word in seen}
    doors = await find_doors(work, chats)
    faults, more = [], []
    for chat in chats:
        now = Said(chat, f"{text} {chat}", answered=True, number=said[-1].number + 1)
        await ask_ours(work, doors[chat][-1], now.text)
        own = [*(one for one in said if one.chat == chat), now]
        past = Past(own, {*readable, now.text}, _excused(own, everything, told, doors[chat]))
        found = find_faults(past, find_request(model, now.text))
        faults += [f"{chat} in {doors[chat][-1]}: {fault}" for fault in found]
        more.append(now)
    return faults, [*said, *more]


def _excused(
    said: Sequence[Said], everything: Mapping[str, set[str]], told: Sequence[Mapping[str, Any]], lineage: Sequence[str]
) -> set[str]:
    """Return the messages that a warning has reported: those from before a chat began anew, and simultaneous ones of
    two processes of which a compression saw one."""
    numbers = [one.number for one in said]
    here = {word for session in lineage for word in everything.get(session, ())}
    excused: set[str] = set()
    for finding in told:
        if finding["code"] == "began-anew" and finding["sessions"][1] in lineage:
            excused |= {word for words in everything.values() for word in words} - here
        elif finding["code"] == "left-behind":
            there = everything.get(finding["sessions"][0], set())
            excused |= {one.text for one in said if numbers.count(one.number) > 1 and one.text in there}
    return excused


def find_request(model: Model, text: str) -> list[dict[str, Any]]:
    """Return the first request of a message's turn; [] if the model was never asked."""
    for request in model.requests:
        users = [message for message in request if message["role"] == "user"]
        if users and text in str(users[-1]["content"]):
            return request
    return []
