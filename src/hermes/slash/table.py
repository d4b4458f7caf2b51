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

MAX_USAGE_COLUMNS = 24
"""Column width for a command's usage in /help at a terminal; the help of a longer usage is on the next line."""
MAX_COMPLETIONS = 500
"""Completions offered at once; an endpoint may list any number of models."""
IN_A_SHELL = {
    "delete": "`hermes sessions delete ID`",
    "config": "`hermes config list`",
    "doctor": "`hermes doctor`",
}
"""Words that people type here, and the shell command for each."""
MAX_QUOTED_CHARS = 40
"""How much of an unknown command's name the error repeats."""


async def _help(here: Here, _: str) -> str:
    offered = OFFERED[here.surface].values()
    if here.surface == "chat":  # chats use proportional fonts: columns would not align
        return "\n".join(f"/{command.usage}: {command.help}" for command in offered)
    width = max(len(command.usage) for command in offered if len(command.usage) <= MAX_USAGE_COLUMNS)
    return "\n".join(
        f"/{command.usage:<{width}}  {command.help}"
        if len(command.usage) <= width
        else f"/{command.usage}\n{'':<{width + 1}}  {command.help}"
        for command in offered
    )


async def _no_words(_here: Here, _typed: str) -> Sequence[Word]:
    return ()


class Command(Struct, frozen=True):
    """A slash command. `takes` shows its arguments in the usage; `run` gets the stripped text after the name."""

    name: str
    takes: str
    help: str
    run: Callable[[Here, str], Awaitable[Answer]]
    where: tuple[Surface, ...] = ("terminal", "chat")
    overtakes: bool = False
    """Whether it runs at once, even during a turn. Other commands are queued like messages."""
    aliases: tuple[str, ...] = ()
    elsewhere: tuple[str, ...] = ()
    """Names of this command in other programs, for which the error suggests ours."""
    words: Callable[[Here, str], Awaitable[Sequence[Word]]] = _no_words
    """A function that returns completions for the typed argument. The caller drops those that do not match."""

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
    Command("undo", "[N]", "Take back the last turn, or the last N.", acts.retract, elsewhere=("rewind", "back")),
    Command("retry", "", "Have the last message answered anew.", acts.retry, elsewhere=("regenerate", "again")),
    Command(
        "memory",
        remembering.TAKES,
        "What memory holds of you, to see, correct and forget; off makes this conversation incognito.",
        remembering.memory,
        words=remembering.memory_words,
        elsewhere=("incognito",),
    ),
    Command("remember", "TEXT", "Note something about you, in your words.", remembering.remember, elsewhere=("note",)),
    Command("search", "WORDS", "Search memory, and what was said.", remembering.search, elsewhere=("find", "recall")),
    Command("forget", "WORDS", "Find an entry of memory and forget it.", remembering.forget, elsewhere=("unremember",)),
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
    """A typed command; `rest` is the text after its name."""

    command: Command
    rest: str

    async def run(self, here: Here) -> Answer:
        """Run the command. Raises UsageError for a mistake that the person can correct."""
        return await self.command.run(here, self.rest)


def find_command(surface: Surface, text: str) -> TypedCommand | None:
    """Return the command that a text calls; None for an ordinary message, such as a text that begins with a space.

    `/new@bot` and `/NEW` are commands too. An unknown name also gives None: a chat then treats the text as a message,
    a terminal refuses it (`unknown_command`).
    """
    name, rest = _split(text)
    for command in OFFERED[surface].values():
        if name == command.name or name in command.aliases:
            return TypedCommand(command, rest)
    return None


def unknown_command(surface: Surface, text: str) -> UsageError:
    """Return the error for an unknown command, on surfaces where every text with a slash is a command."""
    name = _split(text)[0][:MAX_QUOTED_CHARS]
    offered = OFFERED[surface]
    known = [command.name for command in offered.values() if name in command.elsewhere]
    near = "".join(f" (did you mean /{meant}?)" for meant in known or get_close_matches(name, offered, n=1))
    hint = "`/help` lists them; to say it as a message, put a space before it"
    if name in IN_A_SHELL:
        hint = f"In a shell {IN_A_SHELL[name]} does it; {hint}"
    return UsageError(f"there is no command /{name}{near}", hint=hint)


async def complete(here: Here, typed: str) -> list[Word]:
    """Return completions of a command's name or argument, each with its meaning; empty for a plain message.

    Completions begin with the typed text; if there are none, they contain it.
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
    return (fitting or [one for one in words if wanted in one[0].casefold()])[:MAX_COMPLETIONS]


def _split(text: str) -> tuple[str, str]:
    """Return a command's name and the text after it; "" as the name of a plain message."""
    if not text.startswith("/"):
        return "", ""
    word, *rest = text.split(maxsplit=1)
    return word[1:].partition("@")[0].lower(), rest[0].strip() if rest else ""
