"""`hermes honcho …`: a command for each of the most often changed keys.

`sync` creates a host block for every profile. `identity` and `migrate` store the contents of files as conclusions;
texts that are stored already are skipped, so both can be repeated.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from msgspec import Struct

from hermes.errors import HomeError, NotFoundError, UsageError
from hermes.files import read_file
from hermes.honcho import keys
from hermes.honcho.config_file import FILE, Block, Edit, edit_document, move_old_pin, read_document, set_entry, set_keys
from hermes.honcho.configuration import HonchoConfiguration
from hermes.honcho.files import MAX_FILE_BYTES, note_files
from hermes.honcho.names import fit
from hermes.honcho.peer_commands import peers
from hermes.honcho.server import Machine, find_server, open_client
from hermes.honcho.sign_in import login, logout
from hermes.honcho.status import status
from hermes.honcho.wizard import setup
from hermes.honcho.workbench import Workbench, current_directory, find_bench, named_provider
from hermes.memory.notes import find_entries
from hermes.memory.provider import PluginConsole
from hermes.settings import PROVIDER
from hermes.types import Json

if TYPE_CHECKING:
    from honcho import Honcho

OWN = {keys.AI_PEER.key, keys.OAUTH.key, keys.SESSIONS.key}
"""Keys that one profile does not copy from another."""


def sync(
    ctx: typer.Context,
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask where a profile leaves memory behind.")] = False,
) -> None:
    """Give every profile a host block, copied from the default profile: the same workspace, but a separate agent."""
    bench = find_bench(ctx)
    default = next(bench.profiles())
    config = default.load().checked()
    given = _own_block(default)
    left = [] if yes else [line for one in bench.profiles() if (line := _describe_left_behind(one, config.workspace))]
    for line in left:
        bench.console.dialog.say(f"Note: {line}.")
    if left:
        bench.confirm("Go on?", "no", "nothing was changed")
    rows = [(one.profile, _sync(one, config, given)) for one in bench.profiles() if one.profile != default.profile]
    if json:
        bench.console.print_json(dict(rows))
    elif rows:
        bench.console.print_table(("profile", "what was done"), rows)
    else:
        bench.console.dialog.say("There is only the default profile.")


def _sync(bench: Workbench, default: HonchoConfiguration, given: Mapping[str, Any]) -> str:
    if own := _own(bench):
        return f"nothing: it has {own}"
    places, left = bench.machine.places, _describe_left_behind(bench, default.workspace)
    edit_document(places, _make_block(places.host, default.workspace, given))
    needs = "; it needs a sign-in or key of its own" if given.get(keys.OAUTH.key) else ""
    chosen = _choose(bench)
    return f"hosts.{places.host} was made{needs}{chosen}" + (f"; {left}" if left else "")


def _choose(bench: Workbench) -> str:
    """Choose Honcho if nobody chose a provider, so that the block takes effect; return a note of what was done."""
    named = named_provider(bench.machine.home, bench.machine.env)
    if named is None:
        bench.machine.choose()
        return "; Honcho was chosen there (memory.provider)"
    return "" if named == PROVIDER.default else f"; it is not followed: memory.provider is {named} there"


def _own(bench: Workbench) -> str:
    """Describe what a profile already has; "" if it gets a block."""
    path = bench.machine.places.existing()
    if path == bench.machine.home.path / FILE:
        return f"a file of its own, {path}"
    return "a block" if read_document(path, bench.machine.places).block else ""


def _describe_left_behind(bench: Workbench, workspace: str) -> str:
    """Describe what a used profile leaves in another workspace, and how to return to it; "" for nothing."""
    before, name = bench.load().workspace, bench.profile
    if before == workspace or not bench.machine.home.state_file.exists() or _own(bench):
        return ""
    back = f"`hermes -p {name} memory setup honcho --yes --workspace {before}` goes back to it"
    return f"what {name} knows in the workspace {before} stays there and is not recalled any more; {back}"


def _make_block(host: str, workspace: str, given: Mapping[str, Any]) -> Edit:
    ours = {row.key for row in keys.TABLE} - OWN
    if given.get(keys.OAUTH.key):
        ours.discard(keys.API_KEY.key)  # a grant that two renew is taken away from both

    def edit(block: Block, root: Block) -> None:  # noqa: ARG001
        block.update({name: value for name, value in given.items() if name in ours})
        block |= {keys.WORKSPACE.key: workspace, keys.AI_PEER.key: host}

    return edit


def _own_block(bench: Workbench) -> Mapping[str, Any]:
    """Return the profile's own block, with old key names replaced."""
    block = dict(read_document(bench.machine.places.existing(), bench.machine.places).block)
    move_old_pin(block)
    return block


JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
MODES = ("hybrid", "context", "tools", "auto")
OBSERVATIONS = ("directional", "unified")


def make_commands(machine: Machine, console: PluginConsole) -> typer.Typer:
    """Build the whole command group for the profile of `machine`."""
    app = typer.Typer(
        help="Honcho: who is who, where memory lands, and how it is used.", no_args_is_help=True, rich_markup_mode=None
    )

    @app.callback()
    def choose_profile(
        ctx: typer.Context,
        target_profile: Annotated[
            str | None, typer.Option("--target-profile", metavar="NAME", help="Work on this profile instead.")
        ] = None,
    ) -> None:
        bench = Workbench(machine, console)
        ctx.obj = bench if target_profile is None else bench.of_profile(target_profile)

    for command in (
        setup,
        status,
        login,
        logout,
        enable,
        disable,
        mode,
        peer,
        sessions,
        strategy,
        tokens,
        map_directory,
    ):
        app.command("map" if command is map_directory else command.__name__)(command)
    app.add_typer(peers, name="peers")
    for command in (sync, identity, migrate):
        app.command()(command)
    return app


def enable(ctx: typer.Context) -> None:
    """Use Honcho in this profile."""
    bench = find_bench(ctx)
    bench.save_keys({"enabled": True})
    bench.machine.choose()


def disable(ctx: typer.Context) -> None:
    """Stop using Honcho in this profile: nothing is recorded or recalled. Data on the server stays."""
    find_bench(ctx).save_keys({"enabled": False})


def mode(
    ctx: typer.Context,
    name: Annotated[
        str | None, typer.Argument(metavar="MODE", help=f"{', '.join((*MODES[:3], *OBSERVATIONS))}; without it, shown.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Show or set what the model gets from memory, or who learns about whom."""
    bench = find_bench(ctx)
    if name is None:
        bench.show_keys([keys.RECALL_MODE, keys.OBSERVATION_MODE], as_json=json)
    elif name in OBSERVATIONS:
        bench.save_keys({"observationMode": name})
        if bench.load().get(keys.OBSERVATION):
            bench.console.dialog.say("The key observation says more than that, and counts where it does.")
    elif name in MODES:
        bench.save_keys({"recallMode": name})
    else:
        raise UsageError(f"unknown mode '{name}'", hint=f"There are {', '.join((*MODES[:3], *OBSERVATIONS))}")


def peer(
    ctx: typer.Context,
    user: Annotated[str | None, typer.Option("--user", metavar="NAME", help="Your own peer.")] = None,
    ai: Annotated[str | None, typer.Option("--ai", metavar="NAME", help="The agent's peer.")] = None,
    reasoning: Annotated[
        str | None, typer.Option("--reasoning", metavar="LEVEL", help=f"{', '.join(keys.LEVELS)}.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Show or set your name, the agent's name, and the reasoning effort for questions about you."""
    given = {"peerName": user, "aiPeer": ai, "dialecticReasoningLevel": reasoning}
    _set_or_show(find_bench(ctx), given, [keys.PEER_NAME, keys.AI_PEER, keys.DIALECTIC_REASONING_LEVEL], json)


def strategy(
    ctx: typer.Context,
    name: Annotated[
        str | None, typer.Argument(metavar="STRATEGY", help=f"{keys.SESSION_STRATEGY.allowed}; without it, shown.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Show or set what terminal sessions are named after."""
    _set_or_show(find_bench(ctx), {"sessionStrategy": name}, [keys.SESSION_STRATEGY], json)


def tokens(
    ctx: typer.Context,
    context: Annotated[int | None, typer.Option("--context", help=keys.CONTEXT_TOKENS.help)] = None,
    dialectic: Annotated[int | None, typer.Option("--dialectic", help=keys.DIALECTIC_MAX_CHARS.help)] = None,
    json: JsonOption = False,
) -> None:
    """Show or set how much is recalled."""
    given = {"contextTokens": context, "dialecticMaxChars": dialectic}
    _set_or_show(find_bench(ctx), given, [keys.CONTEXT_TOKENS, keys.DIALECTIC_MAX_CHARS], json)


def sessions(ctx: typer.Context, json: JsonOption = False) -> None:
    """List directories with a session name."""
    bench = find_bench(ctx)
    named = bench.load().get(keys.SESSIONS)
    if json:
        bench.console.print_json(dict(named))
    elif named:
        bench.console.print_table(("directory", "session"), sorted(named.items()))
    else:
        bench.console.dialog.say("No directory has a name of its own; `hermes honcho map NAME` gives this one a name.")


def map_directory(
    ctx: typer.Context,
    name: Annotated[str | None, typer.Argument(help="The session's name; without it all are listed.")] = None,
    remove: Annotated[bool, typer.Option("--remove", help="Take the name of this directory away.")] = False,
    json: JsonOption = False,
) -> None:
    """Give the sessions of this directory a name."""
    if name is None and not remove:
        sessions(ctx, json)
        return
    bench, directory = find_bench(ctx), current_directory()
    if directory is None:
        raise UsageError("the current directory no longer exists", hint="Change to another one")
    if remove:
        _remove_name(bench, str(directory), name)
    else:
        _give_name(bench, str(directory), name or "")


def _remove_name(bench: Workbench, directory: str, name: str | None) -> None:
    named = bench.load().get(keys.SESSIONS)
    if name is not None:
        raise UsageError("--remove takes no name", hint="It removes the name of this directory")
    if directory not in named:
        raise NotFoundError(f"{directory} has no name", hint="`hermes honcho map` lists those that have one")
    rest = {one: called for one, called in named.items() if one != directory}
    bench.save(set_keys({keys.SESSIONS.key: rest}, {keys.SESSIONS.key: named}))
    bench.console.dialog.say(
        f"{directory} is not called {named[directory]} any more; what was said under it stays there."
    )


def _give_name(bench: Workbench, directory: str, name: str) -> None:
    fitting = fit(name)
    if not fitting:
        raise UsageError(f"'{name}' has no valid character", hint="Use letters, digits, `-` and `_`")
    bench.save(set_entry(keys.SESSIONS, directory, fitting))
    config = bench.load()
    bench.console.print_lines([(directory, fitting)])
    if fitting != name:
        bench.console.dialog.say(
            f"Note: '{name}' was saved as {fitting}: a name can only have letters, digits, `-` and `_`."
        )
    if config.get(keys.SESSION_STRATEGY) == "per-session":
        bench.console.dialog.say(
            "It has no effect now: with the strategy per-session each session is named by its own id. "
            "`hermes honcho strategy per-directory` changes that."
        )
    elif config.get(keys.SESSIONS).get(directory) != fitting:
        bench.console.dialog.say("It has no effect: another place comes first. `hermes honcho status` shows where.")


def _set_or_show(bench: Workbench, given: dict[str, Json], rows: list[keys.Key[Json]], as_json: bool) -> None:
    values = {key: value for key, value in given.items() if value is not None}
    if values:
        bench.save_keys(values)
    else:
        bench.show_keys(rows, as_json=as_json)


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
