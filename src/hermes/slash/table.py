"""The table of slash commands, for every surface on which people talk.

    text ── find_command ── TypedCommand ── run over a Here ── what the person is told, or a turn

A new command is a function of this room and its line in `TABLE`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from difflib import get_close_matches
from typing import get_args

from msgspec import Struct

from hermes.errors import UsageError
from hermes.slash import acts, editing, keeping, models, remembering, spending, undoing, unfolding
from hermes.slash.here import Answer, Here, Surface, Word

WIDEST = 24
"""Columns that what is typed may have in the list; where it has more, what it means goes below."""
MOST_OFFERED = 500
"""Words that are offered at once: an endpoint may list any number of models."""
QUOTED = 40
"""Characters of a name that nobody knows which are repeated."""


async def _help(here: Here, _: str) -> str:
    offered = OFFERED[here.surface].values()
    if here.surface == "chat":  # its letters have no fixed width
        return "\n".join(f"/{command.usage}: {command.help}" for command in offered)
    width = max(len(command.usage) for command in offered if len(command.usage) <= WIDEST)
    return "\n".join(
        f"/{command.usage:<{width}}  {command.help}"
        if len(command.usage) <= width
        else f"/{command.usage}\n{'':<{width + 1}}  {command.help}"
        for command in offered
    )


async def _no_words(_: Here) -> Sequence[Word]:
    return ()


class Command(Struct, frozen=True):
    """One slash command. `run` gets what follows its name, without blanks around it."""

    name: str
    takes: str
    help: str
    run: Callable[[Here, str], Awaitable[Answer]]
    where: tuple[Surface, ...] = ("terminal", "chat")
    overtakes: bool = False
    """It acts at once, whatever waits; every other command waits its turn like a message."""
    aliases: tuple[str, ...] = ()
    words: Callable[[Here], Awaitable[Sequence[Word]]] = _no_words
    """What may follow it, for completion."""

    @property
    def usage(self) -> str:
        return f"{self.name} {self.takes}".rstrip()


TABLE = (
    Command("new", "", "Begin a new session.", acts.begin_new),
    Command("title", "[TEXT]", "Show or change this session's title.", acts.title),
    Command("sessions", "", "The sessions that were active last.", acts.list_sessions, where=("terminal",)),
    Command(
        "resume",
        "[ID]",
        "Go on with another session, by id, its beginning, or its title; without one, choose from a list.",
        acts.resume,
        where=("terminal",),
        words=acts.recent_sessions,
    ),
    Command("stop", "", "End what is under way: a reply, a compression, a wait.", acts.stop, overtakes=True),
    Command("compress", "[FOCUS]", "Summarise the older part; FOCUS says what matters most.", acts.compress),
    Command("undo", "[N]", "Take back the last turn, or the last N.", undoing.take_back),
    Command("retry", "", "Have the last message answered anew.", undoing.retry),
    Command(
        "memory",
        remembering.TAKES,
        "What memory holds of you, to see, correct and forget; off makes this conversation incognito.",
        remembering.memory,
        words=remembering.memory_words,
    ),
    Command(
        "model",
        "[NAME]",
        "Show which model answers and what there is; NAME answers in this session from now on.",
        models.model,
        words=models.model_words,
    ),
    Command(
        "unfold",
        "[N]",
        "The last tool calls in full, with what came of them; N is the Nth from the end.",
        unfolding.unfold,
        where=("terminal",),
    ),
    Command("status", "", "Session, model, context and memory.", acts.status),
    Command("usage", "", "Tokens that this session has spent, by model, and how full the window is.", spending.usage),
    Command(
        "edit",
        "[TEXT]",
        "Write a message in your editor, beginning with the last one, or TEXT.",
        editing.edit,
        where=("terminal",),
    ),
    Command(
        "save",
        "[FILE] [--force]",
        "Write this conversation to a file: .md, .json or .jsonl.",
        keeping.save,
        where=("terminal",),
    ),
    Command(
        "copy",
        "[N|code]",
        "Put the last reply into the clipboard, the Nth from the end, or the last code block.",
        keeping.copy,
        where=("terminal",),
        words=keeping.copy_words,
    ),
    Command("help", "", "This list.", _help),
    Command("quit", "", "Leave.", acts.leave, where=("terminal",), overtakes=True, aliases=("exit",)),
)
OFFERED: dict[Surface, dict[str, Command]] = {
    surface: {command.name: command for command in TABLE if surface in command.where} for surface in get_args(Surface)
}


class TypedCommand(Struct, frozen=True):
    """A command as someone typed it, with what follows its name."""

    command: Command
    rest: str

    async def run(self, here: Here) -> Answer:
        """Do it. Raises UsageError for what the person can mend."""
        return await self.command.run(here, self.rest)


def find_command(surface: Surface, text: str) -> TypedCommand | None:
    """The command that a text is; None for an ordinary message, as any is that begins with a blank.

    `/new@bot` and `/NEW` count too. In a chat a text with an unknown name is a message like any other.
    """
    name, rest = _split(text)
    for command in OFFERED[surface].values():
        if name == command.name or name in command.aliases:
            return TypedCommand(command, rest)
    return None


def unknown_command(surface: Surface, text: str) -> UsageError:
    """What is said of a command that does not exist, where a slash means a command and nothing else."""
    name = _split(text)[0][:QUOTED]
    near = "".join(f" (did you mean /{known}?)" for known in get_close_matches(name, OFFERED[surface], n=1))
    hint = "`/help` lists them; to say it as a message, put a space before it"
    return UsageError(f"there is no command /{name}{near}", hint=hint)


async def complete(here: Here, typed: str) -> list[Word]:
    """What may stand in place of the last word of `typed`, each with what it means. Nothing for a plain message."""
    if not typed.startswith("/") or "\n" in typed:
        return []
    name, space, word = typed.partition(" ")
    if not space:
        known = [(f"/{command.name}", command.help) for command in OFFERED[here.surface].values()]
        return [(text, meaning) for text, meaning in known if text.startswith(name)]
    found = find_command(here.surface, name)
    words = () if found is None else await found.command.words(here)
    return [(text, meaning) for text, meaning in words if text.startswith(word)][:MOST_OFFERED]


def _split(text: str) -> tuple[str, str]:
    """The name of a command, "" for a text that is none, and what follows it."""
    if not text.startswith("/"):
        return "", ""
    word, *rest = text.split(maxsplit=1)
    return word[1:].partition("@")[0].lower(), rest[0].strip() if rest else ""
