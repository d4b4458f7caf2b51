"""The set-up: the server, your name, the use of memory, and the people on a gateway.

Every question offers the value in force, and only changed answers are written, so a repeated run loses nothing. The
server is tried before anything is saved.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from hermes.errors import ProviderError, UsageError
from hermes.honcho import keys
from hermes.honcho.config_file import Block, Edit, set_keys
from hermes.honcho.configuration import HonchoConfiguration
from hermes.honcho.injection import DEFAULT_TOKENS
from hermes.honcho.questions import DEFAULT_TURNS, SERVER_KEYS, SERVERS, TYPED, Interview, ask_gateway, ask_server
from hermes.honcho.server import find_server, try_server
from hermes.honcho.sign_in import Signer, own_sign_in, revoke_replaced
from hermes.honcho.workbench import Workbench, find_bench, origin, shown, value_of
from hermes.memory.provider import SettingInForce
from hermes.settings.kinds import in_words
from hermes.types import Json

WORDS: Mapping[str, Mapping[str, str]] = {
    "recallMode": {
        "hybrid": "recalled context with each message, and tools to ask for more",
        "context": "recalled context with each message, no tools",
        "tools": "tools alone: nothing is recalled by itself",
    },
    "observationMode": {
        "directional": "Honcho learns about you and about the agent",
        "unified": "Honcho learns about you alone",
    },
    "writeFrequency": {
        "async": "at once, in the background",
        "turn": "before each turn ends",
        "session": "when the conversation ends",
        TYPED: "after every few turns; how many is asked next",
    },
    "sessionStrategy": {
        "per-directory": "the directory you are in",
        "per-repo": "the git repository around it",
        "per-session": "nothing: each has its own id, and a session of its own",
        "global": "nothing: one session for everything",
    },
}
USE = (
    (keys.RECALL_MODE, "What does the model get of memory?", "mode"),
    (keys.OBSERVATION_MODE, "Whom does Honcho learn about?", "observation"),
    (keys.WRITE_FREQUENCY, "When is what was said sent to Honcho?", "write"),
    (keys.SESSION_STRATEGY, "What are the terminal's sessions named after?", "strategy"),
)
"""Keys with their question and option."""
OPTIONS: Sequence[tuple[keys.Key[Any], str]] = (
    (keys.PEER_NAME, "user"),
    (keys.AI_PEER, "ai"),
    (keys.WORKSPACE, "workspace"),
    *((row, name) for row, _, name in USE),
    (keys.CONTEXT_TOKENS, "tokens"),
)
"""Keys with the option that sets them directly."""


def settings_in_force(config: HonchoConfiguration) -> list[SettingInForce]:
    """Return every key with its value, and for those that the set-up asks about, question and choices."""
    asked = {row.key: question for row, question, _ in USE}

    def read(row: keys.Key[Any]) -> SettingInForce:
        value = value_of(config, row)
        return SettingInForce(row, value, origin(config, row), asked.get(row.key, ""), _choices(row, value))

    return [read(row) for row in keys.TABLE if row is not keys.OAUTH]


def _choices(row: keys.Key[Any], value: Json) -> Mapping[str, str]:
    """Return the choices of a question; for `writeFrequency` a number of turns is one of them."""
    words = dict(WORDS.get(row.key, {}))
    if words.pop(TYPED, ""):
        turns = DEFAULT_TURNS if str(value) in words else str(value)
        words[turns] = f"after every {turns} turns"
    return words


def _help_with_values(row: keys.Key[Any]) -> str:
    """Return a key's help with its allowed values."""
    return f"{row.help} It takes {row.allowed}."


def setup(
    ctx: typer.Context,
    server: Annotated[str | None, typer.Option("--server", help=f"{', '.join(SERVERS)}.")] = None,
    url: Annotated[str | None, typer.Option("--url", help="URL of a self-hosted server.")] = None,
    key: Annotated[
        str | None, typer.Option("--key", help="The server's key; HONCHO_API_KEY in .env is not seen by others.")
    ] = None,
    workspace: Annotated[str | None, typer.Option("--workspace", help=keys.WORKSPACE.help)] = None,
    user: Annotated[str | None, typer.Option("--user", help=keys.PEER_NAME.help)] = None,
    ai: Annotated[str | None, typer.Option("--ai", help=keys.AI_PEER.help)] = None,
    mode: Annotated[str | None, typer.Option("--mode", help=_help_with_values(keys.RECALL_MODE))] = None,
    observation: Annotated[
        str | None, typer.Option("--observation", help=_help_with_values(keys.OBSERVATION_MODE))
    ] = None,
    write: Annotated[str | None, typer.Option("--write", help=_help_with_values(keys.WRITE_FREQUENCY))] = None,
    strategy: Annotated[str | None, typer.Option("--strategy", help=_help_with_values(keys.SESSION_STRATEGY))] = None,
    tokens: Annotated[str | None, typer.Option("--tokens", help=keys.CONTEXT_TOKENS.help)] = None,
    identity: Annotated[
        str | None, typer.Option("--identity", help="Who talks to the gateway: just-me, pooled or others.")
    ] = None,
    prefix: Annotated[str | None, typer.Option("--prefix", help=keys.RUNTIME_PEER_PREFIX.help)] = None,
    unchecked: Annotated[bool, typer.Option("--unchecked", help="Do not try the server before saving.")] = False,
    yes: Annotated[
        bool, typer.Option("--yes", help="Ask nothing: options, and for the rest what is in force.")
    ] = False,
) -> None:
    """Set Honcho up, question by question or by options. Unchanged answers leave the configuration as it is."""
    options = {
        "server": server,
        "url": url,
        "key": key,
        "workspace": workspace,
        "user": user,
        "ai": ai,
        "mode": mode,
        "observation": observation,
        "write": write,
        "strategy": strategy,
        "tokens": tokens,
        "identity": identity,
        "prefix": prefix,
    }
    run_setup(find_bench(ctx), options, asks=not yes, checks=not unchecked)


def run_setup(bench: Workbench, options: Mapping[str, str | None], *, asks: bool, checks: bool) -> None:
    """Ask, try the server, save, and mark the owner's accounts."""
    dialog = bench.console.dialog
    if asks and not dialog.can_ask:
        raise UsageError("nobody can be asked here", hint="`--yes` takes what the options say; `--help` lists them")
    interview = Interview(dialog, bench.load().checked(), options, asks=asks)
    people = bench.console.people()
    for row, name in OPTIONS:
        if (given := interview.option(name)) is not None:
            interview.put(row, given)  # an invalid one is reported before anything is asked or tried
    signer = Signer(dialog, bench.machine)
    ask_server(interview, signer)
    _ask_names(interview)
    if checks:  # once it is known which workspace, which trying makes
        _try(bench, interview, signer)
    _ask_use(interview)
    has_gateway = bool(bench.console.platforms) or options["identity"] is not None
    mine = ask_gateway(interview, people) if has_gateway else []
    if asks:
        dialog.say("")
    _save(bench, interview)
    bench.machine.choose()
    if mine:
        bench.console.mark_owner(mine)
        dialog.say(f"Marked as you: {', '.join(one.who for one in mine)}.")


def _save(bench: Workbench, interview: Interview) -> None:
    if not interview.wanted:
        interview.dialog.say("Everything stays as it was.")
        return
    before = own_sign_in(bench.machine)
    bench.save(_edit(interview))
    revoke_replaced(before, bench.machine)
    config = bench.load()
    rows = [row for row in keys.TABLE if row.key in interview.wanted]
    bench.console.print_lines([(f"  {row.key}", shown(config, row)) for row in rows])
    interview.dialog.say("`hermes honcho status` shows all that is in force.")


def _edit(interview: Interview) -> Edit:
    """Return the edit that writes the answers. Aliases added meanwhile are kept. An empty key is written only to
    hide the root's."""
    aliases, key = keys.USER_PEER_ALIASES, keys.API_KEY.key
    change = set_keys(interview.wanted, {aliases.key: interview.config.get(aliases)})

    def edit(block: Block, root: Block) -> None:
        change(block, root)
        if block.get(key) == "" and not root.get(key):
            del block[key]

    return edit


def _ask_names(interview: Interview) -> None:
    config = interview.config
    if interview.asks:
        interview.dialog.say("")
    interview.text(
        keys.PEER_NAME, "Your name at Honcho", "user", interview.value(keys.PEER_NAME) or config.identities.owner
    )
    if interview.asks and not interview.value(keys.PEER_NAME):
        interview.put(keys.PEER_NAME, config.identities.owner)  # a login may have another name elsewhere
    interview.text(keys.AI_PEER, "The agent's name", "ai", interview.value(keys.AI_PEER) or config.identities.ai)
    while interview.asks and interview.value(keys.PEER_NAME) == (interview.value(keys.AI_PEER) or config.identities.ai):
        interview.dialog.say("You and the agent cannot have the same name.")
        interview.reopen([keys.AI_PEER], ["ai"])
        interview.text(keys.AI_PEER, "The agent's name", "ai", config.identities.ai)
    standing = interview.value(keys.WORKSPACE) or config.workspace
    interview.text(keys.WORKSPACE, "Workspace: profiles in one know the same people", "workspace", standing)


def _ask_use(interview: Interview) -> None:
    """Ask whether to keep the defaults, and if not, a question for each."""
    tokens = interview.value(keys.CONTEXT_TOKENS) or DEFAULT_TOKENS
    standing = ", ".join(in_words(interview.value(row)) for row, _, _ in USE) + f", {tokens} tokens"
    ways = {"keep": standing, "change": "a question for each of these"}
    if not interview.asks or interview.dialog.choose("How is memory used?", ways, "keep") == "keep":
        return
    for row, question, name in USE:
        interview.choice(row, question, name, WORDS[row.key])
    question = "Tokens of recalled context with a message, at most"
    interview.text(keys.CONTEXT_TOKENS, question, "tokens", str(tokens))


def _try(bench: Workbench, interview: Interview, signer: Signer) -> None:
    """Connect to the server with the new settings; after a failure the person may still save."""
    dialog = interview.dialog
    while True:
        trial = bench.trial(_edit(interview))
        dialog.say(f"\nTrying {find_server(trial).shown} …")
        problem = try_server(trial, bench.machine)
        if not problem:
            dialog.say("It answers.")
            return
        if not interview.asks:
            raise ProviderError(f"nothing was saved: {problem}", hint="`--unchecked` saves without trying")
        options = {
            "again": "try once more",
            "other": "another server or key",
            "save": "go on, and save it all the same",
            "stop": "save nothing",
        }
        answer = dialog.choose(f"It does not work: {problem}", options, "again")
        if answer == "save":
            return
        if answer == "stop":
            raise UsageError("nothing was saved", hint="")
        if answer == "other":
            interview.reopen(SERVER_KEYS, ("server", "url", "key"))
            ask_server(interview, signer)
