"""Treatment of secrets, of statements not to be remembered, and of an agent's replies."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from bench import reading
from tests.memory_server.talking import held, say, settle

HOME = "I live in Porto near the river."
SECRET = "My wifi password is purple-monkey-42."
UNWANTED = "Don't keep this: I moved to Sevilla with Carlos."


def find(http: httpx.Client, query: str) -> list[str]:
    found = http.post("/search", json={"query": query, "limit": 10}).raise_for_status().json()
    return [message["content"] for message in found]


def query(http: httpx.Client, asked: str) -> list[str]:
    body: dict[str, Any] = {"query": asked, "top_k": 10, "filters": {"observer_id": "ann", "observed_id": "ann"}}
    return [each["content"] for each in http.post("/conclusions/query", json=body).raise_for_status().json()]


@pytest.mark.contract("7.10")
def test_a_secret_is_found_when_asked_for_and_never_given_unasked(http: httpx.Client) -> None:
    for text in (HOME, SECRET):
        say(http, "talk", text)
    settle(http)
    assert "Porto" in held(http, "ann")
    assert "purple" not in held(http, "ann") + held(http, "ann", search_query="where is my home network")
    assert query(http, "What is my wifi password?")[0] == f"ann: {SECRET}"
    assert query(http, "Where do I live?") == [f"ann: {HOME}"]
    assert SECRET in find(http, "wifi password")
    assert SECRET not in find(http, "purple monkey wifi")


@pytest.mark.contract("7.10")
@pytest.mark.parametrize(
    "text",
    [
        UNWANTED,
        "I moved to Sevilla. Please don't remember that.",
        "Merk dir das nicht: Ich bin nach Sevilla gezogen.",
        "No guardes esto: vivo en Sevilla.",
        "Ne retiens pas ça : je vis à Sevilla.",
        "不要记住这个:我住在Sevilla。",
    ],
)
def test_what_is_not_to_be_remembered_is_neither_concluded_nor_found(http: httpx.Client, text: str) -> None:
    for said in (HOME, text):
        say(http, "talk", said)
    settle(http)
    assert "Sevilla" not in held(http, "ann")
    assert find(http, "Sevilla") == [] or text not in find(http, "Sevilla")
    there = http.post("/sessions/talk/messages/list", json={}).raise_for_status().json()["items"]
    assert [message["content"] for message in there] == [HOME, text]


@pytest.mark.contract("7.10")
def test_summaries_leave_out_secrets_and_what_is_not_to_be_remembered(http: httpx.Client) -> None:
    configuration = {"summary": {"messages_per_short_summary": 10, "messages_per_long_summary": 20}}
    http.post("/sessions", json={"id": "talk", "configuration": configuration}).raise_for_status()
    for number in range(8):
        say(http, "talk", f"I bought book number {number} of my collection.")
    say(http, "talk", SECRET)
    say(http, "talk", UNWANTED)
    settle(http)
    short = http.get("/sessions/talk/summaries").raise_for_status().json()["short_summary"]["content"]
    assert "collection" in short
    assert "purple" not in short
    assert "Sevilla" not in short


def test_labelled_messages_are_scored_by_kind_and_language(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [
        {"text": HOME, "language": "en", "kind": "statement", "keep": True},
        {"text": "Where do I live?", "language": "en", "kind": "question", "keep": False},
        {"text": SECRET, "language": "en", "kind": "secret", "keep": True},
        {"text": "Mein Vater ist Bäcker.", "language": "de", "kind": "gossip", "keep": True},
    ]
    file = tmp_path / "labelled.jsonl"
    file.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    assert reading.main([str(file), "--json"]) == 0
    [scores] = json.loads(capsys.readouterr().out).values()
    assert scores["keep"] == {"precision": 1.0, "recall": 1.0, "messages": 4, "wanted": 3, "found": 3}
    assert scores["keep de"]["messages"] == scores["kind gossip"]["messages"] == 1
    assert scores["secret"]["recall"] == 1.0


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("{", "not JSON"),
        ("[]", "not a JSON object"),
        ('{"text": "a", "language": "en", "kind": "remark"}', "'keep' is not a bool"),
    ],
)
def test_a_bad_line_of_labelled_messages_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], line: str, why: str
) -> None:
    file = tmp_path / "labelled.jsonl"
    good = json.dumps({"text": HOME, "language": "en", "kind": "statement", "keep": True})
    file.write_text(f"{good}\n{line}\n", encoding="utf-8")
    assert reading.main([str(file)]) == 1
    told = capsys.readouterr().err
    assert "labelled.jsonl:2: " in told
    assert why in told
