"""A peer that is not a guest's alone limits the guest to the current conversation, whatever an alias, a pin or a
session's name says. Sessions mixed by an earlier version are migrated once."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from hermes.errors import SettingsError
from hermes.honcho.carrying import join_records, migrate_guests
from hermes.honcho.config_file import ConfigPlaces
from hermes.honcho.configuration import load
from hermes.honcho.guests import (
    MAX_ACCOUNTS,
    GuestRecord,
    MisfiledMessages,
    account_name,
    add_account,
    edit_guests,
    read_guests,
)
from hermes.honcho.identity import Identities, find_peer
from hermes.honcho.plugin import SHARED
from hermes.memory.plugin_thread import Returned
from hermes.memory.provider import (
    Acquaintance,
    Address,
    Conversation,
    FactQuery,
    Facts,
    MemoryPlugin,
    Notebook,
    Speaker,
)
from tests.honcho.asking import Person
from tests.honcho.recalling import ANN, BOB, BOT, DIRECT, GUEST, SESSIONS, Recalling
from tests.honcho.setting_up import Hermes, add_gateway, document, roles
from tests.memory_server.serving import Served, inside
from tests.memory_server.talking import held, say, settle

SECRET, OWN = "Zanzibar", "Quetzal"
QUESTION = "What is the password of the safe?"
TOOLS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("honcho_profile", {}),
    ("honcho_search", {"query": "password of the safe"}),
    ("honcho_context", {}),
    ("honcho_reasoning", {"query": QUESTION}),
)
PEOPLE = GuestRecord("telegram", {"telegram:17": "17", "telegram:23": "23", "api:eve": "api-eve"})


def who(aliases: dict[str, str] | None = None, **given: Any) -> Identities:
    return Identities(**{"owner": "ann", "ai": "bot", "aliases": aliases or {}, "guests": PEOPLE, **given})


@pytest.mark.contract("5.7")
@pytest.mark.parametrize(
    ("identities", "is_shared"),
    [
        (who(), False),
        (who({"17": "bob"}), False),
        (who({"17": "bob", "api:eve": "bob"}), False),
        (who({"17": "ann"}), True),
        (who({"telegram:17": "ann"}), True),
        (who({"@bob": "ann"}), True),
        (who({"17": "bot"}), True),
        (who({"17": "hermes"}), True),
        (who({"17": "hermes_work"}), True),
        (who({"17": "boss"}, others=frozenset({"boss"})), True),
        (who({"17": "23"}), True),
        (who({"17": "api-eve"}), True),
        (who({"17": "23", "23": "23"}), False),
        (who({"17": "17"}), False),
        (who(pin=True, pin_guests=True), True),
        (who(pin=True), False),
    ],
)
def test_an_alias_never_widens_what_a_guest_reads(identities: Identities, is_shared: bool) -> None:
    assert find_peer(identities, GUEST, None, "telegram").is_shared is is_shared
    assert not find_peer(identities, Speaker("17", is_owner=True), None, "telegram").is_shared


@pytest.mark.contract("5.7")
def test_a_new_guest_named_like_an_alias_takes_nothing_from_whose_alias_it_is() -> None:
    before = who({"17": "bob"}, guests=GuestRecord("telegram", {"telegram:17": "bob"}))
    newcomer = find_peer(before, Speaker("bob"), None, "telegram").name
    assert newcomer.startswith("bob-")
    after = who({"17": "bob"}, guests=add_account(before.guests, "telegram:bob", newcomer))
    assert not find_peer(after, GUEST, None, "telegram").is_shared


def was_on(peer: str, account: str = "telegram:23") -> GuestRecord:
    """Return the record of an account that has had another peer for a while."""
    return add_account(PEOPLE, account, peer)


@pytest.mark.contract("5.7")
def test_a_peer_that_another_account_had_once_is_not_read() -> None:
    assert find_peer(who({"17": "bob"}, guests=was_on("bob")), GUEST, None, "telegram").is_shared
    assert find_peer(who({"17": "tg-23"}, prefix="tg-", guests=was_on("tg-23")), GUEST, None, "telegram").is_shared
    joined = {"17": "bob", "23": "bob"}
    assert not find_peer(who(joined, guests=was_on("bob")), GUEST, None, "telegram").is_shared


@pytest.mark.contract("5.7")
def test_a_newcomer_does_not_get_the_peer_that_another_account_had_once() -> None:
    newcomer = find_peer(who(guests=was_on("bob")), Speaker("bob"), None, "telegram").name
    assert newcomer.startswith("bob-")
    assert find_peer(who(guests=was_on("bob", "telegram:bob")), Speaker("bob"), None, "telegram").name == "bob"


@pytest.mark.contract("5.7")
def test_a_guest_on_a_peer_that_an_alias_gives_the_owner_reads_the_conversation() -> None:
    aliases = {"17": "anna", "111": "anna"}
    owners = migrate_guests(who(aliases), "lab", [], [Acquaintance("telegram", "111", is_owner=True)]).owners
    assert owners == ("anna",)
    found = who(aliases, guests=replace(PEOPLE, owners=owners))
    assert find_peer(found, GUEST, None, "telegram").is_shared
    assert find_peer(found, Speaker("anna"), None, "telegram").name != "anna"


@pytest.mark.contract("5.7")
async def test_every_peer_of_an_account_is_recorded(told: Recalling) -> None:
    notebook, owners = Notebook(GUEST, "telegram"), Notebook(Speaker("111", is_owner=True), "telegram")
    async with told.host() as talk:
        provider = (await talk.memory(DIRECT)).provider
        for given in ({}, {"userPeerAliases": {"17": "bob", "111": "anna"}}, {"runtimePeerPrefix": "tg-"}):
            told.configure(**given)
            for place in (notebook, owners):

                async def ask(plugin: MemoryPlugin, place: Notebook = place) -> Address:
                    return plugin.address(place)

                until = provider.within(20)
                assert isinstance(await provider.call("address", ask, Address, until), Returned)
    [record] = json.loads(told.machine.places().guests.read_text(encoding="utf-8"))["workspaces"].values()
    assert record["accounts"] == {"telegram:17": "17"}
    assert record["later"] == {"telegram:17": ["bob", "tg-17"]}
    assert record["owners"] == ["anna"]


@pytest.mark.contract("5.7")
def test_an_alias_of_any_profile_keeps_its_name_from_others(tmp_path: Path) -> None:
    blocks = {"hermes": {"userPeerAliases": {"api:tim": "bob"}}, "hermes_work": {}}
    (tmp_path / "honcho.json").write_text(json.dumps({"hosts": blocks}), encoding="utf-8")
    env = {"HOME": str(tmp_path)}
    found = load(ConfigPlaces.find(tmp_path / "profiles" / "work", "work", env), env)
    assert found.file == tmp_path / "honcho.json"
    assert find_peer(found.identities, Speaker("bob"), None, "api").name.startswith("bob-")


@pytest.mark.contract("5.7")
@pytest.mark.parametrize("profile", [None, "work"])
def test_names_of_a_profile_with_a_file_of_its_own_are_taken_too(tmp_path: Path, profile: str | None) -> None:
    work, env = tmp_path / "profiles" / "work", {"HOME": str(tmp_path)}
    work.mkdir(parents=True)
    for folder, owner, agent in ((tmp_path, "ann", "scribe"), (work, "anna", "clerk")):
        named = {"peerName": owner, "aiPeer": agent, "workspace": "lab"}
        (folder / "honcho.json").write_text(json.dumps(named), encoding="utf-8")
    found = load(ConfigPlaces.find(tmp_path if profile is None else work, profile, env), env).identities
    for name in ("ann", "scribe", "anna", "clerk"):
        assert find_peer(found, Speaker(name), None, "api").name.startswith(f"{name}-")


@pytest.mark.contract("5.7")
def test_a_bare_alias_means_the_first_platform_and_a_long_one_its_own() -> None:
    found = who({"17": "bob", "api:17": "bea"})
    assert find_peer(found, Speaker("17"), None, "telegram").name == "bob"
    assert find_peer(found, Speaker("17"), None, "api").name == "bea"
    assert find_peer(found, Speaker("17"), None, "discord").name == "discord-17"
    assert find_peer(who({"telegram:17": "bob"}), Speaker("telegram:17"), None, "telegram").name != "bob"


@pytest.fixture
def told(recalling: Recalling) -> Recalling:
    """A secret of the owner from the terminal, and one of the guest from the guest's chat."""
    recalling.configure()
    recalling.tell("desk", (ANN, f"The password of the safe is {SECRET}. I keep it."), (BOT, f"Noted: {SECRET}."))
    recalling.set_card(BOT, [f"Password: {SECRET}"], ANN)
    return recalling


@pytest.mark.contract("1.9", "5.7")
@pytest.mark.parametrize("given", [{"userPeerAliases": {"17": ANN}}, {"pinUserPeer": True, "pinGuests": True}])
async def test_a_guest_on_the_owners_peer_reads_the_present_conversation(
    told: Recalling, given: dict[str, Any]
) -> None:
    told.configure(**given)
    told.tell(SESSIONS["s2"], (ANN, f"My own word is {OWN}, for the password of the safe."))
    async with told.host() as talk:
        seen = [await talk.turn(QUESTION, DIRECT, GUEST) for _ in range(2)]
        seen += [
            await talk.use(tool, DIRECT, GUEST, peer=peer, **more) for tool, more in TOOLS for peer in ("user", "ai")
        ]
    assert SECRET not in "\n".join(seen)
    assert OWN in "\n".join(seen)


@pytest.mark.contract("1.9", "5.7")
async def test_a_guest_on_the_owners_peer_is_shown_no_facts(told: Recalling) -> None:
    told.configure(userPeerAliases={"17": ANN})
    async with told.host() as talk:
        memory = await talk.memory(DIRECT)
        until = memory.provider.within(20)
        whose = Notebook(GUEST, "telegram")
        found = await memory.provider.call("facts", lambda plugin: plugin.facts(whose, FactQuery()), Facts, until)
    assert isinstance(found, Returned)
    assert (found.value.items, found.value.remark) == ((), SHARED)


@pytest.mark.contract("5.10")
async def test_a_session_with_another_member_is_closed_to_a_guest(told: Recalling) -> None:
    told.tell(SESSIONS["s2"], (BOB, f"My word is {OWN}."), (BOT, f"{OWN} it is."))
    told.tell(SESSIONS["s2"], (ANN, f"The owner says {SECRET} here, the password of the safe."))
    async with told.host() as talk:
        seen = [await talk.turn(f"{QUESTION} And my word?", DIRECT, GUEST) for _ in range(2)]
        seen += [
            await talk.use(tool, DIRECT, GUEST, peer=peer, **more) for tool, more in TOOLS for peer in ("user", "ai")
        ]
    assert SECRET not in "\n".join(seen)
    assert OWN in "\n".join(seen), "what is theirs is known of their peer"


@pytest.mark.contract("5.10")
async def test_the_agent_of_another_profile_closes_no_session(told: Recalling) -> None:
    told.tell(SESSIONS["s2"], (BOB, "Hello."), (BOT, f"Your word is {OWN}."), ("coder", "I am here too."))
    for hosts, is_read in (({"hermes_work": {"aiPeer": "coder"}}, True), ({}, False)):
        told.configure(hosts={"hermes": {}, **hosts})
        async with told.host() as talk:
            assert (OWN in await talk.use("honcho_context", DIRECT, GUEST)) is is_read


@pytest.mark.contract("5.7")
def test_mapping_onto_your_own_peer_asks_whether_it_is_you(
    home: Path, hermes: Hermes, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_gateway(hermes)
    assert hermes("memory", "setup", "honcho", "--yes", "--user", "ann", "--unchecked").code == 0
    refused = hermes("honcho", "peers", "map", "17", "ann", "--leave")
    assert (refused.code, "nobody said that telegram:17 is you" in refused.err) == (2, True)
    person = Person("no").sits_down(monkeypatch)
    assert hermes("honcho", "peers", "map", "17", "ann", "--leave").code == 2
    assert any("Is telegram:17 you?" in line for line in person.asked)
    assert "userPeerAliases" not in json.dumps(document(home))
    assert roles(hermes) == {}
    assert hermes("honcho", "peers", "map", "17", "ann", "--leave", "--me").code == 0
    assert roles(hermes) == {"telegram:17": "owner"}


@pytest.mark.contract("5.7")
def test_mapping_onto_an_agent_or_another_person_is_refused(home: Path, hermes: Hermes) -> None:
    add_gateway(hermes)
    assert hermes("memory", "setup", "honcho", "--yes", "--user", "ann", "--unchecked").code == 0
    edit_guests(home / "honcho-guests.json", "hermes", lambda _: PEOPLE)
    for name, why in (
        ("hermes", "is the agent"),
        ("hermes_work", "is the agent"),
        ("23", "is the peer of telegram:23"),
    ):
        refused = hermes("honcho", "peers", "map", "17", name, "--leave")
        assert (refused.code, why in refused.err) == (2, True), refused.err
    assert "userPeerAliases" not in json.dumps(document(home))
    assert hermes("honcho", "peers", "map", "eve", "evelyn", "--leave").code == 0
    assert document(home)["hosts"]["hermes"]["userPeerAliases"] == {"api:eve": "evelyn"}


@pytest.mark.contract("5.7", "P5")
def test_an_account_on_your_peer_is_named_with_the_command(home: Path, hermes: Hermes) -> None:
    add_gateway(hermes)
    assert hermes("memory", "setup", "honcho", "--yes", "--user", "ann", "--unchecked").code == 0
    path = home / "honcho.json"
    found = json.loads(path.read_text(encoding="utf-8"))
    found["hosts"]["hermes"]["userPeerAliases"] = {"17": "ann"}
    path.write_text(json.dumps(found), encoding="utf-8")
    for command in (("memory", "status"), ("honcho", "status"), ("doctor",)):
        shown = " ".join((hermes(*command).out).split())
        assert "`hermes gateway people --me telegram:17`" in shown, command
    people = json.loads(hermes("honcho", "peers", "--json").out)["people"]
    assert {one["who"]: one["reads"] for one in people}["telegram:17"] == "this conversation"


def chat(platform: str, user_id: str | None, session: str, key: str, **more: Any) -> Conversation:
    """Return a conversation that an earlier version put into a session."""
    person = Speaker(is_owner=True) if user_id is None else Speaker(user_id)
    bound = {"workspace": "lab", "session": session, "aiPeer": "bot"}
    reach = "everything" if user_id is None else "own"
    return Conversation(key, platform, reach, person, "dm", key, bound=bound, **more)  # type: ignore[arg-type]


EARLIER = [
    chat("api", None, "agent-main-api-api-my-notes", "agent:main:api:api:my-notes"),
    chat("api", "mallory", "agent-main-api-api-my-notes", "agent:main:api:api:my.notes"),
    chat("api", "eve", "agent-main-api-api-diary", "agent:main:api:api:diary"),
    chat("api", "333", "agent-main-api-api-own", "agent:main:api:api:own"),
    chat("telegram", "333", "agent-main-telegram-dm-333", "agent:main:telegram:dm:333"),
    chat("telegram", "222", "agent-main-telegram-dm-222", "agent:main:telegram:dm:222"),
]


@pytest.mark.contract("5.7", "5.10")
def test_an_earlier_home_keeps_peers_and_parts_what_was_mixed() -> None:
    before = Identities("ann", "bot", aliases={"friend": "fred"})
    people = [Acquaintance("telegram", "444"), Acquaintance("telegram", "1", is_owner=True)]
    friend = chat("api", "friend", "agent-main-api-api-f", "agent:main:api:api:f")
    found = migrate_guests(before, "lab", [*EARLIER, friend], people)
    assert found.first == "telegram"
    assert found.kept == {"api:mallory": "mallory", "api:eve": "eve"}
    assert found.bare == {"friend": "api"}
    assert found.mixed == {"agent-main-api-api-my-notes": {"agent:main:api:api:my.notes": "api:mallory"}}
    assert found.moves == (MisfiledMessages("agent-main-api-api-own", "333", "api-333"),)
    assert found.accounts["telegram:444"] == "444"
    now = Identities("ann", "bot", aliases={"friend": "fred"}, guests=found)
    peers = {
        account: find_peer(now, Speaker(account.partition(":")[2]), None, account.partition(":")[0]).name
        for account in ("api:eve", "api:333", "telegram:333", "api:friend", "telegram:friend", "telegram:222")
    }
    assert peers == {
        "api:eve": "eve",
        "api:333": "api-333",
        "telegram:333": "333",
        "api:friend": "fred",
        "telegram:friend": "friend",
        "telegram:222": "222",
    }


@pytest.mark.contract("5.7")
def test_a_home_without_telegram_keeps_every_name_of_its_api_guests() -> None:
    found = migrate_guests(Identities("ann", "bot"), "lab", [one for one in EARLIER if one.platform == "api"], [])
    assert (found.first, found.kept, found.moves) == ("api", {}, ())


API_PROFILE, TELEGRAM_PROFILE = EARLIER[2:4], EARLIER[4:]


@pytest.mark.contract("5.7")
@pytest.mark.parametrize(
    ("profiles", "kept", "moves"),
    [
        ((TELEGRAM_PROFILE, API_PROFILE), {"api:eve": "eve"}, [("agent-main-api-api-own", "333", "api-333")]),
        (
            (API_PROFILE, TELEGRAM_PROFILE),
            {"telegram:222": "222"},
            [("agent-main-telegram-dm-333", "333", "telegram-333")],
        ),
    ],
    ids=["Telegram first", "API first"],
)
def test_a_second_profile_of_an_earlier_home_loses_no_guest_and_mixes_none(
    profiles: tuple[list[Conversation], ...], kept: dict[str, str], moves: list[tuple[str, str, str]]
) -> None:
    record = GuestRecord()
    for told in profiles:
        found = migrate_guests(Identities("ann", "bot", guests=record), "lab", told, [])
        record = join_records(record, found)
    assert record.kept == kept
    assert record.moves == tuple(MisfiledMessages(*move) for move in moves)


@pytest.mark.contract("5.7")
def test_conversations_of_this_version_are_not_carried_over() -> None:
    eve = chat("api", "eve", "agent-main-api-api-diary-0123456789abcdef", "agent:main:api:api:diary")
    eve = replace(eve, bound={**eve.bound, "platform": "api"})
    known = GuestRecord("telegram", {"telegram:222": "222", "api:eve": "api-eve"})
    found = migrate_guests(Identities("ann", "bot", guests=known), "lab", [eve], [Acquaintance("telegram", "222")])
    assert join_records(known, found) == known


@pytest.mark.contract("5.7")
def test_the_record_of_guests_is_for_its_owner_alone_and_bounded(tmp_path: Path) -> None:
    path = tmp_path / "honcho-guests.json"
    edit_guests(path, "lab", lambda known: add_account(known, "telegram:17", "17"))
    edit_guests(path, "other", lambda known: known)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert read_guests(path, "lab").accounts == {"telegram:17": "17"}
    assert read_guests(path, "nowhere") == GuestRecord()
    full = GuestRecord("api", {account_name("api", str(number)): "x" for number in range(MAX_ACCOUNTS)})
    assert add_account(full, "api:new", "new") is full
    assert full.lists("api:new", "new")


@pytest.mark.contract("5.3", "5.7")
@pytest.mark.parametrize("text", ["{", '{"workspaces": {"lab": {"kept": 7}}}', "\0"])
def test_invalid_record_of_guests_is_reported_and_renames_nobody(tmp_path: Path, text: str) -> None:
    path = tmp_path / "honcho-guests.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(SettingsError, match="is invalid"):
        read_guests(path, "lab")
    with pytest.raises(SettingsError):
        edit_guests(path, "lab", lambda known: known)
    assert path.read_text(encoding="utf-8") == text


@pytest.mark.contract("9.11")
@pytest.mark.processes
def test_what_a_peer_said_in_one_session_becomes_anothers(server: Served, workspace: str) -> None:
    with inside(server, workspace) as http:
        for session, text in (("one", "My cat is called Miezi."), ("two", "My dog is called Rex.")):
            http.post("/sessions", json={"id": session, "peers": {"333": {}, "bot": {"observe_others": True}}})
            say(http, session, text, peer="333")
            say(http, session, "Noted.", peer="bot")
        settle(http)
        assert http.post("/ext/sessions/two/peers/333/move", json={"to": "api-333"}).json() == {"moved": True}
        assert http.post("/ext/sessions/two/peers/333/move", json={"to": "api-333"}).json() == {"moved": True}
        settle(http)
        authors = {
            name: {one["peer_id"] for one in http.post(f"/sessions/{name}/messages/list").json()["items"]}
            for name in ("one", "two")
        }
        assert authors == {"one": {"333", "bot"}, "two": {"api-333", "bot"}}
        members = {one["id"] for one in http.get("/sessions/two/peers").json()["items"]}
        assert members == {"api-333", "bot"}
        about = {peer: held(http, "bot", target=peer) for peer in ("333", "api-333")}
        assert ("Miezi" in about["333"], "Rex" in about["333"]) == (True, False)
        assert ("Miezi" in about["api-333"], "Rex" in about["api-333"]) == (False, True)
        for peer, word in (("333", "Rex"), ("api-333", "Miezi")):
            hits = http.post(f"/peers/{peer}/search", json={"query": word}).json()
            assert not [one for one in hits if word in one["content"]]
        assert http.post("/ext/sessions/none/peers/333/move", json={"to": "x"}).status_code == 404
        assert http.post("/ext/sessions/two/peers/bot/move", json={"to": "bot"}).status_code == 422
