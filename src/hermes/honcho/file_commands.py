"""`hermes honcho identity` and `migrate`: store the contents of files as conclusions.

Texts that are stored already are skipped, so both commands can be repeated.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from msgspec import Struct

from hermes.errors import HomeError, NotFoundError, UsageError
from hermes.files import read_file
from hermes.honcho.configuration import HonchoConfiguration
from hermes.honcho.files import MAX_FILE_BYTES, note_files
from hermes.honcho.server import find_server, open_client
from hermes.honcho.workbench import Workbench, find_bench
from hermes.memory.notes import find_entries
from hermes.types import Json

if TYPE_CHECKING:
    from honcho import Honcho

MAX_CONCLUSION_CHARS = 60_000
"""Length of one conclusion."""
CONCLUSIONS_PER_PAGE = 100
MAX_COMPARED_CONCLUSIONS = 10_000
"""Existing conclusions that are compared with the new texts."""
PARAGRAPHS = re.compile(r"\n\s*\n")
HEADING = "#"


class FileTexts(Struct, frozen=True):
    """The texts of one file, and their subject."""

    file: Path
    about: str
    texts: tuple[str, ...]


def identity(
    ctx: typer.Context,
    file: Annotated[Path | None, typer.Argument(help="Who the agent is (default: SOUL.md of the home).")] = None,
    show: Annotated[bool, typer.Option("--show", help="Show what Honcho knows of the agent instead.")] = False,
    json: Annotated[bool, typer.Option("--json", help="With --show: print JSON.")] = False,
) -> None:
    """Store the agent's identity, a conclusion for each paragraph, or show what Honcho knows of the agent."""
    bench = find_bench(ctx)
    config = bench.load().checked()
    if show:
        _show_identity(bench, config, as_json=json)
        return
    path = file or bench.machine.home.soul_file
    if not path.exists():
        raise NotFoundError(f"there is no {path}", hint="Name a file that says who the agent is")
    _tell(bench, config, [_read(path, config.identities.ai, _paragraphs)])


def migrate(
    ctx: typer.Context,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    json: Annotated[bool, typer.Option("--json", help="With --yes: print JSON.")] = False,
) -> None:
    """Store the built-in notes as conclusions: your own notes about you, SOUL.md about the agent. The files stay."""
    bench = find_bench(ctx)
    config, home = bench.load().checked(), bench.machine.home
    who = config.identities
    wanted = [
        *((path, who.owner, _entries) for path in note_files(home)),
        (home.soul_file, who.ai, _paragraphs),
    ]
    found = [_read(path, about, split) for path, about, split in wanted if path.exists()]
    if json and not yes:
        raise UsageError("--json asks nothing", hint="Give --yes too")
    if not found and not json:
        bench.console.dialog.say(f"There are no notes in {home.path}.")
        return
    if not yes:
        rows = [(one.file.name, str(len(one.texts)), one.about) for one in found]
        bench.console.print_table(("file", "entries", "about"), rows)
        question = f"Tell all of this to {find_server(config).shown}, workspace {config.workspace}?"
        bench.confirm(question, "yes", "nothing was stored")
    _tell(bench, config, found, as_json=json)


def _tell(
    bench: Workbench, config: HonchoConfiguration, tellings: Sequence[FileTexts], *, as_json: bool = False
) -> None:
    done: list[Json] = []
    with open_client(config, bench.machine) as client:
        for one in tellings:
            new, there = _tell_one(client, config.identities.ai, one)
            done.append({"file": str(one.file), "about": one.about, "told": new, "known": there})
            if not as_json:
                bench.console.print_lines([(one.file.name, f"{new} stored, {there} known already, about {one.about}")])
    if as_json:
        bench.console.print_json(done)


def _tell_one(client: Honcho, agent: str, telling: FileTexts) -> tuple[int, int]:
    """Store a file's new texts, and return the numbers of new and already known texts."""
    for peer in (agent, telling.about):
        client.peer(peer).get_metadata()  # from here on it is there, with what it had
    view = client.peer(agent).conclusions_of(telling.about)
    known = {found.content for found in islice(iter(view.list(size=CONCLUSIONS_PER_PAGE)), MAX_COMPARED_CONCLUSIONS)}
    new = [{"content": text} for text in telling.texts if text not in known]
    for start in range(0, len(new), CONCLUSIONS_PER_PAGE):
        view.create(list(new[start : start + CONCLUSIONS_PER_PAGE]))
    return len(new), len(telling.texts) - len(new)


def _show_identity(bench: Workbench, config: HonchoConfiguration, *, as_json: bool) -> None:
    agent = config.identities.ai
    with open_client(config, bench.machine) as client:
        peer = client.peer(agent)
        card, representation = list(peer.get_card() or []), peer.representation()
    if as_json:
        bench.console.print_json({"agent": agent, "card": card, "representation": representation})
    elif not card and not representation:
        bench.console.dialog.say(f"Honcho knows nothing of {agent} yet; `hermes honcho identity FILE` tells it.")
    else:
        bench.console.dialog.say("\n".join([*card, representation]))


def _read(path: Path, about: str, split: Callable[[str], Iterable[str]]) -> FileTexts:
    """Return a file's distinct texts. Raises HomeError."""
    try:
        raw = read_file(path)
        text = raw.decode("utf-8-sig").replace("\r\n", "\n")
    except OSError as error:
        raise HomeError(f"cannot read {path}: {error.strerror}", hint="") from error
    except UnicodeDecodeError as error:
        raise HomeError(f"{path} is not UTF-8 text", hint="") from error
    if len(raw) > MAX_FILE_BYTES:
        raise HomeError(f"{path} has more than {MAX_FILE_BYTES // 1024} KB", hint="Is it the right file?")
    texts = tuple(dict.fromkeys(part for part in split(text) if part))
    if any(len(part) > MAX_CONCLUSION_CHARS for part in texts):
        raise HomeError(f"{path} has an entry of more than {MAX_CONCLUSION_CHARS:,} characters", hint="Split it")
    return FileTexts(path, about, texts)


def _paragraphs(text: str) -> Iterable[str]:
    return (part.strip() for part in PARAGRAPHS.split(text))


def _entries(text: str) -> Iterable[str]:
    """Return a note's entries as the host parses them, without headings."""
    return (entry.text for entry in find_entries(text) if HEADING not in entry.marker)
