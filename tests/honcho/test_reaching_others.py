"""A person tries to read the words of others with a model that obeys: no way works, and everybody still finds their
own words."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import TypeAlias

import pytest
import pytest_asyncio

from tests.gateway.processes import rows
from tests.honcho.neighbours import (
    OWNER,
    SEARCH,
    TOOLS,
    Call,
    Neighbours,
    Seat,
    by_id,
    by_key,
    discord,
    every,
    in_group,
    searches,
    secret_of,
    secrets_in,
    slack,
    telegram,
    told_in,
)
from tests.left_behind import end_all
from tests.memory_server.talking import say

ONE_LOOP = pytest.mark.asyncio(loop_scope="module")
pytestmark = [pytest.mark.processes, pytest.mark.contract("1.9", "5.7", "5.10"), ONE_LOOP]
ASKED = "Which secret word is there?"
LONG_ID = "n" * 190
DOCUMENT = {"workspace": "shared", "peerName": "ann", "hosts": {"hermes_work": {"aiPeer": "scribe"}}}
NOTE, LISTED = "the owner's note", "the owner's note in MEMORY.md"
ADDED = "the owner in a session that was a guest's"
OWNERS: dict[str, Seat] = {
    "the owner on Telegram": telegram(OWNER),
    "the owner's my-notes": by_id(None, "my-notes"),
    "the owner's team notes": by_id(None, "team notes"),
    "the owner's ü": by_id(None, "ü"),
    "the owner's long id": by_id(None, f"{LONG_ID}-the-first"),
    "the owner's id that ends like a hash": by_id(None, "plans-0123456789abcdef"),
    "the owner's key": by_key(None, "agent:main:api:api:garden bed"),
    "the owner's key like a guest's": by_key(None, "api:zoe:letters"),
    "the owner at work": by_id(None, "office", "work"),
}
GUESTS: dict[str, Seat] = {
    "Telegram 222": telegram("222"),
    "Telegram 333": telegram("333"),
    "Discord 333": discord("333"),
    "Slack 333": slack("333"),
    "Discord 111": discord(OWNER),
    "API 333": by_id("333", "threes"),
    "API bob-1": by_id("bob-1", "bob-1"),
    "API bob 1": by_key("bob 1", "k"),
    "API eve": by_key("eve", "x-y"),
    "API dora": by_id("dora", "diary"),
    "API zoe": by_id("zoe", "zoes"),
}
GROUP_SEATS: dict[str, Seat] = {"a guest in the group": in_group("222"), "the owner in the group": in_group(OWNER)}
TITLES = {
    "a title like a Telegram chat": "agent-main-telegram-dm-222",
    "a title like a group": "agent-main-telegram-group--100",
    "a title like a guest's session": "agent-main-api-api-diary",
}
DIRECTORY, PREFIXED = "a directory like a guest's session", "a title behind a prefix"
TERMINAL = (*TITLES, DIRECTORY, PREFIXED)
PLACES = (*OWNERS, *GUESTS, *GROUP_SEATS, *TERMINAL, NOTE, LISTED, ADDED)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(processes: None, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Neighbours]:
    """Two profiles with one workspace, in which everybody has said a secret."""
    made = Neighbours(tmp_path_factory.mktemp("neighbours"), "shared")
    made.write_config("work")
    made.configure(DOCUMENT)
    try:
        await made.start()
        await made.mark_owner(OWNER)
        for place, seat in {**OWNERS, **GUESTS, **GROUP_SEATS}.items():
            await made.say(seat, told_in(place))
        for place, target in ((NOTE, "user"), (LISTED, "memory")):
            note: Call = ("memory", {"action": "add", "target": target, "content": told_in(place)})
            await made.say(by_id(None, f"noting {target}"), "Note it.", note)
        await tell_in_terminal(made)
        await made.settle()
        yield made
    finally:
        await made.stop()
        end_all(made.home)


async def tell_in_terminal(world: Neighbours) -> None:
    """Talk in the owner's terminal, whose directory and titles imitate names of guests' sessions."""
    directory = world.folder / "agent-main-api-api-desk"
    directory.mkdir()
    titled = [line for place, title in TITLES.items() for line in ("/new", f"/title {title}", told_in(place))]
    await run_terminal(world, directory, told_in(DIRECTORY), *titled)
    with world.configured(sessionPeerPrefix=True):
        await run_terminal(world, directory, "/title x-agent-main-api-api-k", told_in(PREFIXED))


async def run_terminal(world: Neighbours, directory: Path, *lines: str) -> None:
    ran = await world.hermes("chat", said="\n".join(lines), directory=directory)
    assert ran.code == 0, ran.err
    for line in lines:
        assert rows(world.home, "SELECT 1 FROM messages WHERE content = ?", line) or line.startswith("/"), ran.out


def held_by_server(world: Neighbours) -> set[str]:
    """Return the owner's places whose secret the server holds as a conclusion."""
    with world.at_server() as http:
        texts = "\n".join(one["content"] for one in every(http, "/conclusions/list"))
    return secrets_in(texts, (*OWNERS, *TERMINAL))


async def ask_twice(world: Neighbours, seat: Seat) -> str:
    """Ask with every tool, then without tools, which injects what was prepared meanwhile; return all that was read."""
    read = await world.say(seat, ASKED, *TOOLS) + await world.say(seat, ASKED)
    assert read.count("'role': 'tool'") >= len(TOOLS) or "not_your_session" in read
    return read


ALL_OWNERS = {*OWNERS, *TERMINAL, NOTE, LISTED}
HEARD_BY_OWNER = {*GROUP_SEATS, ADDED}
"""Places where the owner is a member, whoever speaks."""
FINDERS: dict[str, tuple[Seat, set[str], set[str]]] = {
    "the owner on Telegram": (telegram(OWNER), ALL_OWNERS, HEARD_BY_OWNER),
    "the owner over the API": (by_id(None, "a new day"), ALL_OWNERS, HEARD_BY_OWNER),
    "Telegram 222": (telegram("222"), {"Telegram 222"}, {"a guest in the group"}),
    "Telegram 333": (telegram("333"), {"Telegram 333"}, set()),
    **{place: (GUESTS[place], {place}, set()) for place in ("Discord 333", "Slack 333", "Discord 111")},
    "API 333": (by_id("333", "a new day of 333"), {"API 333"}, set()),
    "API bob-1": (by_id("bob-1", "a new day of bob-1"), {"API bob-1"}, set()),
    "API bob 1": (by_key("bob 1", "later"), {"API bob 1"}, set()),
    "API eve": (by_id("eve", "a new day of eve"), {"API eve"}, set()),
    "API dora": (by_key("dora", "later"), {"API dora"}, set()),
    "API zoe": (by_id("zoe", "a new day of zoe"), {"API zoe"}, set()),
    "the group": (in_group("222"), set(GROUP_SEATS), set()),
}
"""For each person in a fresh conversation: the secrets that they find, and the other own secrets that may be found
beside them."""


async def find_own(world: Neighbours, seat: Seat, own: set[str]) -> set[str]:
    """Return the places whose secret is read in a fresh conversation, by asking and by searching for one's own."""
    if seat.by not in ("id", "key"):
        await world.say(seat, "/new")
    await world.settle()
    return secrets_in(await world.say(seat, ASKED, *searches(own)), PLACES)


@pytest.mark.parametrize(("seat", "own", "beside"), FINDERS.values(), ids=FINDERS)
async def test_everybody_finds_their_own_words_and_no_others(
    world: Neighbours, seat: Seat, own: set[str], beside: set[str]
) -> None:
    found = await find_own(world, seat, own)
    assert own <= found
    assert found - own <= beside


def ids_of(*names: str) -> list[tuple[str, Seat, set[str]]]:
    return [(f"a session id {name[-40:]!r}", by_id(f"mallory {name[-20:]}", name), set()) for name in names]


def users_of(*names: str) -> list[tuple[str, Seat, set[str]]]:
    return [(f"a guest who is called {name!r}", by_id(name, f"session of {name}"), set()) for name in names]


SEATS: list[tuple[str, Seat, set[str]]] = [
    *ids_of("my.notes", "my notes", "my/notes", "my:notes", "my-notes "),
    *ids_of("team-notes", "team.notes", "é", "!!!"),
    *ids_of(f"{LONG_ID}-the-other", f"{LONG_ID}-the.first"),
    *ids_of("plans.0123456789abcdef", "garden-bed", "garden.bed", "desk", "shared", "hermes", "x-agent-main-api-api-k"),
    *ids_of("agent-main-telegram-dm-333", "agent:main:telegram:dm:333", "agent:main:telegram:dm:111"),
    *ids_of("agent-main-telegram-group--100", "agent:main:telegram:group:-100"),
    *ids_of("api-eve-x-y", "api:eve:x-y", "bob 1", "bob.1", "zoes "),
    ("the owner's very session id", by_id("mallory", "my-notes"), set()),
    ("another guest's very session id", by_id("mallory", "diary"), set()),
    ("a user and a key that join to another's", by_key("eve-x", "y"), set()),
    ("a user that looks like another's quoted name", by_key("bob-201", "k"), set()),
    ("a key that the owner used for a guest's name", by_key("zoe", "letters"), {"API zoe"}),
    ("a key like a Telegram chat's", by_key("mallory", "agent:main:telegram:dm:333"), set()),
    ("a key like the owner's", by_key("mallory", "agent:main:api:api:garden bed"), set()),
    *users_of("222", "telegram-333", "telegram:333", "api-333", "api-eve", "bob.1"),
    *users_of("hermes", "hermes_work", "scribe", "ann", "user", "unknown", "111"),
    ("an API guest with the id of a Telegram guest", by_id("333", "again"), {"API 333"}),
    ("a Telegram guest with the id of an API guest", telegram("333"), {"Telegram 333"}),
    ("a Telegram guest whose chat a title imitates", telegram("222"), {"Telegram 222", "a guest in the group"}),
    ("an API guest whose session a title imitates", by_id("dora", "diary"), {"API dora"}),
    ("a Telegram guest who borrows the owner's peer", telegram("401", alt="ann"), set()),
    ("a Telegram guest who borrows the owner's id", telegram("402", alt=OWNER), set()),
    ("a Telegram guest who borrows a guest's id", telegram("403", alt="333"), set()),
    ("a Slack guest with the owner's id on Telegram", slack(OWNER), set()),
    ("a guest in a group", in_group("333"), set(GROUP_SEATS)),
    ("the owner in a group", in_group(OWNER), set(GROUP_SEATS)),
    ("another profile's guest with the owner's session id", by_id("mallory", "my-notes", "work"), set()),
    ("another profile's guest who is called like an agent", by_id("hermes", "any", "work"), set()),
    ("another profile's guest who is called like the owner", by_id("ann", "some", "work"), set()),
    ("another profile's guest with a guest's session id", by_id("mallory", "diary", "work"), set()),
]


@pytest.mark.parametrize(("seat", "own"), [pytest.param(seat, own, id=name) for name, seat, own in SEATS])
async def test_nobody_reads_the_words_of_others_by(world: Neighbours, seat: Seat, own: set[str]) -> None:
    assert secrets_in(await ask_twice(world, seat), PLACES) <= own


CONFIGURED = {
    "an alias onto the owner": (telegram("411"), {"userPeerAliases": {"411": "ann"}}),
    "an alias of an API guest onto the owner": (by_id("alf", "alf"), {"userPeerAliases": {"alf": "ann"}}),
    "an alias of a user name onto the owner": (telegram("412", alt="@x"), {"userPeerAliases": {"@x": "ann"}}),
    "an alias with a platform onto the owner": (telegram("413"), {"userPeerAliases": {"telegram:413": "ann"}}),
    "an alias onto another guest": (telegram("414"), {"userPeerAliases": {"414": "333"}}),
    "an alias of an API guest onto another guest": (by_id("amy", "amy"), {"userPeerAliases": {"amy": "222"}}),
    "an alias onto the agent": (telegram("415"), {"userPeerAliases": {"415": "hermes"}}),
    "an alias onto another profile's agent": (telegram("416"), {"userPeerAliases": {"416": "scribe"}}),
    "a pin of all guests": (telegram("417"), {"pinUserPeer": True, "pinGuests": True}),
    "a pin of all guests, over the API": (by_id("pia", "pia"), {"pinUserPeer": True, "pinGuests": True}),
    "a prefixed title that imitates a session": (by_id("ann-x", "k"), {"sessionPeerPrefix": True}),
    "a prefix that makes the owner's name": (telegram("n"), {"runtimePeerPrefix": "an"}),
    "a prefix that makes an agent's name": (by_id("be", "be"), {"runtimePeerPrefix": "scri"}),
}


@pytest.mark.parametrize(("seat", "keys"), CONFIGURED.values(), ids=CONFIGURED)
async def test_nobody_reads_the_words_of_others_through(world: Neighbours, seat: Seat, keys: dict[str, object]) -> None:
    held = held_by_server(world)
    with world.configured(**keys):
        read = await ask_twice(world, seat)
        for line in ("/memory", "/memory search secret", "/memory why 1", "/memory forget 1", "/memory forget 1 --yes"):
            read += await world.say(seat, line)
    await world.settle()
    assert secrets_in(read, PLACES) == set()
    assert held_by_server(world) == held, "nothing of the owner's was forgotten"


Attack: TypeAlias = Callable[[Neighbours], Awaitable[str]]


async def the_servers_name_of_the_owners_session(world: Neighbours) -> str:
    name = world.find_telling("the owner's my-notes")["session_id"]
    return await ask_twice(world, by_id("nora", name)) + await ask_twice(world, by_key("nora", name))


async def the_servers_name_of_a_guests_session(world: Neighbours) -> str:
    name = world.find_telling("API eve")["session_id"]
    return await ask_twice(world, by_id("nick", name)) + await ask_twice(world, by_key("nick", name))


async def the_end_of_the_servers_name_of_a_guests_session(world: Neighbours) -> str:
    name = world.find_telling("API dora")["session_id"]
    return await ask_twice(world, by_id("nell", name.removeprefix("agent-main-api-api-")))


async def the_servers_name_of_an_api_guest(world: Neighbours) -> str:
    peers = [world.find_telling(place)["peer_id"] for place in ("API bob 1", "API 333", "Telegram 333", "Slack 333")]
    names = [name for name in peers if name != "333"]  # that one is a person, who is asked elsewhere
    return "".join([await ask_twice(world, by_id(name, f"of {name}")) for name in names])


async def a_session_that_the_owner_was_added_to(world: Neighbours) -> str:
    """Such sessions exist where two people once shared a name."""
    seats = (by_id("wanda", "wandas"), telegram("425"))
    for seat in seats:
        await world.say(seat, told_in(f"session of {seat.user}"))
    await world.settle()
    for seat in seats:
        session = world.find_telling(f"session of {seat.user}")["session_id"]
        with world.at_server() as http:
            say(http, session, told_in(ADDED), peer="ann")
    await world.settle()
    with world.configured(contextTokens=1999):  # another agent, which has not looked at the session before
        return "".join([await ask_twice(world, seat) for seat in seats])


async def commands(world: Neighbours) -> str:
    lines = (
        *("/memory", "/memory search secret", "/memory more", "/memory why 1", "/memory forget 1 --yes"),
        *("/status", "/usage", "/title", "/title my-notes", "/resume my-notes", "/sessions", "/unfold"),
        *("/new my-notes", "/compress secret", "/model", "/help", "/memory ann", "/save x.md"),
    )
    seats = (by_id("olga", "my.notes;"), telegram("421"))
    return "".join([await world.say(seat, line) for seat in seats for line in lines])


async def deleting_the_owners_conclusions(world: Neighbours) -> str:
    with world.at_server() as http:
        ids = [
            one["id"] for one in every(http, "/conclusions/list") if secret_of("the owner's my-notes") in one["content"]
        ]
    assert ids
    calls = [("honcho_conclude", {"delete_id": one, "peer": peer}) for one in ids for peer in ("user", "ai")]
    seats = (by_id("otto", "my.notes!"), by_id("scribe", "of an agent"), telegram("422"))
    return "".join([await world.say(seat, "Forget it.", *calls) for seat in seats])


async def arguments_that_no_tool_has(world: Neighbours) -> str:
    named = {"session_id": "agent-main-api-api-my-notes", "workspace": "shared", "scope": "owner", "user_id": "ann"}
    calls = [
        (tool, {**given, **named, "peer": peer, "target": "ann", "observer": "ann", "reach": "everything"})
        for tool, given in (("honcho_profile", {}), SEARCH, ("honcho_context", {}), ("session_search", SEARCH[1]))
        for peer in ("ann", "111", "333", "scribe", "")
    ]
    return "".join([await world.say(by_id("oona", "of oona"), ASKED, *part) for part in (calls[:10], calls[10:])])


async def searching_sessions(world: Neighbours) -> str:
    begun = secret_of("the owner's my-notes")[:5]
    queries = ("secret word", begun, 'secret" OR "word', "secret*", "') OR 1=1 --", "my-notes", "ann")
    calls = [("session_search", {"query": query, "limit": limit}) for query in queries for limit in (20, 10**9)]
    return "".join([await world.say(seat, ASKED, *calls) for seat in (by_id("olaf", "my.notes,"), telegram("423"))])


async def the_owners_notes_by_their_words(world: Neighbours) -> str:
    calls = [
        ("memory", {"action": action, "target": target, "content": "x", "old_text": "secret word about"})
        for action in ("remove", "replace")
        for target in ("user", "memory", "../USER", "owner")
    ]
    before = {path: path.read_text(encoding="utf-8") for path in (world.home / "memories").glob("*.md")}
    assert secrets_in("".join(before.values()), PLACES) == {NOTE, LISTED}
    read = "".join([await world.say(seat, ASKED, *calls) for seat in (by_id("odin", "my.notes?"), telegram("424"))])
    assert {path: path.read_text(encoding="utf-8") for path in before} == before
    return read


async def a_delegate(world: Neighbours) -> str:
    task = f"{ASKED} Call these tools: {json.dumps(TOOLS)}"
    return await world.say(by_id("omar", "my.notes_"), ASKED, ("delegate", {"task": task}))


ATTACKS: tuple[Attack, ...] = (
    the_servers_name_of_the_owners_session,
    the_servers_name_of_a_guests_session,
    the_end_of_the_servers_name_of_a_guests_session,
    the_servers_name_of_an_api_guest,
    a_session_that_the_owner_was_added_to,
    commands,
    deleting_the_owners_conclusions,
    arguments_that_no_tool_has,
    searching_sessions,
    the_owners_notes_by_their_words,
    a_delegate,
)


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.__name__.replace("_", " "))
async def test_nobody_reads_or_changes_the_words_of_others_with(world: Neighbours, attack: Attack) -> None:
    held = held_by_server(world)
    read = await attack(world)
    await world.settle()
    assert secrets_in(read, PLACES) == set()
    assert held_by_server(world) == held


@pytest.mark.contract("5.7")
@pytest.mark.parametrize("option", ["--leave", "--merge"])
async def test_an_account_is_not_mapped_onto_the_owner_without_a_question(world: Neighbours, option: str) -> None:
    before = (world.home / "honcho.json").read_text(encoding="utf-8")
    try:
        ran = await world.hermes("honcho", "peers", "map", "333", "ann", option)
        assert ran.code == 2, ran.out
        assert (world.home / "honcho.json").read_text(encoding="utf-8") == before
        people = rows(world.home, "SELECT DISTINCT is_owner FROM hermes_people WHERE user_id = '333'")
        assert people == [(0,)]
        await world.settle()
        assert world.find_telling("Telegram 333")["peer_id"] != "ann"
        assert secrets_in(await ask_twice(world, telegram("333")), PLACES) <= {"Telegram 333"}
    finally:
        (world.home / "honcho.json").write_text(before, encoding="utf-8")


async def test_no_guest_is_a_member_of_a_session_of_the_owners(world: Neighbours) -> None:
    await world.settle()
    told = world.tellings()
    sessions = {place: told[secret_of(place)][0]["session_id"] for place in (*OWNERS, *TERMINAL)}
    members = {place: world.members(session) - {"ann", "hermes", "scribe"} for place, session in sessions.items()}
    assert {place: others for place, others in members.items() if others} == {}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def restarted(world: Neighbours) -> Neighbours:
    """The same home after all attempts, with restarted gateways."""
    await world.settle()
    await world.stop()
    await world.start()
    return world


@pytest.mark.parametrize(("seat", "own", "beside"), FINDERS.values(), ids=FINDERS)
async def test_after_all_that_and_a_restart_everybody_finds_their_own_words(
    restarted: Neighbours, seat: Seat, own: set[str], beside: set[str]
) -> None:
    found = await find_own(restarted, seat, own)
    assert own <= found
    assert found - own <= beside
