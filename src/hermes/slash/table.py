"""The table of slash commands, for every surface on which people talk.

    text ── find_command ── TypedCommand ── run(here) ── Answer: a text for the person, or a turn to start

A new command is a function in one of the files of `slash/` and its line in `TABLE`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from difflib import get_close_matches
from typing import get_args

from msgspec import Struct

from hermes.errors import UsageError
from hermes.slash import acts, keeping, models, remembering, unfolding
from hermes.slash.here import Answer, Here, Surface, Word

WIDEST = 24
"""Columns for a command's usage in the list of /help at a terminal; a longer usage has its help on the next line."""
MOST_OFFERED = 500
"""Words that are offered at once: an endpoint may list any number of models."""
IN_A_SHELL = {
    "search": "`hermes sessions search WORDS`",
    "delete": "`hermes sessions delete ID`",
    "config": "`hermes config list`",
    "doctor": "`hermes doctor`",
}
"""What people look for here and a command in a shell does."""
QUOTED = 40
"""Characters of an unknown command's name that the error message repeats."""


async def _help(here: Here, _: str) -> str:
    offered = OFFERED[here.surface].values()
    if here.surface == "chat":  # chats use proportional fonts: columns would not align
        return "\n".join(f"/{command.usage}: {command.help}" for command in offered)
    width = max(len(command.usage) for command in offered if len(command.usage) <= WIDEST)
    return "\n".join(
        f"/{command.usage:<{width}}  {command.help}"
        if len(command.usage) <= width
        else f"/{command.usage}\n{'':<{width + 1}}  {command.help}"
        for command in offered
    )


async def _no_words(_here: Here, _typed: str) -> Sequence[Word]:
    return ()


class Command(Struct, frozen=True):
    """One slash command. `takes` names its arguments for the usage; `run` gets the text after the name, stripped."""

    name: str
    takes: str
    help: str
    run: Callable[[Here, str], Awaitable[Answer]]
    where: tuple[Surface, ...] = ("terminal", "chat")
    overtakes: bool = False
    """Runs at once, even during a turn. Other commands wait in the queue like messages."""
    aliases: tuple[str, ...] = ()
    elsewhere: tuple[str, ...] = ()
    """What other programs call it: who types one of these is told ours."""
    words: Callable[[Here, str], Awaitable[Sequence[Word]]] = _no_words
    """Completions for its argument, of which so much is typed; those that do not fit are left out by who asks."""

    @property
    def usage(self) -> str:
        return f"{self.name} {self.takes}".rstrip()


TABLE = (
    Command("new", "", "Begin a new session.", acts.begin_new, elsewhere=("clear", "reset")),
    Command("title", "[TEXT]", "Show or change this session's title.", acts.title, elsewhere=("rename", "name")),
    Command("sessions", "", "The sessions that were active last.", acts.list_sessions, where=("terminal",)),
    Command(
        "resume",
        "[ID]",
        "Go on with another session, by id, its beginning, or its title; without one, choose from a list.",
        acts.resume,
        where=("terminal",),
        words=acts.recent_sessions,
        elsewhere=("continue", "load", "history"),
    ),
    Command("stop", "", "End what is under way: a reply, a compression, a wait.", acts.stop, overtakes=True),
    Command(
        "compress",
        "[FOCUS]",
        "Summarise the older part; FOCUS says what matters most.",
        acts.compress,
        elsewhere=("compact", "summarize"),
    ),
    Command("undo", "[N]", "Take back the last turn, or the last N.", acts.take_back, elsewhere=("rewind", "back")),
    Command("retry", "", "Have the last message answered anew.", acts.retry, elsewhere=("regenerate", "again")),
    Command(
        "memory",
        remembering.TAKES,
        "What memory holds of you, to see, correct and forget; off makes this conversation incognito.",
        remembering.memory,
        words=remembering.memory_words,
        elsewhere=("forget", "incognito"),
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
    Command(
        "usage",
        "",
        "Tokens that this session has spent, by model, and how full the window is.",
        acts.usage,
        elsewhere=("tokens", "cost", "context"),
    ),
    Command(
        "edit",
        "[TEXT]",
        "Write a message in your editor, beginning with the last one, or TEXT.",
        acts.edit,
        where=("terminal",),
    ),
    Command(
        "save",
        "[FILE] [--force]",
        "Write this conversation to a file: .md, .json or .jsonl.",
        keeping.save,
        where=("terminal",),
        elsewhere=("export", "write"),
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
    """A command as someone typed it; `rest` is the text after its name."""

    command: Command
    rest: str

    async def run(self, here: Here) -> Answer:
        """Run the command. Raises UsageError for a mistake that the person can correct."""
        return await self.command.run(here, self.rest)


def find_command(surface: Surface, text: str) -> TypedCommand | None:
    """The command that this text calls; None for an ordinary message. A text that begins with a space is a message.

    `/new@bot` and `/NEW` are commands too. With an unknown name this is None: a chat then takes the text as a message,
    a terminal refuses it (`unknown_command`).
    """
    name, rest = _split(text)
    for command in OFFERED[surface].values():
        if name == command.name or name in command.aliases:
            return TypedCommand(command, rest)
    return None


def unknown_command(surface: Surface, text: str) -> UsageError:
    """The error for a command that does not exist, at a surface that takes every text with a slash as a command."""
    name = _split(text)[0][:QUOTED]
    offered = OFFERED[surface]
    known = [command.name for command in offered.values() if name in command.elsewhere]
    near = "".join(f" (did you mean /{meant}?)" for meant in known or get_close_matches(name, offered, n=1))
    hint = "`/help` lists them; to say it as a message, put a space before it"
    if name in IN_A_SHELL:
        hint = f"In a shell {IN_A_SHELL[name]} does it; {hint}"
    return UsageError(f"there is no command /{name}{near}", hint=hint)


async def complete(here: Here, typed: str) -> list[Word]:
    """Completions for the argument of `typed`, or the command's name, each with its meaning; none for a plain message.

    Those that begin with what is typed, else those that hold it.
    """
    if not typed.startswith("/") or "\n" in typed:
        return []
    name, space, word = typed.partition(" ")
    if not space:
        known = [(f"/{command.name}", command.help) for command in OFFERED[here.surface].values()]
        return [(text, meaning) for text, meaning in known if text.startswith(name)]
    found = find_command(here.surface, name)
    words = () if found is None else await found.command.words(here, word)
    wanted = word.casefold()
    fitting = [one for one in words if one[0].casefold().startswith(wanted)]
    return (fitting or [one for one in words if wanted in one[0].casefold()])[:MOST_OFFERED]


def _split(text: str) -> tuple[str, str]:
    """A command's name ("" for a text that is no command) and the text after it."""
    if not text.startswith("/"):
        return "", ""
    word, *rest = text.split(maxsplit=1)
    return word[1:].partition("@")[0].lower(), rest[0].strip() if rest else ""
