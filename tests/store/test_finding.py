"""Ranking of search results by rare words, the message before, dates, speaker and session. Rows outside the reach of a
search have no influence."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from datetime import datetime

import pytest

from hermes.db.engine import Tx
from hermes.scope import OWNER, Group, Guest, Scope
from hermes.store.finding import MIN_READ_LIMIT
from hermes.store.hidden import FORGOTTEN, hide_rows
from hermes.store.reach import EVERYWHERE, Narrowed
from hermes.store.store import Store
from hermes.types import Draft

BOTH = ("user", "assistant")


async def talk(store: Store, *said: str | Draft, at: str = "2025-01-01", **session: str) -> str:
    """Store a session in which person and agent write these texts in turn, at noon."""
    key = (await store.create_session("cli")).id
    when = datetime.fromisoformat(at).timestamp() + 3600 * 12
    drafts = [text if isinstance(text, Draft) else Draft(BOTH[turn % 2], text) for turn, text in enumerate(said)]

    def write(tx: Tx) -> None:
        for name, value in session.items():
            tx.execute(f"UPDATE sessions SET {name} = ? WHERE id = ?", (value, key))
        store.messages.append(tx, key, drafts, now=when)

    await store.write(write)
    await store.index()
    return key


async def ask(
    store: Store, text: str, scope: Scope = OWNER, limit: int = 10, narrowed: Narrowed = EVERYWHERE
) -> list[str | None]:
    hits = await store.read(lambda tx: store.search.find(tx, text, scope, limit=limit, narrowed=narrowed))
    return [hit.message.content for hit in hits]


async def recall(store: Store, text: str, scope: Scope = OWNER) -> list[str | None]:
    hits = await store.read(lambda tx: store.search.related(tx, text, scope, limit=10, roles=BOTH))
    return [hit.message.content for hit in hits]


@pytest.mark.contract("1.7")
async def test_an_answer_without_the_words_is_found_by_its_question(store: Store) -> None:
    await talk(store, "Where did you put the spare key of the boathouse?", "Under the blue pot.")
    await talk(store, "The boathouse is old.", "It was built in the fifties, of wood.")
    await talk(store, "I lost the key of my car.", "A spare wheel is in the boot.", "A boathouse by the lake.")
    assert "Under the blue pot." in (await ask(store, "where is the spare boathouse key?"))[:2]
    assert "It was built in the fifties, of wood." not in await ask(store, "boathouse"), "it answers no question"


@pytest.mark.contract("1.7")
async def test_a_rare_word_or_number_comes_first_whatever_else_is_said(store: Store) -> None:
    await talk(store, *[f"the order of the week is number {n} of many orders" for n in range(2000, 2060)])
    await talk(store, "ticket 48213 was closed")
    await talk(store, *[f"the order of the day, week {n}" for n in range(60)])
    assert (await ask(store, "what was the order of the week with number 48213"))[0] == "ticket 48213 was closed"


@pytest.mark.contract("1.7")
async def test_a_date_in_the_question_brings_what_was_said_then(store: Store) -> None:
    await talk(store, "we repaired the roof", at="2025-03-02")
    await talk(store, "we repaired the roof again", at="2025-05-03")
    await talk(store, "nothing happened", at="2025-05-04")
    await talk(store, "we painted the roof", at="2025-08-09")
    assert (await ask(store, "what about the roof on 3 May 2025"))[0] == "we repaired the roof again"
    for only in ("3 May 2025", "2025-05-03", "3 May", "May 3rd"):
        assert (await ask(store, only))[0] == "we repaired the roof again", only
    assert {*await ask(store, "May 2025")} == {"we repaired the roof again", "nothing happened"}
    assert len(await ask(store, "2025")) == 4


@pytest.mark.contract("1.7")
async def test_a_question_that_asks_when_prefers_what_names_a_time(store: Store) -> None:
    await talk(store, "the ferry to Gozo left yesterday")
    await talk(store, "the ferry to Gozo is blue")
    assert (await ask(store, "when did the ferry to Gozo leave?"))[0] == "the ferry to Gozo left yesterday"
    assert (await ask(store, "the ferry to Gozo"))[0] == "the ferry to Gozo is blue", "the newest of equals"


@pytest.mark.contract("1.7")
async def test_i_means_the_person_and_you_the_agent(store: Store) -> None:
    await talk(store, "I like walnut bread", "I like walnut bread too")
    assert (await recall(store, "which bread do I like"))[0] == "I like walnut bread"
    assert (await recall(store, "which bread do you like"))[0] == "I like walnut bread too"


@pytest.mark.contract("1.7")
async def test_a_name_says_whose_words_are_meant(store: Store) -> None:
    await talk(
        store,
        Draft("user", "I swam in the lake", author_id="2", author_name="Anna Berg"),
        Draft("user", "I swam in the lake as well", author_id="1", author_name="Bruno"),
        Draft("user", "Anna told Anna that Anna", author_id="1", author_name="Bruno"),
    )
    assert (await ask(store, "did Anna swim in the lake?"))[0] == "I swam in the lake"
    assert (await ask(store, "did Bruno swim in the lake?"))[0] == "I swam in the lake as well"
    assert "Anna told Anna that Anna" in await ask(store, "Anna")


@pytest.mark.contract("1.7")
async def test_long_answers_do_not_drown_what_people_said(store: Store) -> None:
    essay = "the canoe of my aunt is a fine thing " + "and so on at length about everything under the sun " * 60
    await talk(store, "my aunt has a red canoe", *[f"{essay} {n}" for n in range(20)])
    assert (await ask(store, "my aunt's canoe"))[0] == "my aunt has a red canoe"


@pytest.mark.contract("1.7")
@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("我们什么时候去东京？", "去年春天我们去了东京"),
        ("富士山に登ったのはいつですか", "去年の夏に富士山へ登りました"),
        ("คุณชอบกินอาหารไทยไหม", "ฉันชอบกินผัดไทยมาก"),
        ("언제 부산에 갔어?", "지난주에 부산에 다녀왔어요"),
        ("wann waren wir in München", "Gestern waren wir in Munchen im Museum"),
    ],
)
async def test_a_question_in_any_language_finds_what_answers_it(store: Store, question: str, answer: str) -> None:
    await talk(
        store, "今天天气很好", "そうですね、いい天気です", "วันนี้อากาศดี", "날씨가 좋네요", "das Wetter ist gut", answer
    )
    assert (await ask(store, question))[0] == answer


@pytest.mark.contract("1.7")
@pytest.mark.parametrize(
    "text",
    ["what did they say about it", "🦉", "NEAR(owl fox) OR *", "x" * 10_000, "owl and fox " * 900, "", '""', "-"],
)
async def test_no_question_raises_an_error(store: Store, text: str) -> None:
    await talk(store, "what did the owl say about it?", "🦉 hoots")
    found = await ask(store, text)
    assert found == await recall(store, text)
    assert bool(found) == (text not in ("x" * 10_000, "", '""', "-"))


async def test_the_same_words_come_again_only_when_nothing_else_is_left(store: Store) -> None:
    await talk(store, "the song of the lark", *["play the same  song"] * 30)
    assert {*await ask(store, "song", limit=2)} == {"play the same  song", "the song of the lark"}
    assert len(await ask(store, "song", limit=100)) == 31


@pytest.mark.contract("1.9")
async def test_messages_of_others_do_not_affect_a_guests_search(store: Store) -> None:
    mine = {"source": "telegram", "user_id": "7", "chat_type": "dm"}
    await talk(store, "my parrot is called Rio", "A parrot! Does it talk?", "It says hello", **mine)
    await talk(store, *[f"parrot {n} of the owner" for n in range(MIN_READ_LIMIT + 10)])
    await talk(store, "the owner's parrot sings", "parrot", source="telegram", user_id="8", chat_type="dm")
    guest = Guest("telegram", "7")
    own = {"my parrot is called Rio", "A parrot! Does it talk?", "It says hello"}
    assert {*await recall(store, "what does the parrot say?", guest)} == own
    assert own.issuperset(await recall(store, "what did the owner say on 1 January 2025?", guest))
    assert await recall(store, "parrot", Guest("telegram", "9")) == []
    assert await recall(store, "parrot", Group("telegram:group:1")) == []


@pytest.mark.contract("1.9")
async def test_guests_search_does_not_reach_groups_that_are_stored_under_the_guest(store: Store) -> None:
    stored = {"source": "telegram", "user_id": "7"}  # a stock Hermes stores a group under whoever spoke first
    await talk(store, "the parrot of the group", **stored, chat_type="group", session_key="telegram:group:1")
    await talk(store, "a parrot of an unknown chat", **stored)
    await talk(store, "my own parrot", **stored, chat_type="dm", session_key="telegram:group:1")
    for search in (ask, recall):
        assert await search(store, "parrot", Guest("telegram", "7")) == ["my own parrot"]
        assert await search(store, "parrot", Group("telegram:group:1")) == ["the parrot of the group"]


@pytest.mark.contract("1.9", "4.11")
async def test_incognito_messages_are_no_results_and_no_context(store: Store) -> None:
    session = await talk(store, "where is the vault?")
    await store.write(lambda tx: store.incognito.begin(tx, session))
    await store.append(session, Draft("assistant", "behind the mirror, where the vault is"))
    await store.write(lambda tx: store.incognito.end(tx, session))
    await store.append(session, Draft("user", "thanks"))
    await store.index()
    assert "behind the mirror, where the vault is" not in await recall(store, "vault mirror")
    assert "behind the mirror, where the vault is" in await ask(store, "vault mirror"), (
        "it is in the person's own history"
    )


@pytest.mark.contract("4.11")
async def test_many_incognito_messages_hide_nothing_else(store: Store) -> None:
    await talk(store, "The parrot is called Figaro.")
    session = await talk(store, *[f"parrot {n} that was forgotten" for n in range(MIN_READ_LIMIT + 10)])
    messages = (await store.view(session)).tail

    def forget(tx: Tx) -> None:
        for message in messages[::2]:
            hide_rows(tx, [message.id], FORGOTTEN, now=1.0, hidden_from="memory")
        for message in messages[1::2]:
            hide_rows(tx, [message.id], FORGOTTEN, now=1.0, hidden_from="memory")

    await store.write(forget)
    assert await recall(store, "parrot") == ["The parrot is called Figaro."]
    assert len(await ask(store, "parrot")) == 10, "a person still finds it"


async def test_a_frequent_word_counts_however_old_a_message_is(store: Store) -> None:
    await talk(store, "the marmot runs in the snow", "the marmot sleeps")
    await talk(store, *[f"snow again {n}" for n in range(MIN_READ_LIMIT + 10)])
    assert (await ask(store, "marmot snow"))[0] == "the marmot runs in the snow"
    assert len(await ask(store, "snow", limit=MIN_READ_LIMIT + 100)) == MIN_READ_LIMIT + 11


async def test_a_search_can_be_narrowed_to_a_time(store: Store) -> None:
    for day in ("2025-02-01", "2025-03-01", "2025-04-01"):
        await talk(store, f"heron on {day}", at=day)
    spring = Narrowed(since=datetime(2025, 2, 15).timestamp(), until=datetime(2025, 3, 15).timestamp())
    assert await ask(store, "heron", narrowed=spring) == ["heron on 2025-03-01"]
    assert await ask(store, "heron", narrowed=Narrowed(until=datetime(2025, 2, 15).timestamp())) == [
        "heron on 2025-02-01"
    ]


@pytest.fixture
def in_auckland() -> Iterator[None]:
    before = os.environ.get("TZ")
    os.environ["TZ"] = "Pacific/Auckland"
    time.tzset()
    yield
    os.environ.pop("TZ") if before is None else os.environ.update(TZ=before)
    time.tzset()


async def test_days_are_those_of_this_machine(store: Store, in_auckland: None) -> None:
    await talk(store, "the kiwi came at noon", at="2025-05-03")
    await talk(store, "the kiwi came again", at="2025-05-04")
    assert await ask(store, "3 May 2025", limit=1) == ["the kiwi came at noon"]
