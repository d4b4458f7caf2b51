"""`hermes memory model`: set, test and show the model; and the question whether memory may use the chat model."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from hermes.cli.memory_learning import NO_DREAM
from hermes.errors import SettingsError
from hermes.memory_server.db.schema import FILE as MEMORY_FILE
from hermes.memory_server.model.settings import FILE, NO_URL, OPENAI_URL, ModelSettings
from hermes.types import Json
from tests.cli.screen import CTRL_D, ENTER, Screen, plain_env
from tests.conftest import Ran
from tests.llm.beside import beside
from tests.llm.loopback import Answer, LoopbackServer, fails, says
from tests.memory_server.serving import inside, running
from tests.memory_server.talking import conclude, say, settle

Hermes = Callable[..., Ran]
KEY = "sk-only-for-this-test"


@pytest.fixture
def folder(home: Path) -> Path:
    return home / "memory"


def saved(folder: Path) -> Json:
    return json.loads((folder / FILE).read_text(encoding="utf-8"))


def counted(folder: Path) -> list[tuple[int, str, str]]:
    """Return the counted requests: workspace, purpose and outcome."""
    with closing(sqlite3.connect(folder / MEMORY_FILE)) as file:
        return file.execute("SELECT workspace_id, purpose, outcome FROM model_calls ORDER BY id").fetchall()


@pytest.mark.contract("9.3")
def test_a_model_is_tested_kept_for_its_owner_alone_and_shown_without_its_key(
    hermes: Hermes, folder: Path, tmp_path: Path
) -> None:
    (tmp_path / "key").write_text(KEY + "\n", encoding="utf-8")
    with beside(LoopbackServer(then=says("ready"))) as server:
        ran = hermes(
            "memory", "model", "--url", server.base_url, "--name", "loop-1", "--key-file", str(tmp_path / "key"),
            "--cap-calls", "7", "--class", "point",
        )  # fmt: skip
        assert server.requests[0].headers["authorization"] == f"Bearer {KEY}"
        assert hermes("memory", "model", "--test").code == 0
        assert len(server.requests) == 2
    assert counted(folder) == [(0, "self_test", "ok")] * 2
    assert (ran.code, ran.err) == (0, "")
    assert "loop-1 answers" in ran.out
    assert (folder / FILE).stat().st_mode & 0o777 == 0o600
    assert saved(folder)["cap_calls"] == 7
    shown = hermes("memory", "model")
    told = json.loads(hermes("memory", "model", "--json").out)
    assert (told["name"], told["has_key"], told["cap_calls"], told["model_class"]) == ("loop-1", True, 7, "point")
    assert KEY not in ran.out + shown.out + json.dumps(told)
    assert "7 calls" in shown.out


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (fails(401, "no such key"), "check the key"),
        (fails(404, "no model x", code="model_not_found"), "check the model's name"),
        (fails(400, "not a chat model"), "not a chat model"),
        (Answer(body="<html><title>Shop</title></html>"), "check the URL"),
    ],
    ids=["key", "model", "no chat model", "no endpoint"],
)
def test_a_model_that_does_not_answer_is_not_taken(hermes: Hermes, folder: Path, answer: Answer, said: str) -> None:
    with beside(LoopbackServer(then=says("ready"))) as good:
        hermes("memory", "model", "--url", good.base_url, "--name", "good")
    before = saved(folder)
    with beside(LoopbackServer(then=answer)) as server:
        ran = hermes("memory", "model", "--url", server.base_url, "--name", "x")
        assert (ran.code, said in ran.err, "Nothing was changed" in ran.err) == (1, True, True), ran.err
        assert saved(folder) == before
        assert hermes("memory", "model", "--url", server.base_url, "--name", "x", "--no-test").code == 0
        tested = hermes("memory", "model", "--test")
    assert (tested.code, said in tested.err) == (1, True)
    assert saved(folder)["name"] == "x"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--url", "ftp://here"], "not the URL of a model endpoint"),
        (["--url", "http://127.0.0.1:9/v1"], "refuses the connection"),
        (["--url", "http://127.0.0.1:9/v1", "--window", "0"], "1,024 to"),
        (["--url", "http://127.0.0.1:9/v1", "--window", "wide"], "not a number of tokens"),
        (["--url", "http://127.0.0.1:9/v1", "--cap-calls", "0"], "`cap_calls` is 0; allowed is 1 or more"),
        (["--url", "http://127.0.0.1:9/v1", "--key-env", "NOT_SET_ANYWHERE"], "which is not set"),
        (["--url", "http://127.0.0.1:9/v1", "--off"], "exclude each other"),
        (["--host"], "no model is configured"),
        (["--env", "--no-test"], NO_URL),
    ],
)
def test_bad_input_is_refused_by_name_and_nothing_is_written(
    hermes: Hermes, folder: Path, options: list[str], said: str
) -> None:
    ran = hermes("memory", "model", *options)
    assert ran.code != 0
    assert said in ran.err
    assert not (folder / FILE).exists()


def test_a_key_is_not_sent_to_another_place_than_it_was_given_for(hermes: Hermes, tmp_path: Path) -> None:
    (tmp_path / "key").write_text(KEY, encoding="utf-8")
    with beside(LoopbackServer(then=says("ready"))) as first, beside(LoopbackServer(then=says("ready"))) as second:
        hermes("memory", "model", "--url", first.base_url, "--key-file", str(tmp_path / "key"), "--name", "a")
        hermes("memory", "model", "--url", second.base_url)
        assert "authorization" in first.requests[0].headers
        assert "authorization" not in second.requests[0].headers


def test_one_workspace_may_differ(hermes: Hermes, folder: Path) -> None:
    hermes("memory", "model", "--url", "http://127.0.0.1:9/v1", "--name", "a", "--no-test")
    assert hermes("memory", "model", "--workspace", "shop", "--off").code == 0
    assert saved(folder)["workspaces"] == {"shop": {"source": "off"}}
    assert json.loads(hermes("memory", "model", "--json").out)["source"] == "own"


def test_the_model_of_the_chat_is_used_after_a_yes_and_followed(hermes: Hermes, home: Path, folder: Path) -> None:
    hermes("config", "set", "model.base_url", "http://127.0.0.1:9/v1")
    hermes("config", "set", "model.default", "tea-1")
    assert hermes("memory", "model", "--host", "--guests", "on", "--no-test").code == 0
    assert (saved(folder)["source"], saved(folder)["name"]) == ("host", "tea-1")
    hermes("config", "set", "model.default", "tea-2")
    hermes("chat")
    assert (saved(folder)["name"], saved(folder)["guests"]) == ("tea-2", True)


def test_a_file_that_others_can_read_is_not_used(hermes: Hermes, folder: Path) -> None:
    folder.mkdir(parents=True)
    (folder / FILE).write_text(json.dumps({"source": "own", "url": "http://127.0.0.1:9/v1", "key": KEY}))
    (folder / FILE).chmod(0o644)
    ran = hermes("memory", "model")
    assert (ran.code, "can be read by others" in ran.err, KEY in ran.err) == (2, True, False)


@pytest.mark.processes
@pytest.mark.parametrize(("typed", "source"), [("y", "host"), ("n", None)])
@pytest.mark.contract("9.3")
def test_a_person_is_asked_once_whether_memory_may_use_the_model(
    home: Path, folder: Path, typed: str, source: str | None
) -> None:
    folder.mkdir(parents=True)
    (folder / "memory.db").touch()
    with beside(LoopbackServer(then=says("hello"))) as server:
        env = {**plain_env(home), "OPENAI_BASE_URL": server.base_url, "HERMES_MODEL": "loop-1"}
        with Screen("chat", env=env) as screen:
            screen.wait_for("May memory use it?").type(f"{typed}{ENTER}")
            screen.wait_for_prompt().type(CTRL_D)
            assert screen.ended() == 0
        assert saved(folder).get("source") == source
        with Screen("chat", env=env) as screen:
            screen.wait_for_prompt()
            assert "May memory" not in "\n".join(screen.rows)
            screen.type(CTRL_D)
            assert screen.ended() == 0


@pytest.mark.contract("5.3", "9.3")
@pytest.mark.parametrize(
    ("written", "said"),
    [
        ('{"source": "own", "url": "http://127.0.0.1:9/v1", "window": 0}', "`window` is 0; allowed are 1,024 to"),
        ('{"source": "own", "url": "http://127.0.0.1:9/v1", "cap_calls": "many"}', "$.cap_calls"),
        ('{"source": "own", "url": "http://127.0.0.1:9/v1", "cap_call": 5}', "unknown field `cap_call`"),
        ('{"source": "own", "url": "ftp://here"}', "ftp://here"),
        (
            '{"source": "own", "url": "http://127.0.0.1:9/v1", "workspaces": {"shop": {"window": 3}}}',
            "workspace 'shop'",
        ),
        ("{broken", "malformed"),
    ],
)
def test_a_file_that_cannot_be_used_is_named_and_can_be_replaced(
    hermes: Hermes, folder: Path, written: str, said: str
) -> None:
    folder.mkdir(parents=True)
    (folder / FILE).touch(0o600)
    (folder / FILE).write_text(written, encoding="utf-8")
    shown = hermes("memory", "model")
    assert (shown.code, said in shown.err, str(folder / FILE) in shown.err) == (2, True, True), shown.err
    assert hermes("memory", "model", "--cap-calls", "5").code == 2
    assert (folder / FILE).read_text(encoding="utf-8") == written, "what a person wrote is not overwritten in passing"
    assert hermes("memory", "model", "--off").code == 0
    assert hermes("memory", "model").code == 0


def test_a_key_from_the_environment_goes_to_the_address_that_it_belongs_to() -> None:
    asked = ModelSettings(source="env")
    ours = {"HERMES_MEMORY_MODEL_URL": "http://127.0.0.1:9/v1"}
    theirs = {"LLM_OPENAI_COMPATIBLE_BASE_URL": "http://127.0.0.1:8/v1", "LLM_OPENAI_COMPATIBLE_API_KEY": "theirs"}
    cloud = {"LLM_OPENAI_API_KEY": "cloud"}

    def found(env: dict[str, str]) -> tuple[str, str]:
        settings = asked.resolved(env)
        return settings.url, settings.key

    assert found({**ours, **theirs, **cloud}) == ("http://127.0.0.1:9/v1", "")
    assert found({**ours, **cloud, "HERMES_MEMORY_MODEL_KEY": "ours"}) == ("http://127.0.0.1:9/v1", "ours")
    assert found({**theirs, **cloud}) == ("http://127.0.0.1:8/v1", "theirs")
    assert found(cloud) == (OPENAI_URL, "cloud")
    with pytest.raises(SettingsError, match=NO_URL):
        found({})


def test_a_workspace_elsewhere_does_not_get_the_key_of_the_folder() -> None:
    here, there = "http://127.0.0.1:9/v1", "http://127.0.0.1:8/v1"
    spaces = {"same": {"name": "b"}, "else": {"url": there}, "own": {"url": there, "key": "other"}}
    settings = ModelSettings(source="own", url=here, key=KEY, workspaces=spaces)
    assert {name: settings.for_workspace(name).key for name in spaces} == {"same": KEY, "else": "", "own": "other"}


@pytest.mark.processes
def test_dreams_are_shown_and_undone(hermes: Hermes, folder: Path) -> None:
    assert NO_DREAM in hermes("memory", "dreams").err
    with running(folder) as served, inside(served, "lab") as http:
        say(http, "s", "I run every morning.")
        settle(http)
        conclude(http, "Ann has a dog.", "Ann has a dog.", session="s")
        http.post("/schedule_dream", json={"observer": "ann", "dream_type": "omni"}).raise_for_status()
        settle(http)
        shown = hermes("memory", "dreams")
        [dream] = json.loads(hermes("memory", "dreams", "--json").out)
        assert dream["id"] in shown.out
        assert "retired: Ann has a dog." in shown.out
        assert "undone" in hermes("memory", "dreams", "--undo", dream["id"]).out
        with closing(sqlite3.connect(folder / MEMORY_FILE)) as file:
            retired = file.execute("SELECT count(*) FROM conclusions WHERE retired_at IS NOT NULL")
            assert retired.fetchone() == (0,)
    refused = hermes("memory", "dreams", "--undo", "nothing")
    assert (refused.code, "no dream 'nothing'" in refused.err) == (2, True)
