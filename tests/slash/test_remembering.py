"""`/memory` at a terminal and in chats: what is noted is seen, corrected and forgotten by its number."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from hermes.cli.commands import run_command
from hermes.cli.conversation import TerminalConversation
from hermes.db.engine import Tx
from hermes.errors import HermesError, UsageError
from hermes.events import MemoryUpdated
from hermes.gateway.platform import ChatType
from hermes.scope import OWNER, Guest
from hermes.slash.remembering import GROUPS
from hermes.store.injections import InjectedPart, Injection, keep_injection
from hermes.store.reviews import keep_remarks
from tests.cli.filling import fill
from tests.conftest import Ran
from tests.gateway.core import Core, message, running_core
from tests.gateway.processes import rows
from tests.slash.surfaces import ask, at_terminal, say

pytestmark = pytest.mark.contract("10.40")


def write_note(home: Path, name: str, text: str) -> Path:
    path = home / "memories" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


async def refusal(conversation: TerminalConversation, line: str) -> str:
    with pytest.raises(HermesError) as caught:
        await ask(conversation, line)
    return caught.value.line()


async def test_notes_are_listed_with_numbers_and_their_files_before_anything_is_said(tmp_path: Path) -> None:
    user = write_note(tmp_path, "USER.md", "Has a dog called Rex\n§\nLives in Oslo\n")
    work = write_note(tmp_path, "MEMORY.md", "# Work\n\n- The build needs Java 21\n")
    async with at_terminal(tmp_path) as conversation:
        listed = await ask(conversation, "/memory")
    assert [line for line in listed.splitlines() if line[:1].isdigit()] == [
        "1. Has a dog called Rex",
        "2. Lives in Oslo",
        "3. The build needs Java 21",
    ]
    assert f"Notes in {user}:\n1. " in listed
    assert f"Notes in {work}:\n3. " in listed, "one heading for each file, a line for each note"
    assert listed.count(str(user)) == 1


async def test_a_note_is_corrected_by_its_number_and_the_others_stay(tmp_path: Path) -> None:
    user = write_note(tmp_path, "USER.md", "Has a dog called Rex\n§\nLives in Oslo\n")
    async with at_terminal(tmp_path) as conversation:
        await ask(conversation, "/memory")
        told = await ask(conversation, "/memory edit 1 Has a dog called Max")
        assert told == "Corrected. It said: Has a dog called Rex"
        assert read(user) == "Has a dog called Max\n§\nLives in Oslo\n"
        await ask(conversation, "/memory")
        why = await ask(conversation, "/memory why 1")
    assert "You corrected it on" in why
    assert "it said: Has a dog called Rex" in why


KNOWING = """
from hermes.memory.provider import Address, Delivered, MemoryPlugin, MemorySession, Recalled
from hermes.memory.provider import Fact, Facts, FactSource

class Empty(MemorySession):
    async def recall(self, question):
        return Recalled()

class Knowing(MemoryPlugin):
    name = "knowing"

    def is_available(self):
        return True

    def address(self, place):
        return Address("all")

    def open(self, conversation, address):
        return Empty()

    async def deliver(self, entries, until):
        return [Delivered()] * len(entries)

    async def facts(self, whose, query):
        return Facts((Fact("1", "Has a dog"),))

    async def fact_sources(self, whose, fact):
        return [FactSource("My dog barks", session_id="s1"), FactSource("He does", session_id="elsewhere")]

create_plugin = Knowing
"""
"""A provider that names the source messages of its facts."""


def install_knowing(home: Path) -> None:
    folder = home / "plugins" / "knowing"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text(KNOWING, encoding="utf-8")


async def test_source_of_a_fact_names_the_title_of_its_session(tmp_path: Path) -> None:
    install_knowing(tmp_path)
    async with at_terminal(tmp_path, memory__provider="knowing") as conversation:
        await conversation.store.create_session("cli", session_id="s1", title="Dogs and cats")
        await ask(conversation, "/memory")
        told = [await ask(conversation, line) for line in ("/memory why 1", "/memory forget 1")]
    for lines in told:
        assert "   My dog barks (session s1 “Dogs and cats”)" in lines.splitlines()
        assert "   He does (session elsewhere)" in lines.splitlines()


def test_source_names_the_title_in_scripts_too(
    home: Path, hermes: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HERMES_MEMORY_PROVIDER", "knowing")
    install_knowing(home)
    fill(home, session_id="s1", title="Dogs and cats")
    told = hermes("memory", "why", "1").out.splitlines()
    assert told[2:] == [
        "learnt from session s1 “Dogs and cats”: My dog barks",
        "learnt from session elsewhere: He does",
    ]


async def test_guest_sees_no_titles_since_the_owner_may_have_given_them(tmp_path: Path) -> None:
    install_knowing(tmp_path)
    async with running_core(tmp_path, memory__provider="knowing") as core:
        await core.store.create_session("cli", session_id="s1", title="Dogs and cats")
        await in_chat(core, "/memory")
        why = await in_chat(core, "/memory why 1")
    assert "My dog barks (session s1)" in why


async def test_a_number_means_what_was_shown_whatever_the_file_says_by_now(tmp_path: Path) -> None:
    user = write_note(tmp_path, "USER.md", "Has a dog\n§\nLives in Oslo\n")
    async with at_terminal(tmp_path) as conversation:
        await ask(conversation, "/memory")
        user.write_text("Speaks Danish\n§\nHas a dog\n§\nLives in Oslo\n", encoding="utf-8")
        await ask(conversation, "/memory forget 1 --yes")
        assert read(user) == "Speaks Danish\n§\nLives in Oslo\n"
        assert "changed since it was listed" in await refusal(conversation, "/memory forget 1 --yes")
        user.write_text("Speaks Danish\n", encoding="utf-8")
        assert "no longer exists" in await refusal(conversation, "/memory edit 2 Lives in Bergen")
    assert read(user) == "Speaks Danish\n"
    assert rows(tmp_path, "SELECT * FROM hermes_corrections WHERE wrong <> ''") == [], "what was refused holds nowhere"


async def test_nothing_is_forgotten_before_a_yes(tmp_path: Path) -> None:
    user = write_note(tmp_path, "USER.md", "Has a dog\n")
    async with at_terminal(tmp_path) as conversation:
        await ask(conversation, "/memory")
        asked = await ask(conversation, "/memory forget 1")
        assert asked.startswith("This would be forgotten: Has a dog")
        assert "/memory forget 1 --yes" in asked
        assert read(user) == "Has a dog\n"
        assert await ask(conversation, "/memory forget 1 --yes") == "Forgotten."
    assert read(user).strip() == ""
    assert "dog" not in "".join(map(read, user.parent.glob("*.before"))), "nor beside the note"
    assert not any("dog" in str(row) for row in rows(tmp_path, "SELECT * FROM hermes_corrections")), "no words are kept"


async def test_a_long_list_comes_in_pages_whose_numbers_go_on(tmp_path: Path) -> None:
    facts = [f"Fact number {number}" for number in range(1, 31)]
    write_note(tmp_path, "USER.md", "\n§\n".join(facts))
    async with at_terminal(tmp_path) as conversation:
        first = await ask(conversation, "/memory")
        assert "20. Fact number 20" in first
        assert "Fact number 21" not in first
        assert "/memory more" in first
        more = await ask(conversation, "/memory more")
        assert more.splitlines()[1] == "21. Fact number 21"
        assert "30. Fact number 30" in more
        assert "no more" in await refusal(conversation, "/memory more")
        await ask(conversation, "/memory forget 30 --yes")
        found = await ask(conversation, "/memory search NUMBER 7")
        assert [line for line in found.splitlines() if line[:1].isdigit()] == ["1. Fact number 7"]
        await ask(conversation, "/memory edit 1 Fact seven")
    left = read(tmp_path / "memories" / "USER.md").split("\n§\n")
    assert left == [*facts[:6], "Fact seven", *facts[7:29]]


@pytest.mark.parametrize(
    "line", ["edit", "edit 0 x", "edit 2 x", "edit x y", "forget 9999999999999 --yes", "why -1", "why 0000019"]
)
async def test_what_names_no_entry_is_refused_and_changes_nothing(tmp_path: Path, line: str) -> None:
    user = write_note(tmp_path, "USER.md", "Has a dog\n")
    async with at_terminal(tmp_path) as conversation:
        assert "nothing is listed" in await refusal(conversation, f"/memory {line}")
        await ask(conversation, "/memory")
        assert "1 to 1 are listed" in await refusal(conversation, f"/memory {line}")
        with pytest.raises(HermesError):
            await ask(conversation, f"/memory edit 1 {'x' * 1500}")
        with pytest.raises(HermesError):
            await ask(conversation, f"/memory edit 1 {'x' * 2001}")
        assert rows(tmp_path, "SELECT * FROM hermes_corrections") == []
    assert read(user) == "Has a dog\n"


async def test_numbers_that_were_shown_before_the_first_message_hold_after_it(tmp_path: Path) -> None:
    user = write_note(tmp_path, "USER.md", "Has a dog called Rex\n")
    async with at_terminal(tmp_path) as conversation:
        await ask(conversation, "/memory")
        await say(conversation, "hello")
        await ask(conversation, "/memory edit 1 Has a dog called Max")
    assert read(user) == "Has a dog called Max\n"


async def in_chat(core: Core, text: str, kind: ChatType = "dm") -> str:
    """Send a message and return the chat's reply."""
    before = len(core.platform.sent)
    await core.platform.deliver(message(text, kind=kind))
    await core.platform.until(lambda: len(core.platform.sent) > before)
    return core.platform.texts("7")[-1]


async def test_a_guest_sees_and_corrects_what_is_the_guests_own_and_no_path(tmp_path: Path) -> None:
    folder = Path("people") / Guest("fake", "ann").name
    async with running_core(tmp_path) as core:
        await in_chat(core, "hi")
        user = write_note(tmp_path, str(folder / "USER.md"), "Has a dog called Rex\n")
        listed = await in_chat(core, "/memory")
        assert "Notes in USER.md:\n1. Has a dog called Rex" in listed
        told = await in_chat(core, "/memory edit 1 Has a dog called Max")
        assert str(tmp_path) not in listed + told
    assert read(user) == "Has a dog called Max\n"
    assert rows(tmp_path, "SELECT scope FROM hermes_corrections") == [(Guest("fake", "ann").name,)]


async def test_what_a_guest_forgets_takes_nothing_from_what_others_have(tmp_path: Path) -> None:
    told = (InjectedPart("user", "likes eels", 1.0, 1, 0),)
    async with running_core(tmp_path) as core:
        await in_chat(core, "hi")
        [(session,)] = rows(tmp_path, "SELECT id FROM sessions")
        write_note(tmp_path, f"people/{Guest('fake', 'ann').name}/USER.md", "e\n")

        def keep(tx: Tx) -> None:
            for one in (str(session), "of-the-owner"):
                keep_injection(tx, Injection(one, 1, 1, "honcho", 1.0, 0.1, told, {}))
            for scope in (OWNER, Guest("fake", "ann")):
                keep_remarks(tx, scope, [MemoryUpdated("user", "add", "likes eels")])

        await core.store.write(keep)
        await in_chat(core, "/memory")
        assert "Forgotten." in await in_chat(core, "/memory forget 1 --yes")
    assert rows(tmp_path, "SELECT session_id FROM hermes_injections") == [("of-the-owner",)]
    assert rows(tmp_path, "SELECT scope FROM hermes_note_remarks") == [("owner",)]


async def test_refused_change_is_reported_in_the_chat_without_delay(tmp_path: Path) -> None:
    folder = Path("people") / Guest("fake", "ann").name
    async with running_core(tmp_path) as core:
        await in_chat(core, "hi")
        user = write_note(tmp_path, str(folder / "USER.md"), "Has a dog\n")
        await in_chat(core, "/memory")
        assert "an entry has 1 to 2000 characters" in await in_chat(core, f"/memory edit 1 {'x' * 2001}")
        user.write_text("Speaks Danish\n", encoding="utf-8")
        assert "no longer exists" in await in_chat(core, "/memory edit 1 Has a cat")
        assert await in_chat(core, "hello") == "echo: hello"
    assert rows(tmp_path, "SELECT count(*) FROM hermes_queue WHERE queue = 'inbox' AND attempts > 1") == [(0,)]


async def test_a_groups_notes_are_nobodys_to_correct(tmp_path: Path) -> None:
    async with running_core(tmp_path) as core:
        await in_chat(core, "hi", "group")
        assert GROUPS in await in_chat(core, "/memory forget 1 --yes", "group")


async def test_unknown_memory_argument_lists_the_valid_ones(tmp_path: Path) -> None:
    async with at_terminal(tmp_path) as conversation:
        with pytest.raises(
            UsageError, match="/memory takes more, search, edit, forget, why, undo, on or off, not 'onn'"
        ):
            await ask(conversation, "/memory onn")


@pytest.mark.parametrize("command", ["/memory forget", "/forget"])
async def test_an_entry_is_forgotten_by_a_word_that_it_alone_holds(tmp_path: Path, command: str) -> None:
    user = write_note(tmp_path, "USER.md", "Has a dog\n§\nHas a cat\n")
    async with at_terminal(tmp_path) as conversation:
        both = await ask(conversation, f"{command} has")
        assert [line for line in both.splitlines() if line[:1].isdigit()] == ["1. Has a dog", "2. Has a cat"]
        told = await ask(conversation, f"{command} cat")
        assert told.startswith("This would be forgotten: Has a cat")
        assert "`/memory edit 1 TEXT` corrects it instead" in told
        assert "Nothing holds all of this: eel" in await ask(conversation, f"{command} eel")
        await ask(conversation, f"{command} cat")
        assert (await ask(conversation, f"{command} 1 --yes")).startswith("Forgotten.")
    assert read(user) == "Has a dog\n"


async def test_what_a_person_has_remembered_is_a_note_at_once(tmp_path: Path) -> None:
    async with at_terminal(tmp_path) as conversation:
        told = await ask(conversation, "/remember My train leaves at nine.")
        assert told == "Noted: My train leaves at nine. `/forget` takes it out again."
        await ask(conversation, "/memory off")
        assert "incognito" in await refusal(conversation, "/remember My train is late")
    assert read(tmp_path / "memories" / "USER.md").strip() == "My train leaves at nine."


async def test_in_a_group_nobody_notes_by_a_command(tmp_path: Path) -> None:
    async with running_core(tmp_path) as core:
        told = await in_chat(core, "/remember Ann likes tea", kind="group")
    assert told.startswith(GROUPS)


async def test_a_search_shows_notes_and_what_was_said(tmp_path: Path) -> None:
    write_note(tmp_path, "USER.md", "Has a dog called Rex\n")
    session = await asyncio.to_thread(fill, tmp_path, "The dog next door is called Bello.")
    async with at_terminal(tmp_path) as conversation:
        found = await ask(conversation, "/search dog")
    assert "1. Has a dog called Rex" in found
    assert f"{session})" in found.partition("Said in conversations:")[2]


async def test_a_search_leaves_out_what_others_said(tmp_path: Path) -> None:
    await asyncio.to_thread(fill, tmp_path, "The dog next door is called Bello.")
    async with running_core(tmp_path) as core:
        assert "Bello" not in await in_chat(core, "/search dog")


async def test_without_a_text_the_entry_is_put_into_the_prompt_to_be_changed(tmp_path: Path) -> None:
    user = write_note(tmp_path, "USER.md", "Has a dog\n")
    async with at_terminal(tmp_path) as conversation:
        await ask(conversation, "/memory")
        answered = await run_command(conversation, "/memory edit 1", asyncio.Event())
        assert answered.draft == "/memory edit 1 Has a dog"
        assert "says what holds instead of: Has a dog" in answered.text
    assert read(user) == "Has a dog\n"
