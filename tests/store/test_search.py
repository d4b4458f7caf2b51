"""Search finds messages in any script, except rewound and deleted ones."""

from __future__ import annotations

import asyncio
import sqlite3
import unicodedata
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from hermes.scope import OWNER
from hermes.store.asking import understand
from hermes.store.reach import Narrowed
from hermes.store.search import HistoryHit
from hermes.store.store import Store
from hermes.store.words import segment, snippet
from hermes.types import Draft
from tests.store import old_files as old
from tests.store.still_clock import StillClock

SAID = (
    "我喜欢喝乌龙茶",
    "東京タワーへ行きました。ｶﾀｶﾅも読む",
    "서울에서 친구를 만났습니다",
    "Le café était fermé à Noël",
    "She was running through the gardens",
    "The C++ build of foo_bar-baz v2.1 failed: errno=-5",
    "ภาษาไทยไม่มีช่องว่าง",
    "हिन्दी में लिखा",
    "Ünïcödé in de\u0301compose\u0301d form",
    "don't panic, it's \"only\" a test",
)

FINDS = (
    ("茶", 0), ("乌龙", 0), ("乌龙茶", 0), ("喜欢喝乌", 0), ("我", 0),
    ("東京", 1), ("タワー", 1), ("きました", 1), ("カタカナ", 1), ("ｶﾀｶﾅ", 1),
    ("서울", 2), ("서울에서", 2), ("친구", 2), ("만났", 2),
    ("cafe", 3), ("CAFÉ", 3), ("cafe\u0301", 3), ("noel ferme", 3),
    ("run", 4), ("runs", 4), ("garden", 4), ("gardening", 4), ('"through the gardens"', 4),
    ("c++", 5), ("foo_bar", 5), ("foo-bar", 5), ("baz!", 5), ("v2.1", 5), ("errno=-5", 5), ("(build*) ^of", 5),
    ("ไทย", 6), ("हिन्दी", 7), ("unicode", 8), ("décomposéd", 8), ("don't", 9), ("don’t", 9), ('"only"', 9),
)  # fmt: skip

MISSES = (
    "龙乌",
    "京東",
    '"gardens the through"',
    '"run" zebra "gardens the"',
    "zebra",
    "NOT zebra",
    "缺",
    "",
    " ",
    '"',
    '""',
    "*",
    "😀",
)


async def said(store: Store, *texts: str, source: str = "cli") -> str:
    session = await store.create_session(source)
    await store.append(session.id, *(Draft("user", text) for text in texts))
    await store.index()
    return session.id


async def find(store: Store, text: str, session_id: str | None = None, source: str | None = None) -> list[HistoryHit]:
    return await store.read(
        lambda tx: store.search.find(tx, text, OWNER, limit=50, narrowed=Narrowed(session_id, source))
    )


async def texts(store: Store, text: str) -> list[str | None]:
    return [hit.message.content for hit in await find(store, text)]


@pytest.mark.contract("1.7")
async def test_words_are_found_in_any_script(store: Store) -> None:
    await said(store, *SAID)
    for query, place in FINDS:
        assert await texts(store, query) == [SAID[place]], query


@pytest.mark.contract("1.7")
async def test_text_of_no_message_is_not_found(store: Store) -> None:
    await said(store, *SAID)
    for query in MISSES:
        assert await texts(store, query) == [], query


async def test_more_matching_words_rank_higher_and_quotes_match_phrases(store: Store) -> None:
    await said(store, "red apple and green pear", "green apple")
    assert await texts(store, "green zebra pear") == ["red apple and green pear", "green apple"]
    assert await texts(store, "green apple") == ["green apple", "red apple and green pear"]
    assert await texts(store, '"green apple"') == ["green apple"]
    assert await texts(store, '"red apple" pear') == ["red apple and green pear"]
    assert await texts(store, '"green apple') == ["green apple", "red apple and green pear"]


PUNCTUATION = st.text(alphabet=".,;:!?()[]{}<>*^+-=/\\|&%$#@~`'«»“”、。！？…\t\n", max_size=4)


@given(PUNCTUATION, PUNCTUATION)
def test_punctuation_around_words_changes_nothing(before: str, after: str) -> None:
    assert understand(f"{before}green{after} {before}apple{after}").words == ("green", "apple")


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asking]:
    """A store with all of `SAID`, used without waiting."""
    path = tmp_path_factory.mktemp("store") / "state.db"

    async def fill() -> Store:
        async with await Store.open(path, clock=StillClock(1.0), lock_timeout=10) as store:
            await said(store, *SAID)
            return store

    with closing(sqlite3.connect(path, isolation_level=None)) as tx:
        store = asyncio.run(fill())
        tx.row_factory = sqlite3.Row
        yield Asking(store, tx)


@dataclass
class Asking:
    store: Store
    tx: sqlite3.Connection

    def find(self, text: str) -> list[HistoryHit]:
        return self.store.search.find(self.tx, text, OWNER, limit=500)

    def add(self, text: str) -> int:
        (message,) = self.store.messages.append(self.tx, self.session_id, [Draft("user", text)], now=1.0)
        self.store.search.catch_up(self.tx)
        return message.id

    @property
    def session_id(self) -> str:
        return str(self.tx.execute("SELECT id FROM sessions").fetchone()[0])


@given(st.text())
@example('"').via("an open quote")
@example("NEAR(a b) OR c AND NOT")
@example("a\x00b")
@example("\ud800 a")
@example("what did they say about it")
@example("2024-13-45")
@example("1" * 10_000)
@example("31 February")
@example("x" * 10_000)
@example("owl and fox " * 900)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_any_text_can_be_searched_for(filled: Asking, query: str) -> None:
    for hit in filled.find(query):
        assert "\n" not in hit.snippet
        assert len(hit.snippet) <= 122


SPACELESS = st.characters(whitelist_categories=["Lo"], min_codepoint=0x3041, max_codepoint=0xD7A3).filter(
    lambda letter: segment(letter) == f" {letter} "
)


@given(st.text(SPACELESS, min_size=1, max_size=30), st.data())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_any_part_of_spaceless_text_is_found(filled: Asking, content: str, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(content) - 1))
    part = content[start : data.draw(st.integers(start + 1, len(content)))]
    added = filled.add(f"before {content} after {uuid4()}")
    assert added in {hit.message.id for hit in filled.find(part)}
    quoted = filled.find(f'"{part}"')
    assert added in {hit.message.id for hit in quoted}
    assert all(part in unicodedata.normalize("NFKC", hit.message.content or "") for hit in quoted)
    assert part in snippet(content, part)


@pytest.mark.parametrize(
    ("text", "query", "shown"),
    [
        ("x " * 300 + "Le Café ferme" + " y" * 300, "cafe", "Café"),
        ("x " * 300 + "they were running" + " y" * 300, "runs", "running"),
        ("x " * 300 + "我喜欢喝乌龙茶" + " y" * 300, "乌龙", "乌龙"),
        ("İ" * 300 + " the lantern " + "İ" * 300, "lantern", "lantern"),
        ("scatter " * 60 + "the cat sat" + " y" * 300, "cat", "the cat sat"),
        ("a lot\nof   space", "space", "a lot of space"),
        ("short", "nothing", "short"),
        ("", "x", ""),
    ],
)
def test_snippet_shows_the_match(text: str, query: str, shown: str) -> None:
    assert shown in snippet(text, query)


async def test_rows_that_another_program_wrote_are_found_later(store: Store) -> None:
    session_id = await said(store, "first")
    values = (session_id, "user", "written elsewhere", 5.0)
    with closing(sqlite3.connect(store.db.path)) as db, db:
        db.execute("INSERT INTO messages (session_id, role, content, timestamp) VALUES (?, ?, ?, ?)", values)
    assert await texts(store, "elsewhere") == []
    await store.index()
    assert await texts(store, "elsewhere") == ["written elsewhere"]


async def test_rewound_rows_are_not_found_and_compacted_ones_are(tmp_path: Path) -> None:
    path = old.current_file(tmp_path).path
    async with await Store.open(path, clock=StillClock(1.0), lock_timeout=10) as store:
        await store.index()
        assert await texts(store, "secret") == []
        assert len(await texts(store, "talk")) == 3
        assert await texts(store, "世界") == ["grüße aus Zürich 你好世界"]
        assert await texts(store, "bytes tool") == [], "a tool gave it back, nobody said it"


async def test_hits_can_be_limited_to_a_session_or_a_source(store: Store) -> None:
    first, second = await said(store, "one owl"), await said(store, "two owl", source="telegram")
    assert {hit.message.session_id for hit in await find(store, "owl")} == {first, second}
    assert [hit.message.session_id for hit in await find(store, "owl", session_id=first)] == [first]
    (hit,) = await find(store, "owl", source="telegram")
    assert (hit.message.session_id, hit.source, hit.title) == (second, "telegram", None)
    assert await find(store, "owl", session_id=first, source="telegram") == []


async def test_two_stores_that_index_at_once_index_each_row_once(store: Store) -> None:
    session = await store.create_session("cli")
    for _ in range(5):
        await store.append(session.id, *[Draft("user", "wren")] * 900)
    batches: list[int] = []
    async with await Store.open(store.db.path, clock=StillClock(1.0), lock_timeout=10) as other:
        await asyncio.gather(*(one.index(batches.append) for one in (store, other, store, other)))
    assert sum(batches) == 4500
    count = await store.read(lambda tx: tx.execute("SELECT count(*) FROM hermes_search_rows").fetchone()[0])
    assert count == 4500
    hits = await store.read(lambda tx: store.search.find(tx, "wren", OWNER, limit=9000))
    assert len(hits) == len({hit.message.id for hit in hits}) == 4500
