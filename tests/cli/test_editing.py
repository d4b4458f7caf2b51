"""`/edit` and Ctrl-X Ctrl-E: edit a message in the user's editor, at a real terminal."""

from __future__ import annotations

from pathlib import Path

import pytest

from hermes.cli.input_line import find_editor
from hermes.errors import UsageError
from hermes.slash import acts
from tests.cli.chatting import chat as run_chat
from tests.cli.screen import ENTER, Chat, plain_env, stored

pytestmark = pytest.mark.processes

CTRL_X_CTRL_E = "\x18\x05"


def editor(folder: Path, script: str) -> dict[str, str]:
    """Write an editor script that runs `does` on its file, `$1`."""
    program = folder / "my editor"
    program.write_text(f'#!/bin/sh\ncp "$1" "{folder}/given"\n{script}\n', encoding="utf-8")
    program.chmod(0o700)
    return {"EDITOR": f"'{program}'", "PATH": "/usr/bin:/bin"}


def said(home: Path) -> list[str]:
    return [content for role, content in stored(home) if role == "user"]


@pytest.mark.contract("10.35")
def test_the_last_message_is_edited_and_said(chat: Chat, tmp_path: Path, home: Path) -> None:
    env = editor(tmp_path, 'printf "better words\\nin two lines\\n" > "$1"')
    with chat(env=env) as screen:
        screen.wait_for_prompt().type("some words" + ENTER)
        screen.wait(lambda _: len(stored(home)) == 2).wait_for_prompt().type("/edit" + ENTER)
        screen.wait_for("› better words").wait(lambda _: len(stored(home)) == 4).wait_for_prompt()
    assert (tmp_path / "given").read_text(encoding="utf-8") == "some words"
    assert said(home) == ["some words", "better words\nin two lines"]


@pytest.mark.contract("10.35")
@pytest.mark.parametrize(
    ("script", "told"),
    [
        ('printf " \\n" > "$1"', acts.EMPTY),
        ("exit 1", acts.GIVEN_UP),
        ("true", acts.UNCHANGED.partition(" `")[0]),
    ],
)
def test_an_empty_text_an_editor_that_gives_up_and_an_unchanged_text_say_nothing(
    chat: Chat, tmp_path: Path, home: Path, script: str, told: str
) -> None:
    with chat(env=editor(tmp_path, script)) as screen:
        screen.wait_for_prompt().type("some words" + ENTER)
        screen.wait(lambda _: len(stored(home)) == 2).wait_for_prompt().type("/edit" + ENTER)
        screen.wait_for(told).wait_for_prompt()
    assert said(home) == ["some words"]


@pytest.mark.contract("10.35")
def test_what_is_being_typed_goes_to_the_editor_and_comes_back_to_the_prompt(
    chat: Chat, tmp_path: Path, home: Path
) -> None:
    with chat(env=editor(tmp_path, 'printf "%s and more" "$(cat "$1")" > "$1"')) as screen:
        screen.wait_for_prompt().type("half a line" + CTRL_X_CTRL_E)
        screen.wait(lambda screen: screen.prompt == "› half a line and more")
        screen.type("!" + ENTER)
        screen.wait(lambda _: len(stored(home)) == 2)
    assert said(home) == ["half a line and more!"]


def test_an_editor_that_is_not_there_is_said_and_the_prompt_stays(chat: Chat, home: Path) -> None:
    with chat(env={"EDITOR": "/nowhere/ed"}) as screen:
        screen.wait_for_prompt().type("/edit hello" + ENTER)
        screen.wait_for("cannot start /nowhere/ed").wait_for_prompt().type("typed" + CTRL_X_CTRL_E)
        screen.wait(lambda screen: screen.prompt == "› typed" and str(screen.rows).count("cannot start") == 2)


def test_without_a_terminal_there_is_nothing_to_edit_or_choose_at(home: Path) -> None:
    ran = run_chat(plain_env(home), said="/edit\n/resume\n")
    assert ran.code == 1
    assert "/edit needs a terminal" in ran.err
    assert "which session? `/sessions` lists them" in ran.err


@pytest.mark.contract("10.35")
def test_a_plain_terminal_edits_too_and_lists_instead_of_choosing(chat: Chat, tmp_path: Path, home: Path) -> None:
    with chat(env={**editor(tmp_path, 'printf "edited" > "$1"'), "TERM": "dumb"}) as screen:
        screen.wait_for("›").type("/edit" + ENTER)
        screen.wait(lambda _: len(stored(home)) == 2).type("/resume" + ENTER)
        screen.wait_for("which session? `/sessions` lists them")
    assert said(home) == ["edited"]


def test_an_editor_whose_command_has_half_a_quote_is_named() -> None:
    with pytest.raises(UsageError, match="EDITOR is not a valid command: No closing quotation"):
        find_editor({"EDITOR": "vi '"})
