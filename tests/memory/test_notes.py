"""The built-in notes: text written by people stays unchanged, and no change is lost or halved."""

from __future__ import annotations

import fcntl
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from hermes.errors import HomeError, NoteError
from hermes.fence import fence
from hermes.memory.notes import NoteLines, Notes, add_entry, find_entries, remove_entry, replace_entry
from hermes.scope import Owner
from tests.db.processes import finish, hear, start
from tests.scale import scale

LIMITS = 400
PARTED = "\n§\n"
"""The separator that an existing Hermes writes between two entries."""
HAND_WRITTEN = """# The project

It began as a letter
and became a house.

- uses Postgres
  since version 3
  - nested: port 5433
* likes figs
1. first rule

## Habits
Walks at seven.
"""


@pytest.fixture
def notes(tmp_path: Path) -> Notes:
    return Notes(tmp_path, Owner(), {"memory": LIMITS, "user": LIMITS})


def put(home: Path, text: str) -> Path:
    """Write a MEMORY.md with exactly this text."""
    path = home / "memories" / "MEMORY.md"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode())
    return path


def test_entries_are_added_replaced_and_removed(notes: Notes, tmp_path: Path) -> None:
    assert notes.read("user") == ""
    notes.add("user", "likes figs")
    change = notes.add("user", "lives in Ghent")
    assert notes.read("user") == "likes figs\n§\nlives in Ghent"
    assert (change.action, change.text, change.used, change.limit) == ("add", "lives in Ghent", 27, LIMITS)
    assert notes.replace("user", "Ghent", "lives in Porto").text == "lives in Porto"
    assert notes.remove("user", "figs").text == "likes figs"
    assert notes.read("user") == "lives in Porto"
    assert notes.read("memory") == ""
    assert (tmp_path / "memories" / "USER.md").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("text", ["likes figs", "- likes figs", " likes \n figs ", f"likes {fence('x')}figs"])
def test_an_entry_that_is_there_already_stays_as_it_is_however_it_is_written(notes: Notes, text: str) -> None:
    assert notes.add("user", "likes figs").is_new
    for change in (notes.add("user", text), notes.replace("user", "", text), notes.replace("user", "figs", text)):
        assert not change.is_new
        assert change.text == "likes figs"
    assert notes.read("user") == "likes figs"


@pytest.mark.parametrize(
    ("there", "new"),
    [
        ("Collects stamps from Malta", "The user collects stamps from Malta."),
        ("User's sister Ada lives in Oslo", "sister Ada lives in Oslo"),
        ("Has a dog: Rufus", "has dogs, Rufus"),
        ("收集马耳他的邮票", "收集马耳他的邮票。"),
    ],
)
def test_entries_that_say_nearly_the_same_become_one(notes: Notes, there: str, new: str) -> None:
    notes.add("user", there)
    assert not notes.add("user", new).is_new
    assert notes.read("user") == there


@pytest.mark.parametrize(
    ("there", "new"),
    [
        ("Likes tea", "Does not like tea"),
        ("Allergic to nuts", "Allergic to milk"),
        ("Works at Acme", "Sister works at Acme"),
        ("Ada is taller than Ben", "Ben is taller than Ada"),
        ("Port 5432", "Port 5433"),
        ("Born in 1980", "Born in May 1980"),
    ],
)
def test_entries_that_differ_in_what_they_say_stay_apart(notes: Notes, there: str, new: str) -> None:
    notes.add("user", there)
    assert notes.add("user", new).is_new
    assert there in notes.read("user")
    assert new in notes.read("user")


def test_replacing_a_missing_entry_adds_one(notes: Notes) -> None:
    notes.add("user", "likes figs")
    for old, new in (("", "likes dates"), ("plums", "likes pears")):
        assert notes.replace("user", old, new).action == "add"
    assert notes.replace("user", "LIKES FIGS", "likes nuts").action == "replace"
    assert notes.read("user").split("\n§\n") == ["likes nuts", "likes dates", "likes pears"]


@pytest.mark.parametrize("text", ["", "  \n ", "-", "- ", "§", "- §", fence("secret recall"), "<memory-context>"])
def test_an_entry_of_nothing_is_refused(notes: Notes, text: str) -> None:
    with pytest.raises(NoteError, match="cannot be empty"):
        notes.add("memory", text)
    notes.add("memory", "kept")
    with pytest.raises(NoteError, match="cannot be empty"):
        notes.replace("memory", "kept", text)
    assert notes.read("memory") == "kept"


def test_an_entry_becomes_one_line_and_recalled_text_stays_out_of_it(notes: Notes) -> None:
    notes.add("memory", f"# not a heading\n\n- not\tan item \u2028 {fence('recalled')} end")
    assert notes.read("memory") == "- # not a heading - not an item end"


def test_text_that_is_in_several_entries_or_in_none_to_remove_changes_nothing(notes: Notes) -> None:
    notes.add("memory", "port 5432 for tests")
    notes.add("memory", "port 5433 for work")
    with pytest.raises(NoteError, match="2 entries contain 'port'"):
        notes.replace("memory", "port", "x")
    for old, said in [("port", "2 entries contain 'port'"), ("5434", "no entry contains '5434'"), ("", "no entry")]:
        with pytest.raises(NoteError, match=said):
            notes.remove("memory", old)
    assert notes.read("memory") == "port 5432 for tests\n§\nport 5433 for work"


def test_an_entry_quoted_whole_is_found_though_another_contains_it(notes: Notes) -> None:
    notes.add("memory", "figs")
    notes.add("memory", "figs and dates")
    notes.remove("memory", "figs")
    assert notes.read("memory") == "figs and dates"


def test_the_limit_refuses_growth_and_never_shrinking(notes: Notes, tmp_path: Path) -> None:
    put(tmp_path, "x" * LIMITS + "\n- small entry\n")
    with pytest.raises(NoteError, match="400 is the limit"):
        notes.add("memory", "one more")
    with pytest.raises(NoteError, match="400 is the limit"):
        notes.replace("memory", "small entry", "an entry that is longer")
    notes.replace("memory", "small entry", "less")
    notes.remove("memory", "less")
    assert notes.read("memory") == "x" * LIMITS
    notes.add("user", "y" * LIMITS)
    with pytest.raises(NoteError, match="400 is the limit"):
        notes.add("user", "z")


@pytest.mark.parametrize(
    "text",
    [
        HAND_WRITTEN,
        HAND_WRITTEN.rstrip("\n"),
        HAND_WRITTEN.replace("\n", "\r\n"),
        f"\n\n{HAND_WRITTEN}\n\n",
        f"\ufeff{HAND_WRITTEN}",
        HAND_WRITTEN.replace("Walks at", "Walks\x0bat\u2028or"),
    ],
)
def test_text_that_a_person_wrote_is_kept_exactly(notes: Notes, tmp_path: Path, text: str) -> None:
    path = put(tmp_path, text)
    end = "\r\n" if "\r\n" in text else "\n"
    notes.add("memory", "a new fact")
    whole = text if text.endswith("\n") else text + end
    assert path.read_bytes().decode() == f"{whole}- a new fact{end}"
    notes.remove("memory", "a new fact")
    assert path.read_bytes().decode() == whole
    notes.replace("memory", "likes figs", "- likes dates")
    assert path.read_bytes().decode() == whole.replace("figs", "dates")
    notes.replace("memory", "5433", "port 6000")
    assert "  - port 6000" in path.read_text(encoding="utf-8")
    notes.replace("memory", "The project", "Another name")
    assert "# Another name" in path.read_text(encoding="utf-8")


def test_a_paragraph_is_one_entry_and_goes_as_a_whole(notes: Notes, tmp_path: Path) -> None:
    path = put(tmp_path, HAND_WRITTEN)
    assert notes.remove("memory", "became a house").text == "It began as a letter and became a house."
    assert notes.replace("memory", "since version 3", "uses SQLite").text == "uses SQLite"
    assert path.read_text(encoding="utf-8") == (
        "# The project\n\n\n- uses SQLite\n  - nested: port 5433\n* likes figs\n1. first rule\n\n"
        "## Habits\nWalks at seven.\n"
    )


LINES = st.sampled_from(
    ["", "  ", "# head", "## two", "- item", "  - nested", "* star", "1. one", "> quote", "plain", "  indented", "§"]
)
FILE = st.tuples(st.lists(LINES, max_size=12), st.sampled_from(["\n", "\r\n"]), st.booleans()).map(
    lambda made: made[1].join(made[0]) + (made[1] if made[2] else "")
)


def wordings(text: str, entries: Sequence[NoteLines] | None = None) -> str:
    """Return the entries of a note as text. Markers may change with the neighbour above, words may not."""
    return " ".join(f"{entry.marker.strip()} {entry.text}".strip() for entry in entries or find_entries(text))


@given(FILE, st.data(), st.sampled_from(["new text", "# loud", "- dashed", "7. seventh"]))
def test_a_change_of_one_entry_leaves_every_other_one_as_it_was(text: str, data: st.DataObject, new: str) -> None:
    entries = find_entries(text)
    added = find_entries(add_entry(text, new))
    assert wordings("", added[:-1]) == wordings(text)
    assert added[-1].text == new
    assume(entries)
    place = data.draw(st.integers(0, len(entries) - 1))
    above, below = wordings("", entries[:place]), wordings("", entries[place + 1 :])
    assert wordings(remove_entry(text, entries[place])) == f"{above} {below}".strip()
    replaced = wordings(replace_entry(text, entries[place], new))
    assert replaced.startswith(above)
    assert replaced.endswith(below)
    assert replaced.removeprefix(above).removesuffix(below).strip().endswith(new)


def as_existing_hermes_reads(text: str) -> list[str] | None:
    """Return the entries as an existing Hermes reads them; None if it would refuse the file as not written by
    itself."""
    entries = [entry.strip() for entry in text.split(PARTED)]
    entries = [entry for entry in entries if entry]
    return entries if text.strip() == PARTED.join(entries) else None


SECTION = st.lists(LINES.filter(lambda line: line != "§"), min_size=1, max_size=4).map("\n".join).map(str.strip)


@pytest.mark.contract("10.9")
@given(st.lists(SECTION.filter(bool), min_size=2, max_size=5), st.data())
def test_what_an_existing_hermes_wrote_stays_what_it_would_have_written(
    sections: list[str], data: st.DataObject
) -> None:
    text = PARTED.join(sections)
    assert as_existing_hermes_reads(text) == sections
    assert as_existing_hermes_reads(add_entry(text, "new")) == [*sections, "new"]
    entry = data.draw(st.sampled_from(find_entries(text)))
    replaced, removed = replace_entry(text, entry, "new"), remove_entry(text, entry)
    for changed in (replaced, removed):
        left = as_existing_hermes_reads(changed)
        assert left is not None
        touched = sum(old not in left for old in sections)
        assert touched <= 1
    assert "new" in replaced


@pytest.mark.contract("10.9")
def test_notes_of_an_existing_hermes_lose_one_entry_and_no_other(notes: Notes, tmp_path: Path) -> None:
    path = put(tmp_path, "Likes tea\n§\nLives in Malta\nby the sea\n§\nAllergic to nuts")
    assert notes.remove("memory", "Malta").text == "Lives in Malta by the sea"
    assert path.read_text(encoding="utf-8") == "Likes tea\n§\nAllergic to nuts"
    notes.replace("memory", "tea", "Likes coffee")
    assert path.read_text(encoding="utf-8") == "Likes coffee\n§\nAllergic to nuts"
    notes.add("memory", "Lives in Ghent")
    assert path.read_text(encoding="utf-8") == "Likes coffee\n§\nAllergic to nuts\n§\nLives in Ghent"


@pytest.mark.contract("10.9")
def test_a_list_below_which_an_existing_hermes_wrote_loses_one_item(notes: Notes, tmp_path: Path) -> None:
    path = put(tmp_path, "- likes figs\n- lives in Ghent\n§\nAllergic to nuts")
    notes.remove("memory", "figs")
    assert path.read_text(encoding="utf-8") == "- lives in Ghent\n§\nAllergic to nuts"
    notes.remove("memory", "Ghent")
    assert path.read_text(encoding="utf-8") == "Allergic to nuts"
    notes.add("memory", "likes dates")
    assert path.read_text(encoding="utf-8") == "Allergic to nuts\n§\nlikes dates"


@pytest.mark.contract("10.9")
def test_the_last_version_of_a_note_is_kept_beside_it(notes: Notes, tmp_path: Path) -> None:
    path = put(tmp_path, HAND_WRITTEN)
    notes.remove("memory", "figs")
    before = path.with_name("MEMORY.md.before")
    assert before.read_text(encoding="utf-8") == HAND_WRITTEN
    assert before.stat().st_mode & 0o777 == 0o600
    with pytest.raises(NoteError):
        notes.add("memory", "x" * LIMITS)
    assert before.read_text(encoding="utf-8") == HAND_WRITTEN, "what was refused changed nothing"


@pytest.mark.contract("10.9")
def test_a_note_that_an_existing_hermes_has_locked_is_waited_for(notes: Notes, tmp_path: Path) -> None:
    path = put(tmp_path, "Likes tea")
    with path.with_name("MEMORY.md.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with ThreadPoolExecutor(1) as pool:
            adding = pool.submit(notes.add, "memory", "Lives in Malta")
            with pytest.raises(TimeoutError):
                adding.result(0.3)  # it waits, for all one can see in that time
            path.write_text("Likes tea\n§\nAllergic to nuts", encoding="utf-8")
            fcntl.flock(lock, fcntl.LOCK_UN)
            adding.result(10)
    assert notes.read("memory") == "Likes tea\n§\nAllergic to nuts\n§\nLives in Malta"


def test_notes_of_an_older_version_stay_where_they_are(notes: Notes, tmp_path: Path) -> None:
    older = tmp_path / "USER.md"
    older.write_text("- from before\n", encoding="utf-8")
    notes.add("user", "from now")
    assert older.read_text(encoding="utf-8") == "- from before\n- from now\n"
    assert not (tmp_path / "memories" / "USER.md").exists()


def test_unreadable_notes_are_reported_and_not_overwritten(notes: Notes, tmp_path: Path) -> None:
    path = put(tmp_path, "")
    path.write_bytes(b"\xff\xfe not text")
    for change in (lambda: notes.read("memory"), lambda: notes.add("memory", "x"), lambda: notes.remove("memory", "x")):
        with pytest.raises(HomeError, match=r"cannot read .*MEMORY\.md"):
            change()
    assert path.read_bytes() == b"\xff\xfe not text"
    (tmp_path / "memories" / "USER.md").mkdir()
    with pytest.raises(HomeError, match=r"cannot read .*USER\.md"):
        notes.add("user", "x")


@pytest.mark.processes
@pytest.mark.stress
def test_eight_processes_add_at_once_and_nothing_is_lost(notes: Notes, tmp_path: Path) -> None:
    each = scale(10, 200)
    writers = [start("tests.memory.writer", tmp_path, f"w{n}", each, 1_000_000) for n in range(8)]
    for writer in writers:
        finish(writer)
    wanted = {f"w{n} fact {k}" for n in range(8) for k in range(each)}
    lines = notes.read("memory").split(PARTED)
    assert set(lines) == wanted
    assert len(lines) == len(wanted)


@pytest.mark.processes
def test_processes_that_race_for_the_last_room_never_pass_the_limit(notes: Notes, tmp_path: Path) -> None:
    writers = [start("tests.memory.writer", tmp_path, f"w{n}", 100, LIMITS) for n in range(4)]
    said: list[str] = []
    for writer in writers:
        assert writer.stdin is not None
        with writer:
            out, errors = writer.communicate()
        assert "NoteError" in errors
        said += out.splitlines()
    assert sorted(said) == sorted(notes.read("memory").split(PARTED))
    assert LIMITS - 14 < len(notes.read("memory")) <= LIMITS


@pytest.mark.processes
@pytest.mark.stress
def test_a_writer_killed_at_any_moment_leaves_whole_and_all_reported_entries(tmp_path: Path) -> None:
    for round_ in range(scale(4, 60)):
        home = tmp_path / str(round_)
        writer = start("tests.memory.writer", home, "w", 100_000, 10_000_000)
        said = [hear(writer) for _ in range(1 + round_ % 7)]
        writer.kill()
        assert writer.stdout is not None
        said += writer.stdout.read().splitlines()
        for stream in (writer.stdin, writer.stdout, writer.stderr):
            assert stream is not None
            stream.close()
        writer.wait()
        lines = Notes(home, Owner(), {"memory": 10_000_000, "user": 1}).read("memory").split(PARTED)
        assert lines == [f"w fact {n}" for n in range(len(lines))]
        assert len(said) <= len(lines) <= len(said) + 1
        Notes(home, Owner(), {"memory": 10_000_000, "user": 1}).add("memory", "the lock is free")
