"""The root command, and the boundary that turns every error into one line and an exit code."""

from __future__ import annotations

import importlib
import io
import os
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer
import typer.main

from hermes import __version__
from hermes.cli.output import note, print_error, say
from hermes.cli.own_name import TYPED, read_command_line
from hermes.errors import HermesError

OUTPUT_CLOSED = "standard output is closed"
INTERRUPTED_EXIT_CODE = 130
DEFECT_EXIT_CODE = 70

COMMANDS: dict[str, str] = {
    "chat": "chat:chat",
    "setup": "first_start:setup",
    "model": "model:model",
    "gateway": "gateway:app",
    "web": "web:commands",
    "sessions": "sessions:app",
    "memory": "memory:build",
    "config": "config:app",
    "profiles": "profiles:app",
    "trust": "trust:trust",
    "doctor": "doctor:doctor",
    "backup": "backup:backup",
    "restore": "backup:restore",
    "completion": "completion:completion",
    "help": "main:print_help",
    "version": "main:print_version",
}
"""Each command's module in this package and its attribute: a function, a command group, or `build`, a factory for a
group that takes the next word."""

SUGGESTIONS = {
    "status": "`hermes doctor` checks everything, `hermes memory status` and `hermes gateway status` one part",
    "search": "`hermes memory search WORDS` searches memory, `hermes sessions search WORDS` all messages",
    "remember": "`/remember TEXT` in `hermes chat` does it",
    "forget": "`hermes memory forget WORDS` does it",
    "serve": "`hermes gateway run` serves the API and chats, `hermes memory serve` the memory",
    "login": "`hermes honcho login` signs in to Honcho",
}
"""Unknown words that people type as commands, and the right commands for them."""


def build_app(names: Iterable[str], following: str | None = None) -> typer.Typer:
    """Build the command line with these commands only; other command modules are not imported. `following` is the word
    after the command."""
    app = typer.Typer(
        name="hermes",
        help="An agent host with durable long-term memory.",
        no_args_is_help=True,
        # importing rich is slow, so help texts do without it
        rich_markup_mode=None,
        add_completion=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(root)
    for name in names:
        module, _, attribute = COMMANDS[name].partition(":")
        held = getattr(importlib.import_module(f"hermes.cli.{module}"), attribute)
        if attribute == "build":
            held = held(following)
        if isinstance(held, typer.Typer):
            app.add_typer(held, name=name)
        else:
            app.command(name)(held)
    return app


def _needed(arguments: Sequence[str]) -> Iterable[str]:
    """Return the requested command, or all commands for help and unknown words."""
    _, word, _ = read_command_line(arguments)
    return [word] if word in COMMANDS else COMMANDS


def _add_provider(app: typer.Typer, arguments: Sequence[str]) -> None:
    """Add the chosen memory provider's commands, if they are requested by name or all commands are listed."""
    profile, word, _ = read_command_line(arguments)
    if word in COMMANDS or (word is None and arguments and not {"-h", "--help"} & set(arguments)):
        return
    groups = importlib.import_module("hermes.cli.provider_group")
    if word is not None:
        if (group := groups.provider_group(word, profile)) is not None:
            app.add_typer(group, name=word)
        return
    with suppress(HermesError):  # the list must work with broken settings
        if (chosen := groups.chosen_group(profile)) is not None:
            app.add_typer(chosen[1], name=chosen[0])


def first_sentence(text: str) -> str:
    """Return the first sentence of a help text, without the full stop."""
    first = " ".join(text.split("\n\n")[0].split())
    return first.partition(". ")[0].rstrip(".")


def show_whole(command: Any) -> None:
    """Show whole first sentences in command lists, which Typer would cut. Takes a Typer command."""
    for child in getattr(command, "commands", {}).values():
        child.short_help = f"{first_sentence(child.help or '')}."
        show_whole(child)


def _print_version(wanted: bool) -> None:
    if wanted:
        say(f"hermes {__version__}")
        raise typer.Exit


def print_help(
    words: Annotated[list[str] | None, typer.Argument(metavar="[COMMAND]", help="A command, such as `chat`.")] = None,
) -> None:
    """Show all commands, or the help of one COMMAND."""
    raise AssertionError(f"`run` shows the help of {words}")


def _as_help(arguments: list[str]) -> list[str]:
    """Return `help COMMAND` as `COMMAND --help`, which means the same."""
    if read_command_line(arguments)[1] != "help" or {"-h", "--help"} & set(arguments):
        return arguments
    place = arguments.index("help")
    return [*arguments[:place], *arguments[place + 1 :], "--help"]


def print_version() -> None:
    """Print the version."""
    _print_version(True)


def root(
    ctx: typer.Context,
    profile: Annotated[str | None, typer.Option("-p", "--profile", help="Use the home of this profile.")] = None,
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and end.")
    ] = False,
) -> None:
    """An agent host with durable long-term memory."""
    ctx.obj = profile  # `load_app` and `find_home` read it


def _print_usage_error(error: typer.TyperException, arguments: Sequence[str]) -> None:
    message = error.format_message()
    if message.startswith("Usage:"):  # the help of a group without a command
        note(message)
        return
    context = getattr(error, "ctx", None)
    needed = list(_needed(arguments))  # the error for a missing option value has no command
    path = context.command_path if context is not None else " ".join(["hermes", *needed[: len(needed) == 1]])
    hint = f"`{path} --help` shows the options"
    _, word, _ = read_command_line(arguments)
    if word in SUGGESTIONS and message == f"No such command '{word}'.":
        hint = f"{SUGGESTIONS[word]}; {hint}"
    note(f"hermes: {HermesError(message, hint=hint).line()}")


def _open_missing_streams() -> None:
    """Open /dev/null in place of closed streams (`>&-`); otherwise the next opened file would take their number."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115 - open until we end


def _forget_output() -> None:
    """Send further output to /dev/null, so that Python does not report the broken pipe again at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _tolerate_any_text() -> None:
    """Print a replacement for characters that the terminal cannot encode, instead of failing."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="replace")


def run(arguments: list[str]) -> int:
    """Run one command line and return its exit code. Shows no traceback unless HERMES_DEBUG is set."""
    lost_output = sys.stdout is None
    _open_missing_streams()
    _tolerate_any_text()
    if lost_output:
        note(f"hermes: {OUTPUT_CLOSED}")
        return 1
    try:
        arguments = _as_help(arguments or ["--help"])
        TYPED.profile, _, following = read_command_line(arguments)
        app = build_app(_needed(arguments), following)
        _add_provider(app, arguments)
        command = typer.main.get_command(app)
        show_whole(command)
        result = command(arguments, prog_name="hermes", standalone_mode=False)
        sys.stdout.flush()
        return result if isinstance(result, int) else 0
    except HermesError as error:
        print_error(error)
        return error.exit_code
    except typer.TyperException as error:
        _print_usage_error(error, arguments)
        return error.exit_code
    except (KeyboardInterrupt, typer.Abort):
        note("hermes: interrupted")
        return INTERRUPTED_EXIT_CODE
    except BrokenPipeError:
        _forget_output()
        return 1
    except OSError as error:
        note(f"hermes: cannot write the output: {error.strerror or error}. Check the disk and where it goes")
        _forget_output()
        return 1
    except Exception as error:  # noqa: BLE001 - the last boundary before a person
        if os.environ.get("HERMES_DEBUG"):
            import traceback

            traceback.print_exc()
        note(f"hermes: this is a defect: {type(error).__name__}: {error}. HERMES_DEBUG=1 shows where")
        return DEFECT_EXIT_CODE
