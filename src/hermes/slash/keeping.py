"""`/save` and `/copy`: the conversation as a file, and replies in the clipboard."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from hermes.db.engine import Tx
from hermes.errors import HomeError, UsageError
from hermes.files import creating, replacing
from hermes.slash.here import Here, Word, agent_of, console_of, read_number
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


async def save(here: Here, text: str) -> str:
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


async def copy(here: Here, text: str) -> str:
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


async def copy_words(_here: Here, _typed: str) -> Sequence[Word]:
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
