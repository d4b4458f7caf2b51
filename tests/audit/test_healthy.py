"""Healthy homes: no finding names them, no repair changes them."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hermes.audit.audit import audit_store
from hermes.audit.log import LogAudit
from hermes.home import Home
from hermes.store.ids import snapshot_id
from hermes.store.store import Store
from hermes.types import Compression, Draft, Session
from tests.audit.lookalikes import LOOKALIKES
from tests.audit.looking import bytes_of, findings
from tests.audit.wounds import KEY, SUMMARY, Hand
from tests.cli.filling import compress, fill
from tests.conftest import Ran
from tests.scale import scale
from tests.store import old_files as old
from tests.store.still_clock import StillClock

Hermes = Callable[..., Ran]


@pytest.mark.contract("3.12")
@pytest.mark.parametrize("build", old.BUILDERS)
@pytest.mark.parametrize("journal", ["delete", "wal"])
def test_healthy_file_has_no_findings_and_stays_identical(
    hermes: Hermes, home: Path, build: old.Builder, journal: str
) -> None:
    build(home).run(f"PRAGMA journal_mode = {journal}")
    before = bytes_of(home)
    ran = hermes("doctor", "--repair", "--yes", "--json")
    assert ran.code == 0
    assert findings(ran) == []
    assert bytes_of(home) == before


@pytest.mark.contract("3.12")
def test_wal_of_a_killed_process_is_not_checkpointed(hermes: Hermes, home: Path) -> None:
    file = old.current_file(home)
    file.run("PRAGMA journal_mode = wal")
    aside = home.parent / "aside"
    aside.mkdir()

    async def write_and_be_killed() -> None:
        async with await Store.open(file.path, clock=StillClock(1.0), lock_timeout=5) as store:
            await store.create_session("cli")
            for path in home.glob("state.db*"):
                shutil.copy(path, aside / path.name)

    asyncio.run(write_and_be_killed())
    for path in aside.iterdir():
        shutil.copy(path, home / path.name)
    left = {name: data for name, data in bytes_of(home).items() if not name.endswith("-shm")}
    assert left["state.db-wal"]
    assert hermes("doctor", "--repair", "--yes").code == 0
    assert {name: data for name, data in bytes_of(home).items() if not name.endswith("-shm")} == left


@pytest.mark.contract("3.12")
def test_complete_rotated_conversation_is_no_damage(hermes: Hermes, home: Path) -> None:
    old.current_file(home)
    ran = hermes("doctor", "--json")
    assert ran.code == 0
    (told,) = [finding for finding in json.loads(ran.out)["findings"] if finding["code"]]
    assert (told["code"], told["level"]) == ("route-to-child", "ok")
    assert told["sessions"] == [old.PARENT, old.GRANDCHILD]


@pytest.mark.contract("3.12")
@pytest.mark.parametrize(("make", "layout"), LOOKALIKES, ids=[f"{make.__name__}-{n}" for make, n in LOOKALIKES])
def test_lookalikes_are_not_reported_or_changed(
    hermes: Hermes, home: Path, make: Callable[[Hand], None], layout: int
) -> None:
    make(Hand((old.early_file if layout == 6 else old.current_file)(home)))
    before = bytes_of(home)
    ran = hermes("doctor", "--repair", "--yes", "--json")
    assert findings(ran) == []
    assert ran.code == 0
    assert bytes_of(home) == before


def test_a_store_of_our_own_with_compressions_is_healthy(hermes: Hermes, home: Path) -> None:
    session = fill(home, "a", "b", "c", "d")
    compress(home, session)
    assert findings(hermes("doctor", "--json")) == []


KEYS = [KEY, "agent:main:discord:group:7", "agent:main:telegram:dm:9"]
TEXTS = ["ok", "x" * 300, SUMMARY[:20] + "?", "words " * 80]
ACTS = st.one_of(
    st.tuples(st.just("create"), st.sampled_from([None, *KEYS])),
    st.tuples(st.just("append"), st.integers(0, 5), st.sampled_from(["user", "assistant"]), st.sampled_from(TEXTS)),
    st.tuples(st.just("compress"), st.integers(0, 5)),
    st.tuples(st.just("delete"), st.integers(0, 5)),
    st.tuples(st.just("title"), st.integers(0, 5)),
    st.tuples(st.just("route"), st.integers(0, 5), st.sampled_from(KEYS)),
    st.tuples(st.just("wait"), st.floats(0, 100)),
)
"""Changes by this version's store; a session with a key is bound to it when it is created."""


@pytest.mark.stress
@pytest.mark.contract("3.12")
@settings(max_examples=scale(15, 1000), suppress_health_check=list(HealthCheck))
@given(st.lists(ACTS, max_size=25))
def test_stores_of_this_version_are_never_reported(acts: list[tuple[object, ...]]) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "state.db"
        asyncio.run(act(path, acts))
        found = audit_store(Home(Path(folder)), LogAudit(), lock_timeout=5)
        assert found.damage == ()
        assert found.notices == ()


async def act(path: Path, acts: list[tuple[object, ...]]) -> None:
    clock = StillClock(1_700_000_000.0)
    async with await Store.open(path, clock=clock, lock_timeout=5) as store:
        for name, *values in acts:
            ids = [entry.session.id for entry in await store.read(lambda tx: store.sessions.recent(tx, limit=9))]
            place = values[0] if isinstance(values[0], int) else 0
            if name == "wait":
                await clock.sleep(float(str(values[0])))
            elif name == "create":
                await make_session(store, values[0] if isinstance(values[0], str) else None)
            elif ids:
                await change(store, ids[place % len(ids)], str(name), [str(value) for value in values[1:]])


async def change(store: Store, session_id: str, name: str, values: list[str]) -> None:
    now = store.clock.now()
    if name == "append":
        await store.append(session_id, Draft(values[0], values[1]))
    elif name == "delete":
        await store.write(lambda tx: store.deletions.delete(tx, session_id))
    elif name == "title":
        await store.write(lambda tx: store.sessions.set_title(tx, session_id, "t"))
    elif name == "route":
        await store.write(lambda tx: store.routes.bind(tx, values[0], session_id, now=now))
    else:
        await squeeze(store, session_id)


async def make_session(store: Store, key: str | None) -> None:
    session = await store.write(
        lambda tx: store.sessions.create(
            tx, Session(_hex(8), "telegram", store.clock.now(), session_key=key, chat_id=key and key[-1])
        )
    )
    if key is not None:
        await store.write(lambda tx: store.routes.bind(tx, key, session.id, now=store.clock.now()))


async def squeeze(store: Store, session_id: str) -> None:
    view = await store.view(session_id)
    if not view.tail:
        return
    last = view.tail[-1].id
    row = Compression(
        session_id,
        view.epoch + 1,
        last,
        last,
        (),
        SUMMARY,
        snapshot_id(session_id, store.clock.now() + view.epoch),
        1.0,
    )
    await store.write(lambda tx: store.compressions.commit(tx, row))


_NUMBERS = iter(range(10**9))


def _hex(count: int) -> str:
    return f"{next(_NUMBERS):0{2 * count}x}"


@pytest.mark.contract("10.9")
def test_key_with_another_session_in_the_other_version_is_reported(hermes: Hermes, home: Path) -> None:
    file = old.early_file(home)

    async def begin_anew() -> None:
        async with await Store.open(file.path, clock=StillClock(1.9e9), lock_timeout=5) as store:
            session = await store.create_session("telegram", session_id="new-one")
            await store.write(lambda tx: store.routes.bind(tx, old.KEY, session.id, now=1.9e9))

    asyncio.run(begin_anew())
    ran = hermes("doctor", "--json")
    (told,) = [finding for finding in json.loads(ran.out)["findings"] if finding["code"] == "routes-differ"]
    assert (ran.code, told["level"], told["sessions"]) == (0, "warn", ["new-one", old.GRANDCHILD])
    assert old.KEY in told["detail"]
