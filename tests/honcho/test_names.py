"""The name of a conversation's session: each rule of the chain, and properties of every name."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.honcho.names import Naming, Whereabouts, clean, find_repository, fit, name_session
from hermes.slash.acts import KEEPS_NAME
from tests.honcho.configuring import Machine
from tests.slash.surfaces import ask, at_terminal, say

NAME = re.compile(r"[A-Za-z0-9_-]{1,100}")
KEY = "agent:main:telegram:dm:8439114563"
ID = "20260415_101500_a3f2b1cc"
SRC, REPO = Path("/code/hermes-agent/src"), Path("/code/hermes-agent")


def naming(strategy: str = "per-directory", **given: Any) -> Naming:
    return Naming(**{"strategy": strategy, "workspace": "hermes", "manual": {}, **given})


def sha(text: str, length: int = 8) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:length]


MAPPED: dict[str, Any] = {"manual": {str(SRC): "myproject-main"}}
HERE = Whereabouts(ID, None, SRC, REPO)
CHAIN = [
    # a gateway's key comes first, whatever else there is
    (naming("per-directory"), Whereabouts(ID, KEY), "agent-main-telegram-dm-8439114563", "gateway key"),
    (naming("per-session"), Whereabouts(ID, KEY), "agent-main-telegram-dm-8439114563", "gateway key"),
    (naming("global"), Whereabouts(ID, KEY), "agent-main-telegram-dm-8439114563", "gateway key"),
    (naming(**MAPPED), Whereabouts(ID, KEY, SRC, title="T"), "agent-main-telegram-dm-8439114563", "gateway key"),
    (naming(), Whereabouts(ID, ":::", SRC), "src", "directory"),
    # the id under per-session: no map and no title moves it
    (naming("per-session"), HERE, ID, "session id"),
    (naming("per-session", **MAPPED), Whereabouts(ID, None, SRC, title="refactor auth"), ID, "session id"),
    (naming("per-session"), Whereabouts(None, None, SRC), "src", "directory"),
    (naming("per-session", **MAPPED), Whereabouts(None, None, SRC), "myproject-main", "map"),
    # by hand, then by title
    (naming(**MAPPED), Whereabouts(ID, None, SRC, title="refactor auth"), "myproject-main", "map"),
    (naming("global", **MAPPED), HERE, "myproject-main", "map"),
    (naming(), Whereabouts(ID, None, SRC, title="refactor-auth"), "refactor-auth", "title"),
    (naming(), Whereabouts(ID, None, SRC, title="Fix: the café!"), "Fix-the-caf", "title"),
    (naming(), Whereabouts(ID, None, SRC, title="会话"), "src", "directory"),
    (naming("per-repo"), Whereabouts(ID, None, SRC, REPO, "refactor-auth"), "refactor-auth", "title"),
    # by strategy
    (naming("per-repo"), HERE, "hermes-agent", "repository"),
    (naming("per-repo"), Whereabouts(ID, None, SRC), "src", "directory"),
    (naming("per-repo"), Whereabouts(ID, None, SRC, Path("/会")), "src", "directory"),
    (naming(), HERE, "src", "directory"),
    (naming("global"), HERE, "hermes", "workspace"),
    # directories without a name, and no directory at all
    (naming(), Whereabouts(ID, None, Path("/")), f"directory-{sha('/')}", "directory"),
    (naming(), Whereabouts(ID, None, Path("/会")), f"directory-{sha('/会')}", "directory"),
    (naming(), Whereabouts(ID), ID, "session id"),
    (naming("global"), Whereabouts(ID), ID, "session id"),
    (naming("per-repo"), Whereabouts("web 1", title="T"), f"web-1-{sha('web 1', 16)}", "session id"),
    (naming(), Whereabouts(None), "hermes", "workspace"),
]


@pytest.mark.contract("5.9")
@pytest.mark.parametrize(("how", "place", "name", "source"), CHAIN)
def test_the_first_source_that_has_a_name_gives_it(how: Naming, place: Whereabouts, name: str, source: str) -> None:
    found = name_session(how, place, "alice")
    assert (found.name, found.source) == (name, source)


@pytest.mark.contract("5.10")
@pytest.mark.parametrize(("how", "place", "name", "source"), CHAIN)
def test_the_peers_name_goes_before_all_but_manual_names_and_the_workspace(
    how: Naming, place: Whereabouts, name: str, source: str
) -> None:
    prefixed = Naming(how.strategy, how.workspace, how.manual, peer_prefix=True)
    expected = name if source in ("map", "workspace") else f"alice-{name}"
    assert name_session(prefixed, place, "alice").name == expected


@pytest.mark.contract("5.9")
def test_a_title_given_later_changes_no_name_that_a_key_or_an_id_gave() -> None:
    for how, place in ((naming(), Whereabouts(ID, KEY)), (naming("per-session"), HERE), (naming(), Whereabouts(ID))):
        titled = Whereabouts(place.session_id, place.gateway_key, place.directory, place.repository, "Another name")
        assert name_session(how, titled, "a") == name_session(how, place, "a")


@pytest.mark.contract("5.11")
def test_new_keeps_a_chats_session_unless_it_is_to_rotate() -> None:
    first, second = Whereabouts("s1", KEY), Whereabouts("s2", KEY)
    assert name_session(naming(), first, "a") == name_session(naming(), second, "a")
    rotating = naming(rotate=True)
    names = {name_session(rotating, place, "a").name for place in (first, second)}
    assert names == {f"{clean(KEY)}-{sha('s1')}", f"{clean(KEY)}-{sha('s2')}"}
    assert name_session(naming("per-session", rotate=True), HERE, "a").name == ID


@pytest.mark.contract("5.10")
def test_only_a_name_over_a_hundred_characters_is_cut_and_hashed() -> None:
    assert fit("a" * 100) == "a" * 100
    assert fit("a" * 101) == "a" * 91 + "-" + sha("a" * 101)
    assert fit(f"{'a' * 60}:{'b' * 60}") == f"{'a' * 60}-{'b' * 30}-{sha('a' * 60 + ':' + 'b' * 60)}"
    assert fit("::a" + ":" * 200 + "b::") == "a-b"


def test_the_repository_is_the_folder_that_has_git(tmp_path: Path) -> None:
    inside = tmp_path / "repo" / "src" / "deep"
    inside.mkdir(parents=True)
    assert find_repository(inside) is None or find_repository(inside) in tmp_path.parents
    (tmp_path / "repo" / ".git").write_text("gitdir: elsewhere", encoding="utf-8")
    assert find_repository(inside) == tmp_path / "repo"


TEXTS = st.none() | st.text(max_size=150)
PLACES = st.builds(
    Whereabouts,
    TEXTS,
    TEXTS,
    st.none() | st.text("ab/会.", max_size=20).map(lambda end: Path(f"/{end}")),
    st.none() | st.just(REPO),
    TEXTS,
)
NAMINGS = st.builds(
    Naming,
    st.sampled_from(["per-directory", "per-session", "per-repo", "global"]),
    st.text("ab09_-", min_size=1, max_size=100).filter(clean),
    st.dictionaries(st.text("~/ab", max_size=4), st.text(max_size=5), max_size=3),
    st.booleans(),
    st.booleans(),
)


@pytest.mark.contract("5.9", "5.10")
@given(how=NAMINGS, place=PLACES, peer=st.text("ab09_-", min_size=1, max_size=100))
def test_every_place_has_a_valid_name_and_always_the_same(how: Naming, place: Whereabouts, peer: str) -> None:
    found = name_session(how, place, peer)
    assert NAME.fullmatch(found.name)
    assert found == name_session(how, place, peer)


@pytest.mark.contract("5.10")
@given(start=st.text("ab", min_size=101, max_size=120), one=st.text(max_size=9), other=st.text(max_size=9))
def test_two_long_keys_never_share_a_session(start: str, one: str, other: str) -> None:
    names = {name_session(naming(), Whereabouts(ID, f"{start}{end}"), "a").name for end in (one, other)}
    assert len(names) == len({one, other})


@pytest.mark.contract("5.9")
async def test_a_title_given_later_says_that_memory_keeps_the_name_it_has(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "honcho.json").write_text('{"baseUrl": "http://127.0.0.1:9"}', encoding="utf-8")
    monkeypatch.chdir(machine.folder)
    async with at_terminal(home, memory__provider="honcho", memory__first_deadline=0, memory__deadline=0) as talking:
        assert await ask(talking, "/title Stamps") == "Title: Stamps", "it names the session that begins"
        await say(talking, "hello")
        assert await ask(talking, "/title Coins") == f"Title: Coins\n{KEEPS_NAME}"
    async with at_terminal(tmp_path / "without", memory__provider="none") as talking:
        await say(talking, "hello")
        assert await ask(talking, "/title Coins") == "Title: Coins"
