"""Recipes of homes: who says what where, how the home compresses, and where its process is killed."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

from scripts.stock_homes.loopback import SUMMARY_SECONDS, WINDOW_TOKENS

ROTATION = (
    "try_acquire_compression_lock:after:1",
    "end_session:before:1",
    "end_session:after:1",
    "create_session:after:1",
    "update_system_prompt:after:1",
    "replace_messages:before:1",
    "replace_messages:after:1",
    "append_message:after:1",
    "release_compression_lock:after:1",
    "replace_gateway_routing_entries:before:1",
    "replace_gateway_routing_entries:after:1",
)
IN_PLACE = ("archive_and_compact:before:1", "archive_and_compact:after:1", "update_system_prompt:after:1")
BEGIN = ("ann> one", "ann> two", "ann> three", "ann> four", "ann> five")
GROW = "ann> six grow"
WRITING_SECONDS = 0.02
"""Time in which a compression writes its result."""
LATER = ("ann> seven", "ann> eight")


@dataclass(frozen=True)
class Recipe:
    """A home. A step is `NICK> text` to the bot, `NICK#> text` in the room, `ID@> text` over the API with a session id
    that the client keeps, `ID@@> text` with the id that the last answer named, `NICK$> text` from a terminal in that
    person's session, or `restart`; `A & B` is both at once, and where both grow their models answer at the same moment.

    `kill` is armed up to the first end; `delay` kills that long after the model was asked for a summary. A text with
    `fill` is as long as `window` needs it to be full after a few of them: then the compression comes at the beginning
    of a turn, before its model was asked."""

    name: str
    steps: tuple[str, ...]
    in_place: bool = False
    kill: str | None = None
    delay: float | None = None
    window: int = WINDOW_TOKENS


def recipes() -> list[Recipe]:
    """Return all recipes by name."""
    made = [*_whole(), *_exact(), *_api(), *_early(), *_groups(), *_random(), *_two_processes()]
    assert len({recipe.name for recipe in made}) == len(made)
    return made


def _whole() -> Iterator[Recipe]:
    yield Recipe("rotated", (*BEGIN, GROW, *LATER))
    yield Recipe("rotated-twice", (*BEGIN, GROW, *LATER, "ann> nine", "ann> ten grow", "ann> eleven"))
    yield Recipe("in-place", (*BEGIN, GROW, *LATER), in_place=True)
    yield Recipe("in-place-thrice", (*BEGIN, GROW, *LATER, "ann> nine grow", "ann> ten", "ann> eleven grow",
                                     "ann> twelve"), in_place=True)  # fmt: skip
    yield Recipe("reset-after-rotation", (*BEGIN, GROW, "ann> /new", "ann> seven", "ann> eight"))
    yield Recipe("branch", (*BEGIN, "ann> /branch other", "ann> six", "ann> seven grow", "ann> eight"))


def _exact() -> Iterator[Recipe]:
    for kill in ROTATION:
        step, when, _ = kill.split(":")
        yield Recipe(f"rotation-{when}-{step.replace('_', '-')}", (*BEGIN, GROW), kill=kill)
    for kill in ("end_session:after:1", "create_session:after:1", "replace_messages:after:1",
                 "replace_gateway_routing_entries:before:1"):  # fmt: skip
        step, when, _ = kill.split(":")
        name = f"rotation-{when}-{step.replace('_', '-')}-and-on"
        yield Recipe(name, (*BEGIN, GROW, "restart", *LATER), kill=kill)
    for kill in IN_PLACE:
        step, when, _ = kill.split(":")
        yield Recipe(f"in-place-{when}-{step.replace('_', '-')}", (*BEGIN, GROW, "restart", *LATER), True, kill)


def _api() -> Iterator[Recipe]:
    begin = tuple(f"api-chat-1@> {word}" for word in ("one", "two", "three", "four", "five", "six grow"))
    later = ("api-chat-1@> seven", "api-chat-1@> eight")
    yield Recipe("api-keeps-its-id", (*begin, *later))
    yield Recipe("api-keeps-its-id-and-rotates-again", (*begin, *later, "api-chat-1@> nine grow", "api-chat-1@> ten"))
    yield Recipe("api-follows", (*begin, "api-chat-1@@> seven", "api-chat-1@@> eight"))
    yield Recipe("api-in-place", (*begin, *later), in_place=True)
    yield Recipe("api-killed-after-end", (*begin, "restart", *later), kill="end_session:after:1")
    yield Recipe("api-killed-after-child", (*begin, "restart", *later), kill="replace_messages:after:1")


def _early() -> Iterator[Recipe]:
    steps = tuple(f"api-chat-1@> {word} fill" for word in ("one", "two", "three", "four", "five", "six"))
    later = ("api-chat-1@> seven", "api-chat-1@> eight")
    small = 64_000
    yield Recipe("early-rotation", (*steps, *later), window=small)
    yield Recipe("early-in-place", (*steps, *later), in_place=True, window=small)
    for kill in ("append_message:after:4", "end_session:before:1", "end_session:after:1", "replace_messages:after:1"):
        step, when, _ = kill.split(":")
        name = f"early-{when}-{step.replace('_', '-')}"
        yield Recipe(name, (*steps, "restart", *later), kill=kill, window=small)


def _groups() -> Iterator[Recipe]:
    begin = ("ann#> one", "bob#> two", "ann#> three", "bob#> four", "ann#> five", "ann#> six grow")
    yield Recipe("group-rotated", (*begin, "bob#> seven", "ann#> eight"))
    yield Recipe("group-killed", (*begin, "restart", "bob#> seven"), kill="end_session:after:1")
    beside = ("ann> one", "bob> uno", "ann> two", "bob> due", "ann> three", "bob> tre", "ann> four", "ann> five")
    yield Recipe("two-people", (*beside, "ann> six grow", "bob> quattro", "ann> seven"))
    killed = (*beside, "ann> six grow", "restart", "bob> quattro")
    yield Recipe("two-people-killed", killed, kill="create_session:after:1")


def _random() -> Iterator[Recipe]:
    """Return recipes with kills during a summary, and shortly after it, while a compression writes."""
    chance = random.Random(12)
    delays = [chance.uniform(0, SUMMARY_SECONDS) for _ in range(3)]
    delays += [SUMMARY_SECONDS + chance.uniform(0, WRITING_SECONDS) for _ in range(9)]
    for number, delay in enumerate(delays, start=1):
        in_place, goes_on = number % 3 == 0, number % 2 == 0
        steps = (*BEGIN, GROW, *(("restart", *LATER) if goes_on else ()))
        yield Recipe(f"random-{number}", steps, in_place, delay=delay)


def _two_processes() -> Iterator[Recipe]:
    yield Recipe("terminal-too", (*BEGIN, "ann$> six from the terminal", "ann> seven"))
    yield Recipe("terminal-rotates", (*BEGIN, "ann$> six grow", "ann> seven", "ann> eight"))
    yield Recipe("terminal-in-place", (*BEGIN, "ann$> six grow", "ann> seven"), in_place=True)
    race = "ann> six grow & ann$> seven grow"
    yield Recipe("race", (*BEGIN, race))
    yield Recipe("race-and-on", (*BEGIN, race, "ann> eight", "ann> nine"))
    yield Recipe("race-in-place", (*BEGIN, race, "ann> eight", "ann> nine"), in_place=True)
    yield Recipe("race-killed", (*BEGIN, race, "restart", "ann> eight"), kill="end_session:after:1")
    yield Recipe("race-killed-later", (*BEGIN, race, "restart", "ann> eight"), kill="replace_messages:after:1")
    talk = tuple(f"api-chat-1@> {word}" for word in ("one", "two", "three", "four", "five"))
    both = "api-chat-1@> six grow & api-chat-1@> seven grow"
    yield Recipe("race-api", (*talk, both, "api-chat-1@> eight"))
    yield Recipe("race-api-terminal", (*talk, "api-chat-1@> six grow & api-chat-1$> seven grow", "api-chat-1@> eight"))
