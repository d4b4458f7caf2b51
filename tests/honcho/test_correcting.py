"""A person lists, corrects and deletes facts that Honcho holds; wrong ones do not come back."""

from __future__ import annotations

import itertools
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace

from hermes.db.queue_items import find
from hermes.memory.book import MemoryBook, Remembering
from hermes.memory.deliveries import Deliveries
from hermes.memory.mirror import Mirrored, NoteChange
from hermes.memory.notes import Notes, NotesFile
from hermes.memory.provider import Notebook
from hermes.memory.values import Wording
from hermes.scope import OWNER as SCOPE
from hermes.scope import Guest, Scope
from hermes.store.corrections import corrections_of
from tests.conftest import Ran
from tests.honcho.between import Asked, Instead
from tests.honcho.recalling import ANN, BOB, BOT, DIRECT, GUEST, HERE, Recalling, Talk
from tests.honcho.writing import NOTES, PAUSE_SECONDS, Arrived, Lane, Writer
from tests.memory_server.talking import settle

Hermes = Callable[..., Ran]
LIMITS: dict[NotesFile, int] = {"memory": 2200, "user": 1400}
REX, MAX = "My dog is called Rex.", "My dog is called Max."


@pytest.fixture
def home(commanded: Path) -> Path:
    return commanded


@pytest.fixture(autouse=True)
def _delivered_however_long_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait longer for deliveries than a person would, since a test machine may be busy."""
    monkeypatch.setattr("hermes.memory.book.DELIVERY_WAIT_SECONDS", 60.0)
    monkeypatch.setattr("hermes.cli.memory_book.DELIVERY_TIMEOUT_SECONDS", 60.0)


@asynccontextmanager
async def book_of(
    recalling: Recalling, scope: Scope = SCOPE, whose: Notebook = NOTES
) -> AsyncIterator[tuple[MemoryBook, Talk]]:
    """A person's facts on a real server, with deliveries."""
    async with recalling.host() as talk:
        deliveries = Deliveries(talk.provider, "test", 4)
        deliveries.start()
        notes = Notes(recalling.machine.home, scope, LIMITS)
        try:
            yield MemoryBook(talk.provider.store, notes, talk.provider, whose), talk
            await deliveries.finish(60.0)
            undone = "SELECT reason FROM hermes_queue WHERE state != 'done'"
            assert await talk.provider.store.read(lambda tx: tx.execute(undone).fetchall()) == [], "all is delivered"
        finally:
            await deliveries.finish(0.0)


async def listed(book: MemoryBook, *words: str) -> list[str]:
    found, after = list[str](), ""
    while True:
        page = await book.page(Wording(words) if words else None, after)
        assert page.remarks == ()
        found += [one.text for one in page.entries]
        if page.after is None:
            return found
        after = page.after


async def only(book: MemoryBook, *words: str) -> Remembering:
    [entry] = (await book.page(Wording(words))).entries
    return entry


def held(recalling: Recalling) -> str:
    """Return all conclusions and cards of the workspace."""
    with recalling.at_server() as http:
        settle(http)
        cards = [http.get(f"/peers/{BOT}/card?target={ANN}"), http.get(f"/peers/{ANN}/card")]
        return http.post("/conclusions/list?size=100", json={}).text + "".join(one.text for one in cards)


@pytest.mark.contract("10.42")
async def test_facts_are_listed_once_with_where_they_come_from(recalling: Recalling) -> None:
    recalling.configure()
    recalling.tell("app", (ANN, REX), (BOT, "A fine name."), observers=(BOT, ANN))
    recalling.conclude(BOT, ANN, "Prefers tea.")
    recalling.conclude(BOT, BOB, "Has a cat.")
    recalling.set_card(BOT, ["Speaks Danish"], ANN)
    async with book_of(recalling) as (book, _):
        assert sorted(await listed(book)) == sorted(["Speaks Danish", "Prefers tea.", REX])
        fact = await only(book, "rex")
        assert (fact.target, fact.origin) == (None, "stated in Honcho session app")
        assert [source.text for source in await book.sources(fact)] == [REX]
        assert await book.find(fact.id) == fact


@pytest.mark.contract("10.42")
async def test_a_guest_is_shown_facts_about_the_guest_alone(recalling: Recalling) -> None:
    recalling.configure()
    recalling.conclude(BOT, ANN, "Prefers tea.")
    recalling.conclude(BOT, BOB, "Has a cat.")
    async with book_of(recalling, Guest("telegram", "17"), Notebook(GUEST, "telegram")) as (book, _):
        assert await listed(book) == ["Has a cat."]
    group = Notebook(None, "telegram", "agent:main:telegram:group:-100")
    async with book_of(recalling, Guest("telegram", "g"), group) as (book, _):
        assert await listed(book) == []


@pytest.mark.contract("10.42")
async def test_a_long_list_is_paged_and_searched_to_its_end(recalling: Recalling) -> None:
    recalling.configure()
    with recalling.at_server() as http:
        for peer in (BOT, ANN):
            http.post("/peers", json={"id": peer})
        for start in range(0, 250, 50):
            made = [
                {"content": f"Fact {number} of many.", "observer_id": BOT if number % 5 else ANN, "observed_id": ANN}
                for number in range(start, start + 50)
            ]
            assert http.post("/conclusions", json={"conclusions": made}).is_success
    async with book_of(recalling) as (book, _):
        everything = await listed(book)
        assert len(everything) == len(set(everything)) == 250
        assert await listed(book, "fact", "7") == ["Fact 7 of many."]
        assert await listed(book, "5") == ["Fact 5 of many."]


@pytest.mark.contract("10.43")
async def test_a_corrected_fact_says_what_holds_in_every_view_and_what_it_said_before(recalling: Recalling) -> None:
    recalling.configure()
    recalling.tell("app", (ANN, REX), (ANN, "I like figs."), observers=(BOT, ANN))
    recalling.set_card(BOT, [REX, "Likes figs"], ANN)
    async with book_of(recalling) as (book, talk):
        assert await book.correct(await only(book, "rex"), MAX) == "done"
        assert sorted(await listed(book)) == sorted([MAX, "I like figs.", "Likes figs"])
        fact = await only(book, "max")
        [(wrong, _)] = await book.corrected_from(fact)
        assert wrong == REX
        assert "Rex" not in held(recalling)
        recalled = await talk.turn("What is my dog called?", HERE)
    assert "Max" in recalled


@pytest.mark.contract("10.43")
async def test_a_corrected_fact_is_not_read_from_the_same_message_again(recalling: Recalling) -> None:
    recalling.configure()
    recalling.tell("app", (ANN, REX), observers=(BOT, ANN))
    async with book_of(recalling) as (book, _):
        await book.correct(await only(book, "rex"), MAX)
    with recalling.at_server() as http:
        assert http.post("/schedule_dream", json={"observer": BOT, "observed": ANN, "dream_type": "omni"}).is_success
        settle(http)
    assert "Rex" not in held(recalling)


@pytest.mark.contract("10.43")
@pytest.mark.parametrize("is_ours", [True, False], ids=["our server", "another server"])
@pytest.mark.parametrize("breaks", range(1, 5))
async def test_a_correction_that_breaks_off_is_finished_later_and_never_loses_both(
    recalling: Recalling, writer: Writer, arrived: Arrived, is_ours: bool, breaks: int
) -> None:
    recalling.conclude(BOT, ANN, REX)
    recalling.conclude(ANN, ANN, f"{ANN}: {REX}")
    changes = itertools.count(1)

    def rule(asked: Asked) -> Instead | None:
        if asked.what == "health" and not is_ours:
            return Instead({"status": "ok"})
        is_change = asked.method in ("PUT", "DELETE") or asked.what == "conclusions"
        return Instead({"detail": "busy"}, 503) if is_change and next(changes) == breaks else None

    recalling.between.rule = rule
    lane = Lane(writer(recalling.between.url, workspace=recalling.workspace), NOTES)
    lane.put(MAX, "correct", data={"id": "any", "old": REX})
    while not lane.outcomes:
        await lane.attempt()
        said = [one["content"].removeprefix(f"{ANN}: ") for one in arrived.conclusions()]
        assert said, "neither the old nor the new one is there"
        assert set(said) <= {REX, MAX}
        if lane.put_off:
            lane.clock.advance(PAUSE_SECONDS)  # type: ignore[attr-defined]
    assert set(said) == {MAX}
    assert len(said) == (2 if is_ours else 1)
    assert bool(lane.put_off) == (breaks <= (2 if is_ours else 3))


@pytest.mark.contract("10.43")
async def test_a_correction_outlasts_the_process_that_made_it_and_a_server_that_is_away(
    recalling: Recalling, monkeypatch: pytest.MonkeyPatch
) -> None:
    recalling.configure()
    recalling.tell("app", (ANN, REX), observers=(BOT, ANN))
    monkeypatch.setattr("hermes.memory.book.DELIVERY_WAIT_SECONDS", 0.5)
    async with recalling.host() as talk:  # it delivers nothing, and ends
        book = MemoryBook(talk.provider.store, Notes(recalling.machine.home, SCOPE, LIMITS), talk.provider, NOTES)
        assert await book.correct(await only(book, "rex"), MAX) == "queued"
    assert "Rex" in held(recalling)
    async with book_of(recalling) as (book, talk):
        await talk.provider.flush(f"{recalling.workspace}/notes/{ANN}", 60.0)
        assert await listed(book) == [MAX]


@pytest.mark.contract("10.43")
async def test_what_was_corrected_is_written_where_the_old_one_is_gone_already(
    recalling: Recalling, writer: Writer, arrived: Arrived
) -> None:
    lane = Lane(writer(recalling.between.url, workspace=recalling.workspace), NOTES)
    lane.put(MAX, "correct", data={"id": "any", "old": REX})
    lane.put(MAX, "correct", data={"id": "any", "old": REX})
    await lane.drain()
    assert [one["content"] for one in arrived.conclusions()] == [MAX]


@pytest.mark.contract("10.40")
async def test_a_note_that_is_corrected_or_forgotten_takes_its_conclusion_along(recalling: Recalling) -> None:
    recalling.configure()
    async with book_of(recalling) as (book, talk):
        book.notes.add("user", "Has a dog called Rex")
        talk.provider.mirror_soon(Mirrored(book.notes, NOTES), NoteChange("user", "add", "", "Has a dog called Rex"))
        for text in ("Has a dog called Max", ""):
            await talk.provider.background.settle()
            [entry] = (await book.page()).entries
            await (book.correct(entry, text) if text else book.forget(entry))
            await talk.provider.background.settle()
            await talk.provider.flush(f"{recalling.workspace}/notes/{ANN}", 60.0)
            with recalling.at_server() as http:
                found = http.post("/conclusions/list", json={}).json()["items"]
            assert [one["content"] for one in found] == ([text] if text else [])


@pytest.mark.contract("10.43")
async def test_a_forgotten_fact_takes_the_messages_along_that_it_was_read_from(recalling: Recalling) -> None:
    recalling.configure()
    recalling.tell("app", (ANN, "I like figs."), observers=(BOT, ANN))
    async with book_of(recalling) as (book, talk):
        await talk.turn(REX, HERE)
        await (await talk.memory(HERE)).flush(60.0)
        held(recalling)
        fact = await only(book, "rex")
        sources = await book.sources(fact)
        assert [(source.text, source.session_id) for source in sources] == [(REX, "s1")]
        assert (await book.forget(fact, sources)).settled == "done"
        assert await listed(book) == ["I like figs."]
        store = talk.provider.store
        [said] = await store.read(lambda tx: list(store.messages.history(tx, "s1")))
        assert await store.read(lambda tx: store.incognito.remembered(tx, [said])) == []
        [mark] = await store.read(lambda tx: corrections_of(tx, SCOPE))
        assert (mark.wrong, mark.right) == ("", "")
        queued = await store.read(lambda tx: tx.execute("SELECT payload FROM hermes_queue").fetchall())
        assert not any("Rex" in row["payload"] for row in queued), "nor are its words in what was delivered"
    with recalling.at_server() as http:
        assert "Rex" not in http.post("/search", json={"query": "dog Rex", "limit": 10}).text
    assert "Rex" not in held(recalling)


@pytest.mark.contract("10.43")
async def test_a_forgotten_fact_that_was_said_in_two_places_leaves_both(recalling: Recalling) -> None:
    recalling.configure()
    there = replace(HERE, session_id="s9", directory=Path("/code/other"))
    async with book_of(recalling) as (book, talk):
        for place in (HERE, there):
            await talk.turn(REX, place)
            await (await talk.memory(place)).flush(60.0)
        held(recalling)
        fact = await only(book, "rex")
        sources = await book.sources(fact)
        assert sorted((source.text, source.session_id) for source in sources) == [(REX, "s1"), (REX, "s9")]
        assert (await book.forget(fact, sources)).settled == "done"
        store = talk.provider.store
        for session in ("s1", "s9"):
            said = await store.read(lambda tx, session=session: list(store.messages.history(tx, session)))  # type: ignore[misc]
            known = await store.read(lambda tx, said=said: store.incognito.remembered(tx, said))  # type: ignore[misc]
            assert (len(said), known) == (1, [])
    assert "Rex" not in held(recalling)


@pytest.mark.contract("10.43")
@pytest.mark.parametrize("state", ["waiting", "dead", "done"])
async def test_a_forgotten_fact_is_not_read_from_what_the_server_has_not_read_yet(
    recalling: Recalling, state: str
) -> None:
    recalling.configure()
    there = replace(HERE, session_id="s9", directory=Path("/code/other"))
    async with book_of(recalling) as (book, talk):
        await talk.turn(REX, HERE)
        await talk.turn(REX, DIRECT, GUEST)
        for place in (HERE, DIRECT):
            await (await talk.memory(place)).flush(60.0)
        held(recalling)
        fact = await only(book, "rex")
        sources = await book.sources(fact)
        said = await talk.say(f"As I said: {REX}", there)
        store = talk.provider.store
        if state == "done":
            await (await talk.memory(there)).turn_over()
            await (await talk.memory(there)).flush(60.0)
        elif state == "dead":  # put aside, from where `hermes memory outbox retry` brings it back
            aside = "UPDATE hermes_queue SET state = 'dead', finished_at = 1 WHERE key = ?"
            await store.write(lambda tx: tx.execute(aside, (f"said:{said.id}",)).rowcount)
        assert [one.text for one in await book.late(fact, sources)] == [said.content]
        assert (await book.forget(fact, sources)).settled == "done"
        left = await store.read(lambda tx: find(tx, "memory:honcho", f"said:{said.id}"))
        assert left is None or left.payload is None or left.state == "done", "nothing of it can be told"
        assert await store.read(lambda tx: store.incognito.remembered(tx, [said])) == []
        [guests] = await store.read(lambda tx: list(store.messages.history(tx, DIRECT.session_id)))
        assert await store.read(lambda tx: store.incognito.remembered(tx, [guests])) == [guests]
    assert f"{ANN}: {REX}" not in held(recalling)
    assert f"{BOB}: {REX}" in held(recalling), "what a guest said is the guest's"
    with recalling.at_server() as http:
        assert "As I said" not in http.post("/search", json={"query": "dog Rex", "limit": 10}).text


@pytest.mark.contract("10.40")
def test_scripts_list_edit_and_forget_by_id(recalling: Recalling, home: Path, hermes: Hermes) -> None:
    recalling.configure()
    recalling.tell("app", (ANN, REX), observers=(BOT, ANN))
    user = home / "memories" / "USER.md"
    user.parent.mkdir(parents=True)
    user.write_text("Lives in Oslo\n", encoding="utf-8")
    found = json.loads(hermes("memory", "list", "--json").out)["entries"]
    assert [(one["text"], one["target"]) for one in found] == [("Lives in Oslo", "user"), (REX, None)]
    note, fact = (one["id"] for one in found)
    assert hermes("memory", "edit", note, "Lives in Bergen").code == 0
    assert user.read_text(encoding="utf-8") == "Lives in Bergen\n"
    assert json.loads(hermes("memory", "edit", fact, *MAX.split(), "--json").out)["outcome"] == "done"
    shown = hermes("memory", "list")
    assert "Rex" not in shown.out
    assert MAX in shown.out
    assert "it said: My dog is called Rex." in hermes("memory", "why", fact).out
    asked = hermes("memory", "forget", "--id", fact)
    assert (asked.code, "Nothing was deleted" in asked.err) == (1, True)
    assert hermes("memory", "forget", "--id", fact, "--yes").code == 0
    left = json.loads(hermes("memory", "list", "--json").out)["entries"]
    assert [one["text"] for one in left] == ["Lives in Bergen"]
    gone = hermes("memory", "edit", fact, "x")
    assert (gone.code, "nothing in memory has the id" in gone.err) == (1, True)
