"""`hermes gateway`: run it, show its status, stop it, and decide who may talk to it.

`hermes gateway setup`: configure a Telegram, Discord or Slack bot; tokens are tested before they are saved.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator
from contextlib import suppress
from importlib.util import find_spec
from typing import Annotated, Any

import typer
from msgspec import to_builtins

from hermes.app import App
from hermes.assembly import FLOOR_NOTICE, has_model, open_notes, open_speaker
from hermes.cli.dialog import TerminalDialog, can_ask, confirm
from hermes.cli.gateway_service import install_service, uninstall_service
from hermes.cli.output import note, one_line, print_json, print_table, printable, say, saying, show_time
from hermes.cli.start import TO_END, AsJson, load_app, on_signals, read_store, start_home_log, with_store, write_store
from hermes.config_file import load_shared_env, read_entries, write_setting
from hermes.db.engine import Tx
from hermes.db.leases import describe_owner
from hermes.db.queue import FAILED
from hermes.embedded.connect import keeping
from hermes.embedded.rendezvous import find_place
from hermes.errors import HermesError, UsageError
from hermes.gateway.platforms import SWITCHES
from hermes.gateway.platforms.set_up import SET_UPS, CheckedToken, RefusedTokenError, SetUp, how_to_install
from hermes.hosting import open_gateway, open_platforms
from hermes.memory.registry import NONE
from hermes.owner.status import read_gateway, read_remarks, take_default_notice
from hermes.scope import API, OWNER, TERMINAL, Guest
from hermes.settings import ALLOW, PROVIDER, Setting
from hermes.store import inbox
from hermes.store.people import KnownPerson, describe_unmarked, mark, meet_all, people, take_untold
from hermes.store.store import Store
from hermes.types import Json


def set_up_platform(
    ctx: typer.Context,
    platform: Annotated[str | None, typer.Argument(help=f"{', '.join(SET_UPS)}; asked for if omitted.")] = None,
) -> None:
    """Set up Telegram, Discord or Slack: explains where to get the tokens, tests them, and lists missing
    permissions."""
    app, dialog = load_app(ctx), TerminalDialog()
    if platform is not None and platform not in SET_UPS:
        raise UsageError(f"there is no chat platform '{platform}'", hint=f"Known: {', '.join(SET_UPS)}")
    if not can_ask():
        keys = " and ".join(
            f"`hermes config set {setting.key}`" for setting, _ in SET_UPS[platform or "discord"].tokens
        )
        raise UsageError("setup needs a terminal for its questions", hint=f"Without one: {keys}")
    options = {name: one.summary for name, one in SET_UPS.items()}
    name = platform or dialog.choose("Which platform?", options, next(iter(options)))
    chosen = SET_UPS[name]
    dialog.say(chosen.steps)
    tokens = _ask_tokens(app, dialog, chosen)
    for (setting, _), token in zip(chosen.tokens, tokens, strict=True):
        if token != app.settings.get(setting):
            write_setting(app.home.config_file, setting, token)
        if app.env.get(setting.env or "") not in (None, token):
            dialog.say(f"{setting.env} is set in the environment and overrides it.")
    dialog.say(f"{name} is set ({app.home.config_file}).")
    for profile in _profiles_with(app, chosen.tokens[0][0], tokens[0]):
        dialog.say(f"The profile {profile} uses the same bot: both gateways would answer. Create one bot per profile.")
    if find_spec(chosen.module) is None:
        dialog.say(f"Its package is not installed yet: `{how_to_install(chosen.requirements)}`")
    dialog.say("Next: run `hermes gateway run` (restart the gateway if it runs already), then write to the bot.")


def _ask_tokens(app: App, dialog: TerminalDialog, chosen: SetUp) -> list[str]:
    """Prompt until the platform accepts the tokens. If it cannot be reached they are returned untested."""
    while True:
        tokens = [dialog.ask(label, app.settings.get(setting), secret=True) for setting, label in chosen.tokens]
        try:
            if all(tokens):
                _report(dialog, chosen.check(str(app.settings.get(chosen.base_url)).rstrip("/"), tokens))
                return tokens
            dialog.say("  A token is required; Ctrl-C cancels.")
        except RefusedTokenError as error:
            dialog.say(f"  The token was refused ({printable(str(error))}). Copy it again; Ctrl-C cancels.")
        except (OSError, ValueError) as error:
            dialog.say(f"  It could not be tested ({printable(_hide(str(error), tokens))}); it is saved anyway.")
            return tokens


def _profiles_with(app: App, setting: Setting[Any], token: str) -> Iterator[str]:
    """Yield the other profiles whose config.yaml has the same token."""
    for home in app.home.all():
        with suppress(HermesError):  # an invalid file of another profile is reported there
            if home.path != app.home.path and (setting.key, token) in {
                (given.key, str(given.value)) for given in read_entries(home.config_file)
            }:
                yield home.name


def _report(dialog: TerminalDialog, checked: CheckedToken) -> None:
    dialog.say(f"It is {printable(checked.bot)}.")
    for line in checked.missing:
        dialog.say(f"  Missing: {printable(line)}")
    if checked.next_step:
        dialog.say(printable(checked.next_step))


def _hide(line: str, tokens: list[str]) -> str:
    """Return a line without the tokens, since a URL in it may contain one."""
    for token in tokens:
        line = line.replace(token, "(hidden)")
    return line


app = typer.Typer(
    help="Run the gateway, show its status, and decide who may talk.", no_args_is_help=True, rich_markup_mode=None
)
NOBODY_YET = "nobody has written or been let in yet"
UNKNOWN_ID = "nobody with this id has written yet"
STOP_TIMEOUT_SECONDS = 60.0


@app.command("run")
def run_gateway(ctx: typer.Context) -> None:
    """Serve the configured platforms until Ctrl-C or `hermes gateway stop`."""
    host = load_app(ctx)

    async def work(store: Store) -> None:
        start_home_log(host)
        with keeping(find_place(host.home, load_shared_env(host.home))):
            await _serve(host, store)

    with_store(host, work)


async def _serve(host: App, store: Store) -> None:
    model = open_speaker(host)
    gateway = open_gateway(host, store, model)
    platforms = open_platforms(host, store, model, gateway)
    if not platforms:
        switches = ", or ".join(f"`{setting.key}`" for setting in SWITCHES.values())
        raise UsageError(
            "no platform is configured",
            hint=f"Run `hermes gateway setup`, or set {switches} (docs/gateway.md)",
        )
    stopping = asyncio.Event()
    announcing: list[asyncio.Task[None]] = []

    def begun() -> None:
        gc.freeze()  # keep the garbage collector away from what start-up loaded
        announcing.append(asyncio.create_task(_announce(host, store)))
        if not has_model(host.settings):
            note(FLOOR_NOTICE)
        note(f"gateway: {', '.join(platform.name for platform in platforms)}; Ctrl-C ends it")

    try:
        with on_signals(TO_END, lambda _: stopping.set()):
            await gateway.run(platforms, stopping, note, begun)
    finally:
        await asyncio.gather(*announcing)
        for platform in platforms:
            await platform.close()
        await model.close()
    note("gateway: ended")


async def _announce(host: App, store: Store) -> None:
    """Announce, once each, people who were let in without a role: they are guests."""
    allowed = host.settings.get(ALLOW)
    if guests := describe_unmarked(await store.write(lambda tx: take_untold(tx, allowed))):
        note(f"gateway: {guests}: `hermes gateway people`")
    if (notice := await take_default_notice(host, store)) is not None:
        note(f"gateway: {notice}")
    if host.settings.get(PROVIDER) != NONE:
        for line in await read_remarks(host, store):
            note(f"gateway: {printable(line)}")


@app.command("status")
def show_status(ctx: typer.Context, json: AsJson = False) -> int:
    """Show the gateway's state, its platforms and its queues. Exits with 1 if no gateway runs."""
    host = load_app(ctx)

    def look(_: Store, tx: Tx) -> dict[str, Json]:
        return {**read_gateway(host, tx), "people": [_as_json(host, one) for one in people(tx)]}

    found = read_store(host, look)
    if json:
        print_json(found)
    else:
        say(f"running, {describe_owner(found['running'])}" if found["running"] else "not running")
        for part in found["parts"]:
            detail = printable(one_line(part["detail"], 500))
            say(f"  {part['part']}: {part['state']} {detail} (since {show_time(part['since'])})")
        for name, stats in found["queues"].items():
            say(f"  {name}: {stats['waiting']} waiting (oldest {stats['oldest_age']:.0f} s), {stats['dead']} {FAILED}")
        for one in found["people"]:
            say(f"  {' '.join(filter(None, (one['who'], _shown(one['name']))))}: {one['role']}")
    return 0 if found["running"] else 1


@app.command("stop")
def stop_gateway(ctx: typer.Context) -> int:
    """Stop the running gateway and wait until it has ended."""
    host = load_app(ctx)

    async def work(store: Store) -> int:
        now = host.clock.now
        if not await store.write(lambda tx: inbox.request_stop(tx, now=now())):
            say("not running")
            return 0
        until = now() + STOP_TIMEOUT_SECONDS
        with saying("Waiting for running turns to finish (after Ctrl-C the gateway still ends by itself)"):
            while await store.read(lambda tx: inbox.running_gateway(tx, now=now())):
                if now() > until:
                    note("the gateway is still running; a long turn may be finishing")
                    return 1
                await host.clock.sleep(0.2)
        say("ended")
        return 0

    return with_store(host, work)


Me = Annotated[bool, typer.Option("--me", help="This person is you: the owner.")]
AGuest = Annotated[bool, typer.Option("--guest", help="This person is someone else: a guest.")]


@app.command("pair")
def pair(
    ctx: typer.Context,
    code: Annotated[str | None, typer.Argument(help="The pairing code. Without it, open requests are listed.")] = None,
    me: Me = False,
    guest: AGuest = False,
    remove: Annotated[
        str | None, typer.Option("--remove", metavar="PLATFORM:ID", help="Withdraw someone's permission.")
    ] = None,
    json: AsJson = False,
) -> None:
    """Let someone who got a pairing code talk to the agent, as yourself or as a guest."""
    host = load_app(ctx)
    if code is not None:
        _let_in(host, code, me=me, guest=guest)
        return
    if remove is not None:
        platform, _, user = remove.partition(":")
        gone = write_store(host, lambda _, tx: inbox.remove_pairing(tx, platform, user))
        say(f"{remove} may no longer talk." if gone else f"{remove} was not paired.")
        return
    asked = read_store(host, lambda _, tx: inbox.pairings(tx))
    if json:
        print_json([to_builtins(one) for one in asked])
    elif not asked:
        note("no pairing requests yet")
    else:
        rows = [
            (f"{one.platform}:{one.user_id}", _shown(one.name), one.code, one.state, show_time(one.created_at))
            for one in asked
        ]
        print_table(("who", "name", "code", "state", "asked"), rows)


def _let_in(host: App, code: str, *, me: bool, guest: bool) -> None:
    """Ask whether the person is the owner; without a terminal they become a guest."""
    if me and guest:
        raise UsageError("--me and --guest cannot go together", hint="Give one of them")
    found = read_store(host, lambda _, tx: inbox.find_code(tx, code))
    who = f"{found.platform}:{found.user_id}"
    if not (me or guest):
        me = confirm(f"Is {_shown(found.name)} ({who}) you? Else they are a guest")

    def allow(_: Store, tx: Tx) -> None:
        inbox.allow_pairing(tx, code)
        mark(tx, found.platform, found.user_id, is_owner=me, now=host.clock.now())

    write_store(host, allow)
    say(f"{_shown(found.name)} ({who}) may talk now, as {'the owner' if me else 'a guest'}.")
    if not me:
        note(f"If that is you: `hermes gateway people --me {who}`")


@app.command("people")
def show_people(
    ctx: typer.Context,
    me: Annotated[
        str | None, typer.Option("--me", metavar="PLATFORM:ID", help="This is you: the owner, who sees everything.")
    ] = None,
    guest: Annotated[
        str | None, typer.Option("--guest", metavar="PLATFORM:ID", help="This is someone else: a guest.")
    ] = None,
    json: AsJson = False,
) -> None:
    """List the people who may talk and their roles. --me and --guest change a role."""
    host = load_app(ctx)
    for who, is_owner in ((me, True), (guest, False)):
        if who is not None:
            _mark(host, who, is_owner=is_owner)

    def look(_: Store, tx: Tx) -> list[KnownPerson]:
        meet_all(tx, host.settings.get(ALLOW))
        return people(tx)

    known = write_store(host, look)
    if json:
        print_json([_as_json(host, one) for one in known])
    elif not known:
        note(NOBODY_YET)
    else:
        rows = [(f"{one.platform}:{one.user_id}", _shown(one.name), _role(one)) for one in known]
        print_table(("who", "name", "is"), rows)


def _mark(host: App, who: str, *, is_owner: bool) -> None:
    platform, _, user = who.partition(":")
    if not platform or not user or platform in (API, TERMINAL):
        raise UsageError(f"'{who}' is not a person on a chat platform", hint="Give PLATFORM:ID, such as telegram:12345")
    now = host.clock.now()
    marked = write_store(host, lambda _, tx: mark(tx, platform, user, is_owner=is_owner, now=now))
    unknown = "" if marked.name else f"; {UNKNOWN_ID}"
    note(f"{who} is {'the owner' if is_owner else 'a guest'} now{unknown}")


def _as_json(host: App, one: KnownPerson) -> Json:
    scope = OWNER if one.is_owner else Guest(one.platform, one.user_id)
    notes = open_notes(host, scope).path("user").parent
    who = f"{one.platform}:{one.user_id}"
    return {"who": who, "name": one.name, "role": one.role, "marked_at": one.marked_at, "notes": str(notes)}


def _role(one: KnownPerson) -> str:
    return f"{one.role}{'' if one.marked_at is not None else ', not marked'}"


def _shown(name: str) -> str:
    """Return a name in a printable form: a stranger chose it, and it must not imitate other output."""
    return printable(one_line(name, 64))


app.command("setup")(set_up_platform)
app.command("install")(install_service)
app.command("uninstall")(uninstall_service)
