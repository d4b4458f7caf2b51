"""The peers of speakers: each rule of the ladder, and properties of every id."""

from __future__ import annotations

import hashlib
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.honcho.identity import HASH_LENGTHS, Identities, find_peer
from hermes.memory.provider import Speaker

PLAIN = Identities(owner="ann", ai="hermes")
NAME = re.compile(r"[A-Za-z0-9_-]{1,100}")
GUEST, OWNER_ABROAD, TERMINAL = Speaker("7654321", "@bob"), Speaker("17", "@ann", is_owner=True), Speaker(is_owner=True)


def sha(text: str, length: int = 8) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:length]


def who(**given: object) -> Identities:
    return Identities(**{"owner": "ann", "ai": "hermes", **given})  # type: ignore[arg-type]


@pytest.mark.contract("5.6")
@pytest.mark.parametrize(
    ("identities", "speaker", "key", "peer", "rung"),
    [
        (who(pin=True, aliases={"17": "x"}), OWNER_ABROAD, None, "ann", "pin"),
        (who(pin=True), TERMINAL, None, "ann", "pin"),
        (who(pin=True), GUEST, None, "7654321", "id"),
        (who(pin=True, aliases={"7654321": "bob"}), GUEST, None, "bob", "alias"),
        (who(pin=True, pin_guests=True), GUEST, None, "ann", "pin"),
        (who(pin_guests=True), GUEST, None, "7654321", "id"),
        (who(aliases={"7654321": "bob", "@bob": "other"}), GUEST, None, "bob", "alias"),
        (who(aliases={"@bob": "bob"}), GUEST, None, "bob", "alias of the other id"),
        (who(aliases={"7654321": "ann"}), GUEST, None, "ann", "alias"),
        (who(aliases={"17": "work"}), OWNER_ABROAD, None, "work", "alias"),
        (who(), OWNER_ABROAD, None, "ann", "owner"),
        (who(prefix="telegram_"), OWNER_ABROAD, None, "ann", "owner"),
        (who(), TERMINAL, None, "ann", "owner"),
        (who(prefix="telegram_"), GUEST, None, "telegram_7654321", "prefix"),
        (who(), GUEST, None, "7654321", "id"),
        (who(), Speaker("@ann:b.org"), None, f"-ann-b-org-{sha('@ann:b.org')}", "id"),
        (
            who(),
            None,
            "agent:main:x:group:1",
            f"user-agent-main-x-group-1-{sha('user-agent:main:x:group:1')}",
            "session",
        ),
        (who(), Speaker(""), "agent:main:x:dm:1", f"user-agent-main-x-dm-1-{sha('user-agent:main:x:dm:1')}", "session"),
        (who(), None, None, "user-unknown", "unknown"),
        (who(), Speaker(), "20260101_1", "user-20260101_1", "session"),
    ],
)
def test_the_first_rung_that_applies_names_the_peer(
    identities: Identities, speaker: Speaker | None, key: str | None, peer: str, rung: str
) -> None:
    found = find_peer(identities, speaker, key)
    assert (found.name, found.rung) == (peer, rung)


@pytest.mark.contract("5.7")
@pytest.mark.parametrize(
    ("identities", "raw", "expected"),
    [
        (PLAIN, "ann", f"ann-{sha('ann')}"),
        (PLAIN, "hermes", f"hermes-{sha('hermes')}"),
        (who(aliases={"1": "bob"}), "bob", f"bob-{sha('bob')}"),
        (PLAIN, "@a:b", f"-a-b-{sha('@a:b')}"),
        (PLAIN, "@a-b", f"-a-b-{sha('@a-b')}"),
        (PLAIN, "a-b", "a-b"),
        (PLAIN, "-5", "-5"),
        (who(prefix="tg_"), "@a:b", "tg_-a-b-aeba4cc2"),
        (who(prefix="tg:"), "17", "tg-17-8f0d48de"),
        (who(prefix="tg_", aliases={"1": "tg_17"}), "17", "tg_17-606b5872"),
        (PLAIN, "bob-0123abcd", f"bob-0123abcd-{sha('bob-0123abcd')}"),
        (PLAIN, "会话", f"---{sha('会话')}"),
        (PLAIN, "x" * 100, "x" * 100),
        (PLAIN, "x" * 101, "x" * 91 + f"-{sha('x' * 101)}"),
        (who(prefix="tg_"), "x" * 98, "tg_" + "x" * 88 + f"-{sha('tg_' + 'x' * 98)}"),
        (who(aliases={"1": f"-a-b-{sha('@a:b')}"}), "@a:b", f"-a-b-{sha('@a:b', 12)}"),
        (
            who(aliases={str(n): f"-a-b-{sha('@a:b', n)}" for n in (8, 12, 16, 24, 32)}),
            "@a:b",
            f"-a-b-{sha('@a:b', 64)}"[:100],
        ),
    ],
)
def test_an_id_that_cannot_stand_as_it_is_gets_a_hash(identities: Identities, raw: str, expected: str) -> None:
    assert find_peer(identities, Speaker(raw)).name == expected


@pytest.mark.contract("5.8")
def test_in_a_group_each_speaker_is_a_peer_of_their_own() -> None:
    said = [Speaker("1"), Speaker("2"), Speaker("3", is_owner=True)]
    assert [find_peer(PLAIN, one, "agent:main:telegram:group:-1").name for one in said] == ["1", "2", "ann"]


IDS = st.text(min_size=1, max_size=130) | st.text("ab:-_@0", min_size=1, max_size=6)
NAMES = st.text("abAB09_-", min_size=1, max_size=8)
IDENTITIES = st.builds(
    Identities,
    owner=NAMES,
    ai=NAMES,
    pin=st.booleans(),
    pin_guests=st.just(False),
    aliases=st.dictionaries(IDS, NAMES, max_size=4),
    prefix=st.text("abAB09_-", max_size=50),
)


@pytest.mark.contract("5.6", "5.7")
@given(identities=IDENTITIES, one=IDS, other=IDS)
def test_two_guests_never_share_a_peer_nor_have_a_configured_one(identities: Identities, one: str, other: str) -> None:
    first, second = find_peer(identities, Speaker(one)), find_peer(identities, Speaker(other))
    assert first == find_peer(identities, Speaker(one))
    unaliased = [(raw, peer.name) for raw, peer in ((one, first), (other, second)) if raw not in identities.aliases]
    assert all(name not in identities.taken for _, name in unaliased)
    assert len({name for _, name in unaliased}) == len({raw for raw, _ in unaliased})


@pytest.mark.contract("5.7")
@given(
    identities=IDENTITIES,
    speaker=st.none() | st.builds(Speaker, st.none() | st.text(), st.none() | st.text(), is_owner=st.booleans()),
    key=st.none() | st.text(),
)
def test_every_speaker_has_a_peer_with_a_valid_name(
    identities: Identities, speaker: Speaker | None, key: str | None
) -> None:
    assert NAME.fullmatch(find_peer(identities, speaker, key).name)


def test_the_hashes_grow_up_to_a_whole_one() -> None:
    assert HASH_LENGTHS == (8, 12, 16, 24, 32, 64)
