"""Summaries and dreams with a model, through the official SDK; killed midway, capped, and undone."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from honcho import Honcho

from tests.llm.beside import beside
from tests.llm.loopback import Answer, LoopbackServer, fails, says
from tests.memory_server.modelling import write_model
from tests.memory_server.serving import Served, inside, start, stop
from tests.memory_server.talking import conclude, held, say, settle

pytestmark = [pytest.mark.processes, pytest.mark.contract("9.3")]
NOTHING_DRAWN = says('{"conclusions": []}')


@pytest.fixture(scope="module")
def served(processes: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Start a server; each test gives it a model. Its log may report that a model is down."""
    served = start(tmp_path_factory.mktemp("composing"))
    yield served
    assert "Traceback" not in stop(served)


@contextmanager
def modelled(folder: Path, *answers: Answer, then: Answer | None = None, **given: Any) -> Iterator[LoopbackServer]:
    """Give a folder a model with these answers."""
    with beside(LoopbackServer(answers, then=then)) as model:
        write_model(folder, url=model.base_url, **{"guests": True, **given})
        try:
            yield model
        finally:
            write_model(folder, source="off")


def eventually(look: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + 120
    while not (found := look()):
        assert time.monotonic() < deadline
        time.sleep(0.02)  # the server has no way to be waited for
    return found


def summary(http: httpx.Client, kind: str = "short") -> str:
    told = http.get("/sessions/s/summaries").json()[f"{kind}_summary"]
    return "" if told is None else str(told["content"])


def waiting(http: httpx.Client) -> bool:
    told = http.get("/queue/status").json()
    return bool(told["pending_work_units"]) and not told["in_progress_work_units"]


@contextmanager
def sdk(http: httpx.Client) -> Iterator[Honcho]:
    """Return the official client of the same workspace."""
    url = str(http.base_url).rstrip("/")
    client = Honcho(workspace_id=url.rsplit("/", 1)[1], base_url=url.split("/v3")[0], api_key="unused", max_retries=0)
    yield client
    client._http.close()


def dream(http: httpx.Client) -> None:
    with sdk(http) as client:
        client.schedule_dream(observer="ann")


def drawn(http: httpx.Client) -> list[dict[str, Any]]:
    body = {"filters": {"level": {"ne": "explicit"}}}
    return list(http.post("/conclusions/list", json=body).json()["items"])


def number_of(model: LoopbackServer, text: str) -> int:
    told = "\n".join(str(one["content"]) for one in model.requests[-1].body["messages"])
    found = re.search(rf"^\[(\d+)\] .*{re.escape(text)}", told, re.MULTILINE)
    assert found, told
    return int(found.group(1))


def test_a_summary_adds_lines_to_those_it_has(served: Served, workspace: str) -> None:
    script = [says("Ann plans a trip [1][2]. She invented this.\nIt costs 900 [3]."), says("- She packs [1].")]
    with inside(served, workspace) as http, modelled(served.folder, *script) as model:
        say(http, "s", *(f"I plan day {number} of my trip." for number in range(1, 21)))
        first = eventually(lambda: summary(http))
        assert first.splitlines()[1:] == ["* Ann plans a trip."]
        assert first.startswith("Summary of messages 1 to 20 (")
        say(http, "s", *(f"I pack bag {number}." for number in range(1, 21)))
        second = eventually(lambda: summary(http) if summary(http) != first else "")
        assert second.splitlines()[1:] == ["* Ann plans a trip.", "* She packs."]
        assert "I plan day 1" not in json.dumps(model.requests[1].body), "what is known is not summarised again"
        with sdk(http) as client:
            told = client.session("s").summaries().short_summary
            assert told is not None
            assert told.content == second
            assert client.session("s").context(summary=True).summary == told


@pytest.mark.parametrize("wrong", [says("a text without numbers"), says("", finish_reason="content_filter")])
def test_a_summary_that_cannot_be_used_is_an_extract(served: Served, workspace: str, wrong: Answer) -> None:
    with inside(served, workspace) as http, modelled(served.folder, then=wrong):
        say(http, "s", *(f"I plan day {number} of my trip." for number in range(1, 21)))
        settle(http)
        assert summary(http).startswith("Extract of messages 1 to 20 (made without a model)")


def test_a_summary_waits_for_its_model_and_is_made_up_for(served: Served, workspace: str) -> None:
    with inside(served, workspace) as http:
        with modelled(served.folder, then=fails(429, "slow down")):
            say(http, "s", *(f"I plan day {number} of my trip." for number in range(1, 21)))
            assert eventually(lambda: summary(http)).startswith("Extract"), "meanwhile there is an extract"
            eventually(lambda: waiting(http))
        with modelled(served.folder, says("Ann plans a trip [1].")):
            eventually(lambda: summary(http).startswith("Summary"))
            settle(http)
        assert summary(http).splitlines()[1:] == ["* Ann plans a trip."]


def test_a_dream_draws_conclusions_with_premises(served: Served, workspace: str) -> None:
    with inside(served, workspace) as http:
        say(http, "s", "I run every morning.", "I swim every evening.", "I was born in May 1990.")
        say(http, "s", "You surely climb mountains.", peer="bot")
        settle(http)
        with modelled(served.folder, then=NOTHING_DRAWN) as model:
            dream(http)
            settle(http)
            run, swim, born = (number_of(model, text) for text in ("run every", "swim every", "born in May"))
            assert "mountains" not in json.dumps(model.requests[-1].body), "what others reply is no premise"
        proposals = [
            {"text": "Ann does sports twice a day.", "kind": "generalisation", "lines": [run, swim]},
            {"text": "Ann rises early.", "kind": "deduction", "lines": [run]},
            {"text": "Ann is 36.", "kind": "deduction", "lines": [born]},
            {"text": "Ann was born three years ago.", "kind": "deduction", "lines": [born]},
            {"text": "Ann said “I never swim”.", "kind": "deduction", "lines": [swim]},
            {"text": "Ann likes water.", "kind": "generalisation", "lines": [swim]},
            {"text": "Ann is rich.", "kind": "deduction", "lines": [99]},
            {"text": "I run every morning.", "kind": "deduction", "lines": [run]},
        ]
        with modelled(served.folder, then=says(json.dumps({"conclusions": proposals}))):
            dream(http)
            settle(http)
            dream(http)  # what is there is not drawn again
            settle(http)
        found = {one["content"]: one for one in drawn(http)}
        assert {text: one["level"] for text, one in found.items()} == {
            "Ann does sports twice a day.": "inductive",
            "Ann rises early.": "deductive",
        }
        sources = found["Ann does sports twice a day."]["source_ids"]
        said = http.post("/conclusions/list", json={"filters": {"id": {"in": sources}}}).json()["items"]
        assert {one["content"] for one in said} == {"ann: I run every morning.", "ann: I swim every evening."}
        assert "   Premises:\n   - ann: I run every morning." in held(http, "ann")
        with sdk(http) as client:
            assert client.peer("ann").representation() == held(http, "ann")
        [*_, last_but_one, last] = http.get("/ext/dreams").json()["items"]
        assert (len(last_but_one["added"]), last["added"]) == (2, [])
        messages = http.post("/sessions/s/messages/list").json()["items"]
        [first] = [one["id"] for one in messages if "run every" in one["content"]]
        http.delete(f"/ext/sessions/s/messages/{first}").raise_for_status()
        assert "Ann rises early." not in held(http, "ann"), "it goes with its premise"


def test_a_dream_can_be_undone(served: Served, workspace: str) -> None:
    with inside(served, workspace) as http:
        say(http, "s", "I run every morning.")
        settle(http)
        conclude(http, "Ann has a dog.", "Ann has a dog.", session="s")
        early = {"text": "Ann rises early.", "kind": "deduction", "lines": [1]}
        with modelled(served.folder, then=says(json.dumps({"conclusions": [early]}))):
            dream(http)
            settle(http)
            [report] = http.get("/ext/dreams").json()["items"]
            assert [len(report["added"]), [one["why"] for one in report["retired"]]] == [1, ["same"]]
            assert held(http, "ann").count("Ann has a dog.") == 1
            for _ in range(2):
                undone = http.delete(f"/ext/dreams/{report['id']}").json()
                assert undone["undone_at"]
            assert drawn(http) == []
            kept = {"filters": {"id": {"in": [report["retired"][0]["id"]]}}}
            assert http.post("/conclusions/list", json=kept).json()["total"] == 1
            dream(http)
            settle(http)
            assert drawn(http) == [], "what a person undid is not drawn again"
        assert http.delete("/ext/dreams/nothing").status_code == 404


def test_what_was_drawn_is_retired_when_a_premise_no_longer_holds(served: Served, workspace: str) -> None:
    with inside(served, workspace) as http:
        say(http, "s", "I live in Lisbon.")
        settle(http)
        by_sea = {"text": "Ann lives by the sea.", "kind": "deduction", "lines": [1]}
        with modelled(served.folder, says(json.dumps({"conclusions": [by_sea]})), then=NOTHING_DRAWN):
            dream(http)
            settle(http)
            assert len(drawn(http)) == 1
            say(http, "s", "I have moved. Now I live in Madrid.")
            settle(http)
            dream(http)
            settle(http)
        assert drawn(http) == []
        assert [one["why"] for one in http.get("/ext/dreams").json()["items"][-1]["retired"]] == ["premise"]


def test_a_dream_over_its_cap_waits(served: Served, workspace: str) -> None:
    with inside(served, workspace) as http, modelled(served.folder, then=NOTHING_DRAWN, cap_calls=1) as model:
        say(http, "s", "I run every morning.")
        settle(http)
        dream(http)
        settle(http)
        dream(http)
        eventually(lambda: waiting(http))
        assert len(model.requests) == 1
        assert len(http.get("/ext/dreams").json()["items"]) == 1, "what waits is not completed"
