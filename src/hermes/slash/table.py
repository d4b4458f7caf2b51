"""The table of slash commands, for every surface on which people talk.

    text ── find_command ── TypedCommand ── run(here) ── Answer: a text for the person, or a turn to start

A new command is a function in one of the files of `slash/` and its line in `TABLE`.

`/save` and `/copy`: the conversation as a file, and replies in the clipboard.
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import get_args

from msgspec import Struct

from hermes.db.engine import Tx
from hermes.errors import HomeError, UsageError
from hermes.files import creating, replacing
from hermes.slash import acts, models, remembering
from hermes.slash.context import Answer, CommandContext, Surface, Word, agent_of, console_of, read_number
from hermes.store.export import to_json, to_jsonl, to_markdown
from hermes.types import Compression, Message, Session

FORCE = "--force"
MAX_NAME_CHARS, MAX_FILE_NAMES = 60, 99
NOTHING_SAID = "nothing was said here yet"
CODE_BLOCK = re.compile(r"^(`{3,}|~{3,})[^\n]*\n(.*?)^\1[ \t]*$", re.MULTILINE | re.DOTALL)
Form = Callable[[Session, Iterable[Message], Sequence[Compression]], Iterator[str]]


def _one_document(session: Session, messages: Iterable[Message], compressions: Sequence[Compression]) -> Iterator[str]:
    yield json.dumps(to_json(session, messages, compressions), ensure_ascii=False, indent=2, default=repr)


FORMS: Mapping[str, Form] = {".md": to_markdown, ".json": _one_document, ".jsonl": to_jsonl}


async def save(here: CommandContext, text: str) -> str:
    name, forced = text.removesuffix(FORCE).strip(), text.endswith(FORCE)
    agent = await agent_of(here, NOTHING_SAID)
    store, session_id = agent.store, agent.session_id
    session = await store.read(lambda tx: store.sessions.get(tx, session_id))
    path = _find_path(name, session)
    form = FORMS.get(path.suffix.lower())
    if form is None:
        raise UsageError(f"'{path.name}' does not say what to write", hint=f"End it in {', '.join(FORMS)}")
    if not forced and path.exists():
        raise UsageError(f"{path} is there already", hint=f"`/save {name} {FORCE}` replaces it")

    def write(tx: Tx) -> int:
        parts = list(store.messages.history(tx, session_id)), store.compressions.all(tx, session_id)
        with replacing(path) if forced else creating(path) as file:
            file.writelines(f"{line}\n" for line in form(session, *parts))
        return len(parts[0])

    try:
        count = await store.read(write)
    except HomeError as error:  # its hint is about our own folder
        raise UsageError(error.message, hint="`/save FILE` names another place") from error
    return f"Saved {count} {'message' if count == 1 else 'messages'} to {path}."


async def copy(here: CommandContext, text: str) -> str:
    agent = await agent_of(here, NOTHING_SAID)
    view = await agent.store.view(agent.session_id)
    replies = [m.content for m in reversed(view.messages) if m.role == "assistant" and m.content]
    if not replies:
        raise UsageError("there is no reply to copy yet")
    if text.lower() == "code":
        what, found = "The last code block", next((code for reply in replies if (code := _last_code(reply))), None)
        if found is None:
            raise UsageError("no reply here has a code block")
    else:
        number = _number(text, len(replies))
        what, found = "The last reply" if number == 1 else f"Reply {number} from the end", replies[number - 1]
    how = await console_of(here).copy(found)
    return f"{what}, {len(found):,} characters, {how}."


async def copy_words(_here: CommandContext, _typed: str) -> Sequence[Word]:
    return [("code", "The last code block alone.")]


def _number(text: str, most: int) -> int:
    if not text:
        return 1
    number = read_number(text)
    if not 1 <= number <= most:
        raise UsageError(f"/copy takes `code` or a number from 1, the last reply, to {most}")
    return number


def _last_code(reply: str) -> str | None:
    found = CODE_BLOCK.findall(reply)
    return found[-1][1] if found else None


def _find_path(name: str, session: Session) -> Path:
    """Return the file to write. Raises UsageError for an invalid name."""
    try:
        if name.isprintable():  # no NUL, no half of a character
            path = _path_of(name, session)
            path.exists()
            return path
        why = "it has characters that no name may have"
    except (OSError, RuntimeError) as error:  # RuntimeError: `~` of someone whom this machine does not know
        why = getattr(error, "strerror", None) or str(error)
    raise UsageError(f"'{name[:MAX_NAME_CHARS]}' cannot be a file: {why}", hint="`/save FILE` names another")


def _path_of(name: str, session: Session) -> Path:
    """Return the named file, or for a folder or no name a free file name made from the session's title or id."""
    given = Path(name).expanduser() if name else Path()
    if not given.is_dir():
        return given.absolute()
    words = "-".join(re.findall(r"\w+", session.title or ""))[:MAX_NAME_CHARS].strip("-") or session.id
    stem = "-".join(re.findall(r"[\w.-]+", words))
    names = [f"{stem}.md", *(f"{stem}-{number}.md" for number in range(2, MAX_FILE_NAMES))]
    free = next((given / name for name in names if not (given / name).exists()), None)
    if free is None:
        raise UsageError(f"{given.absolute()} has too many files of that name", hint="`/save FILE` names another")
    return free.absolute()


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


async def _help(here: CommandContext, _: str) -> str:
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


async def _no_words(_here: CommandContext, _typed: str) -> Sequence[Word]:
    return ()


class Command(Struct, frozen=True):
    """A slash command. `takes` shows its arguments in the usage; `run` gets the stripped text after the name."""

    name: str
    takes: str
    help: str
    run: Callable[[CommandContext, str], Awaitable[Answer]]
    where: tuple[Surface, ...] = ("terminal", "chat")
    overtakes: bool = False
    """Whether it runs at once, even during a turn. Other commands are queued like messages."""
    aliases: tuple[str, ...] = ()
    elsewhere: tuple[str, ...] = ()
    """Names of this command in other programs, for which the error suggests ours."""
    words: Callable[[CommandContext, str], Awaitable[Sequence[Word]]] = _no_words
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
        acts.unfold,
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
        save,
        where=("terminal",),
        elsewhere=("export", "write"),
    ),
    Command(
        "copy",
        "[N|code]",
        "Put the last reply into the clipboard, the Nth from the end, or the last code block.",
        copy,
        where=("terminal",),
        words=copy_words,
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

    async def run(self, here: CommandContext) -> Answer:
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


async def complete(here: CommandContext, typed: str) -> list[Word]:
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
