"""Two people never share a session or a peer, whatever names they and their clients have; stock's names stay."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from hermes.honcho.addresses import find_address, peer_in
from hermes.honcho.config_file import Document
from hermes.honcho.configuration import HonchoConfiguration, resolve
from hermes.honcho.guests import GuestRecord
from hermes.memory.provider import Conversation, Speaker
from tests.scale import scale

OWNER = Speaker(is_owner=True)
PIECES = (
    *(
        "a",
        "A",
        "b",
        "bob",
        "Bob",
        "eve",
        "x",
        "y",
        "1",
        "333",
        "-",
        "_",
        ".",
        " ",
        "/",
        ":",
        "@",
        "--",
        "ü",
        "é",
        "会话",
    ),
    *("agent-", "agent:main:", "agent-main-telegram-dm-333", "telegram-", "api-", "api:", "discord-", "hermes", "main"),
    *(
        "-0123456789abcdef",
        "-deadbeef",
        "-0123456789ab",
        "%",
        "%2F",
        "\0",
        "x" * 90,
        "z" * 200,
        "\udc80",
        "root",
        "user-",
    ),
)
PAIRS = scale(4_000, 100_000)
CHAT = "agent-main-telegram-dm-333"
NAME = re.compile(r"[A-Za-z0-9_-]{1,100}")
Maker = Callable[[str, str], tuple[str, Conversation]]


def made(given: dict[str, object], first: str | None = "telegram") -> HonchoConfiguration:
    found = resolve(Document({"peerName": "root", **given}, {}, "hermes"), Path("honcho.json"), "hermes", {})
    return replace(found, guests=GuestRecord(first))


def on_platform(platform: str, user_id: str, _: str) -> tuple[str, Conversation]:
    key = f"agent:main:{platform}:dm:{user_id}"
    return f"{platform}:{user_id}", Conversation("s", platform, "own", Speaker(user_id), "dm", key)


def by_id(user: str, given: str) -> tuple[str, Conversation]:
    """Return a conversation of an API guest who names a session by its id."""
    return f"api:{user}", Conversation(given, "api", "own", Speaker(user), "api", f"agent:main:api:api:{given}")


def by_key(user: str, given: str) -> tuple[str, Conversation]:
    return f"api:{user}", Conversation("s", "api", "own", Speaker(user), "api", f"api:{user}:{given}")


def owners_id(_: str, given: str) -> tuple[str, Conversation]:
    key = f"agent:main:api:api:{given}"
    return "owner", Conversation(given, "api", "everything", OWNER, "api", key)


def owners_key(_: str, given: str) -> tuple[str, Conversation]:
    return "owner", Conversation("s", "api", "everything", OWNER, "api", given)


def titled(_: str, given: str) -> tuple[str, Conversation]:
    return "owner", Conversation("s", "cli", "everything", OWNER, title=given, directory=Path("/code/app"))


def in_directory(_: str, given: str) -> tuple[str, Conversation]:
    name = given.replace("/", "").replace("\0", "") or "x"
    return "owner", Conversation("s", "cli", "everything", OWNER, directory=Path("/code") / name)


GUESTS: tuple[Maker, ...] = (
    lambda user, given: on_platform("telegram", user, given),
    lambda user, given: on_platform("discord", user, given),
    lambda user, given: on_platform("slack", user, given),
    by_id,
    by_key,
)
OWNERS: tuple[Maker, ...] = (owners_id, owners_key, titled, in_directory)


def platform_id(chance: random.Random) -> str:
    """Return an id in the form of Telegram, Discord or Slack."""
    return chance.choice([str(chance.randrange(1, 10**18)), "333", "334", f"U{chance.randrange(10**9):09X}"])


def drawn(chance: random.Random) -> tuple[str, Conversation]:
    text = "".join(chance.choices(PIECES, k=chance.randrange(1, 4)))
    user = "".join(chance.choices(PIECES, k=chance.randrange(1, 3)))
    make = chance.choice((*GUESTS, *OWNERS))
    return make(platform_id(chance) if make in GUESTS[:3] else user, text)


def alike(chance: random.Random, one: str) -> str:
    """Return a text that differs from another in a character or two, mostly ones that a name cannot have."""
    where = chance.randrange(len(one) + 1)
    return one[:where] + chance.choice(["-", ".", " ", "/", ":", "", "_", "A", "é", "-deadbeef"]) + one[where + 1 :]


@pytest.mark.stress
@pytest.mark.contract("5.7", "5.10")
@pytest.mark.parametrize("given", [{}, {"sessionPeerPrefix": True}, {"runtimePeerPrefix": "tg_"}])
@pytest.mark.parametrize("first", ["telegram", "api"])
def test_two_people_never_share_a_session_or_a_peer(given: dict[str, object], first: str) -> None:
    config, chance = made(given, first), random.Random(f"{given} {first}")
    for _ in range(PAIRS // 6):
        who, one = drawn(chance)
        if chance.random() < 0.5:
            other_who, other = drawn(chance)
        else:  # the same kind of conversation, named almost alike
            make, user = chance.choice((by_id, by_key)), "".join(chance.choices(PIECES, k=2))
            who, one = make(user, "".join(chance.choices(PIECES, k=2)))
            other_who, other = make(alike(chance, user), alike(chance, str(one.gateway_session_key)))
        if who == other_who:
            continue
        names = [find_address(config, conversation).data["session"] for conversation in (one, other)]
        peers = [peer_in(config, conversation).name for conversation in (one, other)]
        assert names[0] != names[1], (who, one, other_who, other)
        assert peers[0] != peers[1], (who, one, other_who, other)
        assert all(NAME.fullmatch(name) for name in (*names, *peers)), (names, peers)


WRITTEN_ALIKE = [
    ("my-notes", "my.notes"),
    ("my-notes", "my notes"),
    ("my-notes", "my/notes"),
    ("bob-1", "bob 1"),
    ("ü", "é"),
    ("x" * 200 + "1", "x" * 200 + "2"),
    ("notes", "Notes"),
    ("notes", "notes-0123456789abcdef"),
]


@pytest.mark.contract("5.10")
@pytest.mark.parametrize(("owners", "guests"), [*WRITTEN_ALIKE, *((b, a) for a, b in WRITTEN_ALIKE)])
@pytest.mark.parametrize("make", [by_id, by_key])
def test_a_guests_session_is_not_the_owners_however_it_is_written(owners: str, guests: str, make: Maker) -> None:
    config = made({})
    _, theirs = make("eve", guests)
    own = {find_address(config, of("", owners)[1]).data["session"] for of in (owners_id, owners_key, titled)}
    name = find_address(config, theirs).data["session"]
    assert name not in own
    assert re.search(r"^agent-.*-[0-9a-f]{16}$", name)


@pytest.mark.contract("5.10")
def test_client_key_cannot_imitate_another_users_name() -> None:
    config = made({})
    names = {find_address(config, by_key(*one)[1]).data["session"] for one in (("eve", "x-y"), ("eve-x", "y"))}
    assert len(names) == 2


@pytest.mark.contract("5.10")
@pytest.mark.parametrize(
    "text", ["agent-main-telegram-dm-333", "agent:main:telegram:dm:333", ":agent-main-telegram-dm-333"]
)
@pytest.mark.parametrize("make", [owners_id, owners_key, titled, in_directory, by_id, by_key])
def test_a_name_that_looks_like_a_chats_key_does_not_lead_to_the_chat(text: str, make: Maker) -> None:
    config = made({})
    assert find_address(config, make("eve", text)[1]).data["session"] != "agent-main-telegram-dm-333"


@pytest.mark.contract("5.10")
def test_a_label_behind_the_prefix_does_not_look_like_another_persons_chat() -> None:
    config = made({"sessionPeerPrefix": True, "userPeerAliases": {"333": "root-x"}})
    guests = find_address(config, on_platform("telegram", "333", "")[1]).data["session"]
    assert guests == "root-x-agent-main-telegram-dm-333"
    own = find_address(config, titled("", "x-agent-main-telegram-dm-333")[1]).data["session"]
    assert re.fullmatch(r"root-x-agent-main-telegram-dm-333-[0-9a-f]{16}", own)


def stock(raw: str) -> str:
    """Return the name that a stock Hermes gives a session, for up to 100 characters."""
    return re.sub(r"[^A-Za-z0-9_-]+", "-", raw).strip("-")


KEYS = [
    f"agent:{agent}:{chat}"
    for agent in ("main", "work")
    for chat in (
        *(f"telegram:dm:{number}" for number in (8439114563, 17, 333, 7654321, 5000000001)),
        *(f"telegram:group:-100{number}" for number in (1234567890, 9876543210, 42)),
        *(f"telegram:group:-100555:{thread}" for thread in (1, 77, 123456)),
        *(f"discord:dm:{number}" for number in (80351110224678912, 1234567890123456789)),
        *(f"discord:channel:{number}:{number + 1}" for number in (80351110224678912, 99)),
        *(f"slack:dm:D0{letter}9KX4" for letter in "ABCDE"),
        *(
            f"slack:channel:C0{letter}9KX4:1716239022.{letter_number:06d}"
            for letter_number, letter in enumerate("ABCDE")
        ),
        *(f"whatsapp:dm:49171{number}@s.whatsapp.net" for number in (55501, 55502, 55503)),
        *(f"signal:dm:+49171{number}" for number in (55501, 55502)),
        *(f"matrix:group:!{room}:example.org" for room in ("abc", "DEF")),
    )
]
TITLES = [
    *(
        "refactor auth",
        "Fix: the café!",
        "Trip to Lisbon (May)",
        "2026 taxes",
        "notes",
        "hermes-agent",
        "my agent notes",
    ),
    *(f"Project {number}: draft v{number}.1" for number in range(40)),
    *(f"weekly-review-{number:02d}" for number in range(20)),
    *(
        "deploy -- prod",
        "Q&A",
        "résumé",
        "C++ build",
        "a/b test",
        "x" * 100,
        "agents",
        "agent",
        "deadbeef",
        "it's fine",
    ),
]
DIRECTORIES = [
    *(
        "hermes-agent",
        "src",
        "my project",
        "app.v2",
        "Documents",
        "über",
        "node_modules",
        "dot.files",
        "client-a_b",
        "2026",
    ),
    *(f"repo-{number}" for number in range(45)),
    *(f"team {letter}" for letter in "abcdefghij"),
]


@pytest.mark.contract("5.10", "10.9")
def test_names_of_a_stock_hermes_stay_as_they_are() -> None:
    config = made({})
    assert len(KEYS) + len(TITLES) + len(DIRECTORIES) >= 200
    for key in KEYS:
        parts = key.split(":")
        direct = parts[3] == "dm"
        person = Speaker(parts[4]) if direct else None
        chat = Conversation("s", parts[2], "own" if direct else "here", person, parts[3], key)
        assert find_address(config, chat).data["session"] == stock(key)
    for title in TITLES:
        assert find_address(config, titled("", title)[1]).data["session"] == stock(title)
    for directory in DIRECTORIES:
        assert find_address(config, in_directory("", directory)[1]).data["session"] == stock(directory)


@pytest.mark.contract("5.7")
@pytest.mark.parametrize(
    ("platform", "user_id", "peer"),
    [
        ("telegram", "333", "333"),
        ("api", "333", "api-333"),
        ("discord", "333", "discord-333"),
        ("slack", "U33", "slack-U33"),
        ("api", "eve", "api-eve"),
    ],
)
def test_an_id_of_another_than_the_first_platform_has_the_platforms_name(
    platform: str, user_id: str, peer: str
) -> None:
    conversation = Conversation("s", platform, "own", Speaker(user_id), "dm", "agent:main:x:dm:1")
    assert peer_in(made({}), conversation).name == peer
    assert peer_in(made({"runtimePeerPrefix": "p_"}), conversation).name == f"p_{peer}"


@pytest.mark.contract("5.7")
@pytest.mark.parametrize("user_id", ["api-333", "telegram-333", "discord-", "slack-U33"])
def test_an_id_that_begins_like_another_platforms_gets_a_hash(user_id: str) -> None:
    conversation = Conversation("s", "telegram", "own", Speaker(user_id), "dm", "agent:main:telegram:dm:1")
    assert re.fullmatch(rf"{user_id}-[0-9a-f]{{8}}", peer_in(made({}), conversation).name)


@pytest.mark.contract("5.7")
@pytest.mark.parametrize("user_id", ["hermes", "hermes_work", "hermes_", "boss", "helper", "root"])
def test_no_guest_is_named_like_an_agent_or_the_owner_of_any_host_block(user_id: str) -> None:
    blocks: dict[str, object] = {"hosts": {"hermes": {}, "hermes_lab": {"aiPeer": "helper", "peerName": "boss"}}}
    config = made(blocks)
    conversation = Conversation("s", "telegram", "own", Speaker(user_id), "dm", "agent:main:telegram:dm:1")
    assert peer_in(config, conversation).name.startswith(f"{user_id}-")
