"""Identities as the owner states them: `hermes gateway people`, `pair`, `status`, the doctor, and the gateway's
start."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from hermes.cli.gateway import NOBODY_YET, UNKNOWN_ID
from hermes.clock import SystemClock
from hermes.db.engine import Tx, migrate
from hermes.scope import Guest
from hermes.store.inbox import allow_pairing, ask_pairing
from hermes.store.people import find_unmarked, meet_all, people, take_untold
from hermes.store.schema import MESSAGES, MIGRATIONS, SESSIONS
from hermes.store.store import Store
from tests.conftest import Ran
from tests.gateway.core import message, running_core
from tests.gateway.processes import GatewayProcess, LoopbackModel, api_settings, write_config

pytestmark = pytest.mark.contract("1.9")
Hermes = Callable[..., Ran]
CODES = ("AAAAAAAA", "BBBBBBBB", "EEEEEEEE")


def fill(home: Path, fill_in: Callable[[Tx], object]) -> None:
    """Write to the store of a home that no process has open."""

    async def write() -> None:
        home.mkdir(parents=True, exist_ok=True)
        async with await Store.open(home / "state.db", clock=SystemClock(), lock_timeout=5.0) as store:
            await store.write(fill_in)

    asyncio.run(write())


def three_ask(tx: Tx) -> None:
    for name, code in zip(("ann", "bob", "eve"), CODES, strict=True):
        ask_pairing(tx, "telegram", name, name.title(), code, now=1.0)


def two_were_let_in(tx: Tx) -> None:
    """As stored by a version that did not ask who people are."""
    three_ask(tx)
    tx.execute("UPDATE hermes_pairings SET state = 'allowed' WHERE code <> 'EEEEEEEE'")


def roles(hermes: Hermes) -> dict[str, str]:
    return {one["who"]: one["role"] for one in json.loads(hermes("gateway", "people", "--json").out)}


def test_paired_person_is_a_guest_unless_stated_otherwise(home: Path, hermes: Hermes) -> None:
    fill(home, three_ask)
    told = [
        hermes("gateway", "pair", code, *flags) for code, flags in zip(CODES, (["--me"], ["--guest"], []), strict=True)
    ]
    assert [ran.out for ran in told] == [
        "Ann (telegram:ann) may talk now, as the owner.\n",
        "Bob (telegram:bob) may talk now, as a guest.\n",
        "Eve (telegram:eve) may talk now, as a guest.\n",
    ]
    assert "hermes gateway people --me telegram:eve" in told[2].err
    assert roles(hermes) == {"telegram:ann": "owner", "telegram:bob": "guest", "telegram:eve": "guest"}
    assert hermes("gateway", "pair", CODES[0], "--me", "--guest").code == 2
    assert hermes("gateway", "pair", "NOBODY").code == 1


@pytest.mark.parametrize(("typed", "role"), [("y", "owner"), ("n", "guest"), ("", "guest")])
def test_pairing_asks_in_a_terminal(
    home: Path, hermes: Hermes, monkeypatch: pytest.MonkeyPatch, typed: str, role: str
) -> None:
    fill(home, three_ask)
    monkeypatch.setattr("hermes.cli.dialog.can_ask", lambda: True)
    asked: list[str] = []

    def answer(question: str, **_: object) -> bool:
        asked.append(question)
        return typed == "y"

    monkeypatch.setattr("typer.confirm", answer)
    assert hermes("gateway", "pair", CODES[0]).code == 0
    assert asked == ["Is Ann (telegram:ann) you? Else they are a guest"]
    assert roles(hermes) == {"telegram:ann": role}


def test_people_are_listed_with_their_notes_and_can_be_marked_before_they_write(home: Path, hermes: Hermes) -> None:
    assert NOBODY_YET in hermes("gateway", "people").err
    assert UNKNOWN_ID in hermes("gateway", "people", "--me", "telegram:111").err
    hermes("gateway", "people", "--guest", "telegram:222")
    assert roles(hermes) == {"telegram:111": "owner", "telegram:222": "guest"}
    listed = json.loads(hermes("gateway", "people", "--json").out)
    assert [Path(one["notes"]).relative_to(home) for one in listed] == [
        Path("memories"),
        Path("memories/people") / Guest("telegram", "222").name,
    ]
    assert "telegram:222" in hermes("gateway", "people").out
    hermes("gateway", "people", "--guest", "telegram:111")
    assert roles(hermes)["telegram:111"] == "guest"
    status = hermes("gateway", "status")
    assert "telegram:111: guest" in status.out
    known = json.loads(hermes("gateway", "status", "--json").out)["people"]
    assert [one["role"] for one in known] == ["guest", "guest"]


@pytest.mark.parametrize("who", ["telegram", "telegram:", ":5", "", "api:bob", "cli:me"])
def test_invalid_account_is_not_marked(hermes: Hermes, who: str) -> None:
    assert hermes("gateway", "people", "--me", who).code == 2
    assert roles(hermes) == {}


def test_doctor_lists_earlier_paired_people_until_they_are_marked(home: Path, hermes: Hermes) -> None:
    fill(home, two_were_let_in)
    (home / "config.yaml").write_text('gateway: {allow: "telegram:9,telegram:-100,telegram:*,telegram:@dan,*"}\n')
    before = (home / "state.db").read_bytes()
    doctor = hermes("doctor")
    [line] = [line for line in doctor.out.splitlines() if "unmarked-people" in line]
    assert "telegram:ann, telegram:bob, telegram:9 are guests until you say otherwise" in line
    assert (home / "state.db").read_bytes() == before, "the doctor changes nothing"
    assert roles(hermes) == dict.fromkeys(["telegram:9", "telegram:ann", "telegram:bob"], "guest")
    for who, flag in (("ann", "--me"), ("bob", "--guest"), ("9", "--guest")):
        hermes("gateway", "people", flag, f"telegram:{who}")
    assert "unmarked-people" not in hermes("doctor").out


def test_doctor_reads_a_store_before_its_migration(home: Path, hermes: Hermes) -> None:
    home.mkdir()
    with closing(sqlite3.connect(home / "state.db", isolation_level=None)) as tx:
        tx.row_factory = sqlite3.Row
        for statement in (SESSIONS, MESSAGES):
            tx.execute(statement)
        migrate(tx, MIGRATIONS[:7], 1.0)
        tx.execute("PRAGMA journal_mode = WAL")
        two_were_let_in(tx)
    doctor = hermes("doctor")
    assert doctor.code == 0, doctor.out
    assert "telegram:ann, telegram:bob are guests" in doctor.out
    assert roles(hermes) == {"telegram:ann": "guest", "telegram:bob": "guest"}, "and it opens in place"


async def test_each_person_is_announced_once(store: Store) -> None:
    await store.write(two_were_let_in)
    first = await store.write(lambda tx: take_untold(tx, ["telegram:9"]))
    assert [one.user_id for one in first] == ["9", "ann", "bob"]
    assert await store.write(lambda tx: take_untold(tx, ["telegram:9"])) == []
    await store.write(lambda tx: allow_pairing(tx, "EEEEEEEE"))
    assert [one.user_id for one in await store.write(lambda tx: take_untold(tx, []))] == ["eve"]
    assert len(await store.read(lambda tx: find_unmarked(tx, []))) == 4


async def test_authors_of_direct_messages_are_listed_by_name(tmp_path: Path) -> None:
    async with running_core(tmp_path) as core:
        await core.platform.deliver(message("hello", "7", author="ann"))
        await core.platform.deliver(message("hello", "g", kind="group", author="bob"))
        await core.platform.until(lambda: len(core.platform.sent) == 2)
        known = await core.store.read(people)
        await core.store.write(lambda tx: meet_all(tx, ["fake:ann"]))
        assert await core.store.read(people) == known
    assert [(one.user_id, one.name, one.role) for one in known] == [("ann", "Ann", "guest")]


@pytest.mark.processes
def test_gateway_lists_guests_at_its_first_start_only(model: LoopbackModel, empty_home: Path) -> None:
    fill(empty_home, two_were_let_in)
    write_config(empty_home, api_settings(model))
    for told in (1, 1):
        with GatewayProcess(empty_home) as gateway:
            gateway.stop()
        assert gateway.output().count("telegram:ann, telegram:bob are guests until you say otherwise") == told
