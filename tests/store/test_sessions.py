"""Sessions: their ids never change, foreign ids are kept, and people can find a session by name."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from hermes.errors import NotFoundError, UsageError
from hermes.store.ids import session_key
from hermes.store.store import Store
from hermes.types import Session


async def create(store: Store, random_hex: Callable[[int], str]) -> Session:
    now = 1_773_133_200.9
    return await store.write(
        lambda tx: store.sessions.create(tx, Session(store.sessions.new_id(tx, now, random_hex), "cli", now))
    )


async def find(store: Store, text: str) -> str:
    return (await store.read(lambda tx: store.sessions.find(tx, text))).id


@pytest.mark.contract("1.1")
async def test_our_id_is_the_time_in_utc_and_eight_hex_digits(store: Store) -> None:
    session = await create(store, lambda count: "0a" * count)
    assert session.id == "20260310_090000_0a0a0a0a"
    assert re.fullmatch(r"\d{8}_\d{6}_[0-9a-f]{8}", (await store.create_session("cli")).id)


@pytest.mark.contract("1.1")
async def test_id_that_is_taken_is_not_given_again(store: Store) -> None:
    drawn = iter(["aaaaaaaa", "aaaaaaaa", "bbbbbbbb"])
    first = await create(store, lambda _: next(drawn))
    second = await create(store, lambda _: next(drawn))
    assert (first.id[-8:], second.id[-8:]) == ("aaaaaaaa", "bbbbbbbb")


@pytest.mark.contract("1.1")
@pytest.mark.parametrize(
    "key", ["20260310_090000_abc123", "kunde 7: Straße «ü» 会话", "a/b?c=d&e", "'; DROP", "x" * 512]
)
async def test_foreign_id_is_kept_unchanged(store: Store, key: str) -> None:
    assert (await store.create_session("api_server", session_id=key)).id == key
    assert await find(store, key) == key
    with pytest.raises(UsageError, match="already exists"):
        await store.create_session("api_server", session_id=key)


@pytest.mark.parametrize("key", ["", "x" * 513, "a\nb", "a\x00b", "\ud800", "s.snapshot.20260101T000000Z"])
async def test_invalid_session_id_is_refused(store: Store, key: str) -> None:
    with pytest.raises(UsageError):
        await store.create_session("api_server", session_id=key)


@pytest.mark.contract("1.7")
async def test_session_is_found_by_id_beginning_or_title(store: Store) -> None:
    for key, title in (("alpha-1", "Garden"), ("alpha-2", None), ("beta", "100% _sure_")):
        await store.create_session("cli", session_id=key, title=title)
    assert await find(store, "b") == "beta"
    assert await find(store, "Garden") == "alpha-1"
    assert await find(store, "100% _sure_") == "beta"
    with pytest.raises(UsageError, match="matches more than one session: alpha-"):
        await find(store, "alpha")
    for text in ("", "%", "gamma", "_"):
        with pytest.raises(NotFoundError):
            await find(store, text)


@pytest.mark.contract("1.2")
def test_session_key_names_agent_platform_chat_and_thread() -> None:
    assert session_key("main", "telegram", "dm", "8439114563") == "agent:main:telegram:dm:8439114563"
    assert session_key("main", "discord", "group", "7", "3") == "agent:main:discord:group:7:3"
