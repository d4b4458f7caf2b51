"""The root command, and the boundary where every error becomes one line and an exit code."""

from __future__ import annotations

import os
import sys
import traceback
from typing import Annotated

import typer

from hermes import __version__
from hermes.cli import chat, config, doctor, memory, model, sessions
from hermes.cli.output import note, print_error, say
from hermes.cli.start import Invocation
from hermes.errors import HermesError

INTERRUPTED = 130
UNEXPECTED = 70

app = typer.Typer(
    name="hermes",
    help="An agent host with durable long-term memory.",
    no_args_is_help=True,
    rich_markup_mode=None,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("chat")(chat.chat)
app.command("model")(model.model)
app.add_typer(sessions.app, name="sessions")
app.add_typer(config.app, name="config")
app.add_typer(memory.app, name="memory")
app.command("doctor")(doctor.doctor)


def _print_version(wanted: bool) -> None:
    if wanted:
        say(f"hermes {__version__}")
        raise typer.Exit


@app.callback()
def root(
    ctx: typer.Context,
    profile: Annotated[str | None, typer.Option("-p", "--profile", help="Use the home of this profile.")] = None,
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and end.")
    ] = False,
) -> None:
    """An agent host with durable long-term memory."""
    ctx.obj = Invocation(profile)


def _print_usage_error(error: typer.TyperException) -> None:
    message = error.format_message()
    if message.startswith("Usage:"):  # a group without a command: its help
        note(message)
        return
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "hermes"
    note(f"hermes: {message.rstrip('.')}. `{path} --help` shows what there is")


def run(arguments: list[str]) -> int:
    """Run one command line. No traceback reaches a person, unless HERMES_DEBUG asks for it."""
    try:
        result = app(arguments, prog_name="hermes", standalone_mode=False)
        sys.stdout.flush()
        return result if isinstance(result, int) else 0
    except HermesError as error:
        print_error(error)
        return error.exit_code
    except typer.TyperException as error:
        _print_usage_error(error)
        return error.exit_code
    except (KeyboardInterrupt, typer.Abort):
        note("hermes: interrupted")
        return INTERRUPTED
    except BrokenPipeError:
        # The reader of our output went away; keep Python from complaining about it once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception as error:  # noqa: BLE001 - the last boundary before a person
        if os.environ.get("HERMES_DEBUG"):
            traceback.print_exc()
        note(f"hermes: this is a defect: {type(error).__name__}: {error}. HERMES_DEBUG=1 shows where")
        return UNEXPECTED
