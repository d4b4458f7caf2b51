"""An existing home with guests and a pin, before and after an upgrade: nobody gains or loses access."""

from __future__ import annotations

import hashlib
import json
import zipfile
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.fixtures.keeping import GUESTS
from tests.fixtures.write_guests import DIRECTORY, NOTE, SEATS, TERMINAL, WAITING, WORKSPACE
from tests.honcho.neighbours import (
    OWNER,
    TOOLS,
    Neighbours,
    Seat,
    Tellings,
    by_id,
    by_key,
    in_group,
    searches,
    secret_of,
    secrets_in,
    telegram,
    told_in,
)
from tests.left_behind import end_all

ONE_LOOP = pytest.mark.asyncio(loop_scope="module")
pytestmark = [pytest.mark.processes, pytest.mark.contract("1.9", "5.7", "5.10"), ONE_LOOP]
DIGEST = "75b0cd9ba552740a1f466d96e3d7f50e05375fec5067bb8eb66a13f931eabb5a"
ASKED = "Which secret word is there?"
MIXED = "agent-main-api-api-my-notes"
"""The Honcho session of the owner's `my-notes`, into which the guest `mallory` wrote with the id `my.notes`."""
LATER = {f"{place}, later": seat for place, seat in SEATS.items()}
TOLD = {**SEATS, **WAITING, **LATER}
PLACES = (*TOLD, TERMINAL, NOTE)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(processes: None, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Neighbours]:
    """The stored home, in which everybody talks again in the same places."""
    made = Neighbours(tmp_path_factory.mktemp("existing"), WORKSPACE)
    with zipfile.ZipFile(GUESTS) as archive:
        archive.extractall(made.home)
    for database in made.home.rglob("*.db"):
        database.chmod(0o600)
    try:
        await made.start()
        for place, seat in LATER.items():
            await made.say(seat, told_in(place))
        await made.settle()
        yield made
    finally:
        await made.stop()
        end_all(made.home)


def with_later(*places: str) -> set[str]:
    return {*places, *(f"{place}, later" for place in places)}


IN_GROUP = with_later("a guest in the group", "the owner in the group")
OWNERS = with_later("the owner on Telegram", "the owner's my-notes", "the owner's team notes") | {TERMINAL, NOTE}
EVES = with_later("eve's session", "eve's key") | {"eve, waiting"}
MALLORYS = with_later("mallory in the owner's session") | {"mallory, waiting"}
FINDERS: dict[str, tuple[Seat, set[str]]] = {
    "the owner on Telegram": (telegram(OWNER), OWNERS),
    "the owner in a new session": (by_id(None, "a new day"), OWNERS),
    "Telegram 222": (telegram("222"), with_later("Telegram 222")),
    "Telegram 333": (telegram("333"), with_later("Telegram 333")),
    "the group": (in_group("222"), IN_GROUP),
    "eve in a new session": (by_id("eve", "a new day of eve"), EVES),
    "eve under a new key": (by_key("eve", "a new key"), EVES),
    "API 333": (by_id("333", "a new day of 333"), with_later("API 333")),
    "bob.1 in a new session": (by_id("bob.1", "a new day of bob"), with_later("bob.1's session", "bob.1's key")),
    "mallory in a new session": (by_id("mallory", "a new day of mallory"), MALLORYS),
}


@pytest.mark.contract("9.10")
async def test_the_kept_home_is_the_one_that_was_written() -> None:
    assert hashlib.sha256(GUESTS.read_bytes()).hexdigest() == DIGEST


@pytest.mark.parametrize(("seat", "own"), FINDERS.values(), ids=FINDERS)
async def test_nobody_loses_their_own_words(world: Neighbours, seat: Seat, own: set[str]) -> None:
    if seat.by in ("telegram", "group"):
        await world.say(seat, "/new")
    await world.settle()
    assert own <= secrets_in(await world.say(seat, ASKED, *searches(own)), PLACES)


def person_of(seat: Seat) -> str:
    if seat.user in (None, OWNER):
        return "the owner"
    return f"{'API' if seat.by in ('id', 'key') else 'Telegram'} {seat.user}"


def may_read(seat: Seat) -> set[str]:
    """Return the places whose secrets a person or group may read. The shared session stays the owner's, and the
    owner may read groups with the owner as a member."""
    if seat.by == "group":
        return IN_GROUP
    own = {place for place, other in TOLD.items() if person_of(other) == person_of(seat)}
    if person_of(seat) != "the owner":
        return own
    return own | {TERMINAL, NOTE, "mallory in the owner's session"} | IN_GROUP


ASKING = {**SEATS, **{name: seat for name, (seat, _) in FINDERS.items() if seat not in SEATS.values()}}


@pytest.mark.parametrize("seat", ASKING.values(), ids=ASKING)
async def test_nobody_reads_the_words_of_others(world: Neighbours, seat: Seat) -> None:
    owners = person_of(seat) == "the owner" and seat.by != "group"
    tools = [call for call in TOOLS if call[0] != "session_search" or not owners]  # the owner may search all
    read = await world.say(seat, ASKED, *tools) + await world.say(seat, ASKED)
    assert secrets_in(read, PLACES) <= may_read(seat)


async def test_a_session_that_two_people_wrote_in_stays_the_owners(world: Neighbours) -> None:
    told = world.tellings()
    owners, mallorys = "the owner's my-notes", "mallory in the owner's session"
    assert told[secret_of(owners)][0]["session_id"] == MIXED
    assert told[secret_of(f"{owners}, later")][0]["peer_id"] == "ann"
    new = told[secret_of(f"{mallorys}, later")][0]["session_id"]
    assert new != MIXED
    assert "ann" not in world.members(new)


@pytest.mark.contract("P5")
async def test_doctor_names_the_session_that_two_people_wrote_in(world: Neighbours) -> None:
    ran = await world.hermes("doctor", "--json")
    warned = [one["detail"] for one in json.loads(ran.out)["findings"] if one["level"] != "ok"]
    assert [detail for detail in warned if "my-notes" in detail], warned


def peers_by_person(told: Tellings) -> dict[str, set[str]]:
    """Return all peers under which each person has ever spoken."""
    found: dict[str, set[str]] = {}
    for place, seat in TOLD.items():
        found.setdefault(person_of(seat), set()).update(one["peer_id"] for one in told[secret_of(place)])
    return found


@pytest.mark.parametrize("place", WAITING)
async def test_what_waited_arrives_once_and_in_no_session_of_others(world: Neighbours, place: str) -> None:
    told = world.tellings()
    [arrived] = told[secret_of(place)]
    own = peers_by_person(told)[person_of(WAITING[place])]
    assert world.members(arrived["session_id"]) - {"hermes"} <= own


STOCK = {
    "Telegram 222": ("agent-main-telegram-dm-222", "222", {"222", "hermes"}),
    "Telegram 333": ("agent-main-telegram-dm-333", "333", {"333", "hermes"}),
    "the owner on Telegram": ("agent-main-telegram-dm-111", "ann", {"ann", "hermes"}),
    "a guest in the group": ("agent-main-telegram-group--100", "222", {"ann", "222", "hermes"}),
    "the owner in the group": ("agent-main-telegram-group--100", "ann", {"ann", "222", "hermes"}),
}


@pytest.mark.contract("5.8", "10.9")
@pytest.mark.parametrize("place", STOCK)
async def test_names_that_a_stock_hermes_makes_are_unchanged(world: Neighbours, place: str) -> None:
    session, peer, members = STOCK[place]
    told = world.tellings()
    for name in (place, f"{place}, later"):
        [message] = told[secret_of(name)]
        assert (message["session_id"], message["peer_id"]) == (session, peer)
    assert world.members(session) == members


async def test_from_now_on_no_two_people_share_a_peer(world: Neighbours) -> None:
    told = world.tellings()
    spoken = {(told[secret_of(place)][0]["peer_id"], person_of(seat)) for place, seat in LATER.items()}
    assert len(spoken) == len({peer for peer, _ in spoken}) == len({person for _, person in spoken})


async def test_in_every_other_session_one_person_talks_with_the_agent(world: Neighbours) -> None:
    told = world.tellings()
    peers, people = peers_by_person(told), dict[str, set[str]]()
    for place, seat in {**TOLD, TERMINAL: by_id(None, DIRECTORY)}.items():
        if seat.by != "group":
            people.setdefault(told[secret_of(place)][0]["session_id"], set()).add(person_of(seat))
    assert people.pop(MIXED) == {"the owner", "API mallory"}
    for session, those in people.items():
        [person] = those
        assert world.members(session) - {"hermes"} <= peers[person], session


@pytest.mark.contract("6.13")
async def test_deleting_a_guests_session_everywhere_also_clears_the_mixed_one(world: Neighbours) -> None:
    """Runs near the end, since it removes mallory's messages."""
    ran = await world.hermes("sessions", "delete", "my.notes", "--everywhere", "--yes")
    assert ran.code == 0, ran.err
    await world.settle()
    told = world.tellings()
    assert not [place for place in MALLORYS if secret_of(place) in told]
    assert secret_of("the owner's my-notes") in told


@pytest.mark.contract("5.3", "5.7")
async def test_a_record_of_guests_that_is_lost_gives_nobody_the_peer_of_another(world: Neighbours) -> None:
    """Runs last, since it breaks the home. The API's 222 is not Telegram's."""
    record = world.home / "honcho-guests.json"
    record.unlink()
    read = await world.say(by_id("222", "while it runs"), ASKED, *TOOLS)
    await world.settle()
    assert json.loads(record.read_text(encoding="utf-8"))["workspaces"]["hermes"]["first"] == "telegram"
    await world.stop()
    record.unlink()
    await world.start()
    read += await world.say(by_id("222", "after a start"), ASKED, *TOOLS)
    assert secrets_in(read, PLACES) == set()
    assert not record.exists()
