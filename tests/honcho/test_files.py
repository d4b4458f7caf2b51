"""`hermes honcho identity` and `migrate`, and `peers map`, against a real server."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hermes.honcho.names import fit
from tests.conftest import Ran
from tests.honcho.asking import Person
from tests.memory_server.serving import Served, running

Hermes = Callable[..., Ran]


@pytest.fixture(scope="module")
def served(processes: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """The URL of a Honcho server of our kind."""
    with running(tmp_path_factory.mktemp("memory")) as server:
        yield server


@pytest.fixture
def workspace(home: Path, hermes: Hermes, served: Served, request: pytest.FixtureRequest) -> str:
    """A home with Honcho on that server, in a separate workspace."""
    name = fit(str(request.node.name))
    options = ("--server", "self-hosted", "--url", served.url, "--workspace", name, "--user", "ann", "--ai", "bot")
    assert hermes("memory", "setup", "honcho", "--yes", *options).code == 0
    return name


def conclusions(served: Served, workspace: str, observed: str) -> set[str]:
    with served.client() as client:
        body = {"filters": {"observer_id": "bot", "observed_id": observed}}
        found = client.post(f"/v3/workspaces/{workspace}/conclusions/list", json=body).json()
    return {one["content"] for one in found["items"]}


@pytest.mark.contract("10.3")
def test_notes_are_stored_once_over_repeated_runs(home: Path, hermes: Hermes, served: Served, workspace: str) -> None:
    (home / "memories").mkdir()
    (home / "memories" / "USER.md").write_text("Likes figs\n§\nLives in Graz\nnear the river", encoding="utf-8")
    (home / "SOUL.md").write_text("# Bot\n\nYou are kind.\n\nYou are brief.\n", encoding="utf-8")
    alone = hermes("honcho", "migrate")
    assert (alone.code, "`--yes` goes on without asking" in alone.err) == (2, True)
    first = hermes("honcho", "migrate", "--yes")
    assert first.code == 0, first.err
    assert conclusions(served, workspace, "ann") == {"Likes figs", "Lives in Graz near the river"}
    assert conclusions(served, workspace, "bot") == {"# Bot", "You are kind.", "You are brief."}
    (home / "memories" / "MEMORY.md").write_text("Uses uv\n", encoding="utf-8")
    again = hermes("honcho", "migrate", "--yes", "--json")
    assert [(Path(one["file"]).name, one["about"], one["told"], one["known"]) for one in json.loads(again.out)] == [
        ("USER.md", "ann", 0, 2),
        ("MEMORY.md", "ann", 1, 0),
        ("SOUL.md", "bot", 0, 3),
    ]
    assert conclusions(served, workspace, "ann") == {"Likes figs", "Lives in Graz near the river", "Uses uv"}


@pytest.mark.contract("10.3")
@pytest.mark.parametrize(
    ("note", "told"),
    [
        ("Likes figs\n§\nLives in Graz\r\nnear the river\r\n§\n", {"Likes figs", "Lives in Graz near the river"}),
        (
            "# About me\n\n- Likes figs\n- Lives in Graz\n  near the river\n",
            {"Likes figs", "Lives in Graz near the river"},
        ),
        ("- Likes figs\n- Sings\n§\nUses uv", {"Likes figs", "Sings", "Uses uv"}),
        ("Likes figs\n\nLives in Graz", {"Likes figs", "Lives in Graz"}),
    ],
    ids=["sections", "Markdown", "both", "paragraphs"],
)
def test_each_entry_of_a_note_is_stored_separately_in_either_format(
    home: Path, hermes: Hermes, served: Served, workspace: str, note: str, told: set[str]
) -> None:
    (home / "memories").mkdir()
    (home / "memories" / "MEMORY.md").write_bytes(note.encode())
    ran = hermes("honcho", "migrate", "--yes")
    assert ran.code == 0, ran.err
    assert conclusions(served, workspace, "ann") == told


@pytest.mark.contract("10.3")
def test_too_long_entry_is_an_error_before_anything_is_sent(home: Path, hermes: Hermes, workspace: str) -> None:
    (home / "memories").mkdir()
    (home / "memories" / "MEMORY.md").write_text("x" * 60_001, encoding="utf-8")
    ran = hermes("honcho", "migrate", "--yes")
    assert (ran.code, "has an entry of more than 60,000 characters" in ran.err) == (1, True)


@pytest.mark.contract("10.3")
def test_agents_identity_is_stored_from_a_file_and_shown(
    home: Path, hermes: Hermes, served: Served, workspace: str, tmp_path: Path
) -> None:
    missing = hermes("honcho", "identity")
    assert (missing.code, "SOUL.md" in missing.err) == (1, True)
    assert "knows nothing of bot yet" in " ".join(hermes("honcho", "identity", "--show").out.split())
    (tmp_path / "me.md").write_text("You are brave.\n", encoding="utf-8")
    assert "1 stored, 0 known already" in hermes("honcho", "identity", str(tmp_path / "me.md")).out
    told = json.loads(hermes("honcho", "identity", "--show", "--json").out)
    assert told["agent"] == "bot"
    assert "brave" in told["representation"]


@pytest.mark.contract("5.6")
def test_on_our_own_server_what_is_known_of_the_old_peer_becomes_the_new_ones(
    home: Path, hermes: Hermes, served: Served, workspace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = f"/v3/workspaces/{workspace}"
    with served.client() as client:
        for peer in ("bot", "17", "bea"):
            client.post(f"{root}/peers", json={"id": peer}).raise_for_status()
        facts = [{"content": text, "observer_id": "bot", "observed_id": "17"} for text in ("a", "b")]
        client.post(f"{root}/conclusions", json={"conclusions": facts}).raise_for_status()
        person = Person("merge").sits_down(monkeypatch)
        assert hermes("honcho", "peers", "map", "17", "bea").code == 0
        assert person.heard[0].startswith("17 has 0 messages, and 2 conclusions concern it.")
        until = time.monotonic() + 120
        while client.get(f"{root}/ext/merges").json()["items"][0]["state"] != "done":
            assert time.monotonic() < until, "the merge is not done"
            time.sleep(0.2)
    assert conclusions(served, workspace, "bea") == {"a", "b"}
