"""`hermes sessions` in use."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import datetime
from pathlib import Path

import pytest

from hermes.clock import SystemClock
from hermes.db.engine import Tx
from hermes.store.store import Store
from hermes.store.usage import NOTHING, USAGE_NOTE, add_usage
from hermes.types import Draft, Spent, ToolCall
from tests.cli.filling import compress, fill, write_into
from tests.conftest import Ran

Hermes = Callable[..., Ran]


@pytest.mark.contract("1.7")
def test_list_shows_the_latest_session_first_with_title_or_first_words(hermes: Hermes, home: Path) -> None:
    first = fill(home, "I collect stamps")
    second = fill(home, "hello", title="Greetings")
    lines = hermes("sessions", "list").out.splitlines()
    assert [line.split()[0] for line in lines[1:]] == [second, first]
    assert "Greetings" in lines[1]
    assert "I collect stamps" in lines[2]
    assert [row["id"] for row in json.loads(hermes("sessions", "list", "--json").out)] == [second, first]
    assert len(json.loads(hermes("sessions", "list", "--json", "-n", "1").out)) == 1
    assert json.loads(hermes("sessions", "list", "--json", "--source", "telegram").out) == []


def test_an_empty_store_says_so(hermes: Hermes) -> None:
    ran = hermes("sessions", "list")
    assert (ran.code, ran.out, ran.err) == (0, "", "no sessions yet\n")
    assert hermes("sessions", "list", "--json").out == "[]\n"


@pytest.mark.contract("1.7", "10.6")
def test_show_prints_messages_in_order_by_id_prefix_or_title(hermes: Hermes, home: Path) -> None:
    session = fill(home, "one", "two", "three", title="Numbers")
    for name in (session, session[:-3], "Numbers"):
        out = hermes("sessions", "show", name).out
        assert out.index("one") < out.index("two") < out.index("three")
    shown = json.loads(hermes("sessions", "show", session, "--json").out)
    assert [message["content"] for message in shown["messages"]] == ["one", "two", "three"]


def test_an_ambiguous_beginning_names_the_candidates(hermes: Hermes, home: Path) -> None:
    fill(home, "x", session_id="abc-1")
    fill(home, "x", session_id="abc-2")
    ran = hermes("sessions", "show", "abc")
    assert ran.code == 2
    assert "abc-1" in ran.err
    assert "abc-2" in ran.err


@pytest.mark.contract("3.2")
def test_show_live_and_snapshot_show_the_view_after_and_before_a_compression(hermes: Hermes, home: Path) -> None:
    session = fill(home, "I collect stamps", "From where?", "Malta")
    snapshot = compress(home, session)
    live = json.loads(hermes("sessions", "show", session, "--live", "--json").out)
    assert live["summary"] == "they spoke of stamps"
    assert [message["content"] for message in live["tail"]] == ["Malta"]
    assert hermes("sessions", "show", session, "--live").out.startswith(f"{session} · cli · ")
    before = json.loads(hermes("sessions", "show", snapshot, "--json").out)
    assert before["summary"] is None
    assert [message["content"] for message in before["tail"]] == ["I collect stamps", "From where?", "Malta"]
    assert snapshot in hermes("sessions", "show", session).out
    assert [row["id"] for row in json.loads(hermes("sessions", "list", "--json").out)] == [session]


@pytest.mark.contract("10.33")
def test_usage_tells_what_any_session_has_spent(hermes: Hermes, home: Path) -> None:
    session = fill(home, "I collect stamps", "From where?", "Malta", title="Stamps")
    assert hermes("sessions", "usage", session).out.splitlines()[2:] == [NOTHING]
    compress(home, session)
    spent = {"big": Spent(2, 0, 300, 30, 90), "small\x1b[2J": Spent(1, 1, 1000, 5)}
    write_into(home, lambda _, tx: add_usage(tx, session, spent, now=0.0))
    head, length, *lines = hermes("sessions", "usage", "Stamps").out.splitlines()
    assert head.startswith(f"{session} · cli · ")
    assert head.endswith(" · Stamps")
    assert length.startswith("2 turns, 1 compressions; the model sees ~")
    assert lines == [
        "small[2J: 1 request, ~1,000 tokens in, ~5 out; all of them estimated, since the endpoint does not say",
        "big: 2 requests, 300 tokens in (90 of them from its cache), 30 out",
        "in all: 3 requests, ~1,300 tokens in (90 of them from its cache), ~35 out; 1 of them estimated, since the "
        "endpoint does not say",
        USAGE_NOTE,
    ]
    told = json.loads(hermes("sessions", "usage", session, "--json").out)
    assert (told["session_id"], told["turns"], told["compressions"], told["elsewhere"]) == (session, 2, 1, None)
    assert told["view_tokens"] > 0
    assert told["spent"]["big"]["prompt_tokens"] == 300
    assert hermes("sessions", "usage", "nope").code == 1


@pytest.mark.contract("1.7", "10.6")
@pytest.mark.parametrize("bound", ["--since", "--until"])
@pytest.mark.parametrize("date", ["0001-01-01", "9999-12-31", "soon"])
def test_a_date_that_cannot_be_searched_for_is_refused(hermes: Hermes, bound: str, date: str) -> None:
    ran = hermes("sessions", "search", "stamps", bound, date)
    assert ran.code in (0, 2)
    assert "defect" not in ran.err
    assert (ran.code == 0) or f"'{date}' is not a date that can be searched for" in ran.err


@pytest.mark.contract("1.7")
def test_search_finds_words_in_any_session_and_marks_where(hermes: Hermes, home: Path) -> None:
    session = fill(home, "I collect stamps from Malta", "Nice")
    fill(home, "我喜欢集邮")
    found = json.loads(hermes("sessions", "search", "malta", "stamp", "--json").out)
    assert [(row["session_id"], row["role"]) for row in found] == [(session, "user")]
    assert len(json.loads(hermes("sessions", "search", "集邮", "--json").out)) == 1
    assert "Malta" in hermes("sessions", "search", "stamps").out
    nothing = hermes("sessions", "search", "unicorns")
    assert (nothing.code, nothing.out) == (0, "")
    assert "nothing found for 'unicorns'" in nothing.err
    assert json.loads(hermes("sessions", "search", "malta", "--session", "nosuch", "--json").out or "null") is None


@pytest.mark.contract("1.7")
def test_search_takes_a_question_quotes_and_a_time(hermes: Hermes, home: Path) -> None:
    fill(home, "Where is the spare key of the boathouse?", "Under the blue pot.", "I keep a blue boat")
    found = json.loads(hermes("sessions", "search", "where is the boathouse key", "--json").out)
    assert "Under the blue pot." in [row["content"] for row in found]
    quoted = json.loads(hermes("sessions", "search", '"blue pot"', "--json").out)
    assert [row["content"] for row in quoted] == ["Under the blue pot."]
    question = json.loads(
        hermes("sessions", "search", '"spare key" boathouse', f"{datetime.now():%d %B %Y}", "--json").out
    )
    assert [row["content"] for row in question] == ["Where is the spare key of the boathouse?"]
    today = f"{datetime.now():%Y-%m-%d}"
    for option, count in (("--since", 2), ("--until", 2)):
        assert len(json.loads(hermes("sessions", "search", "blue", option, today, "--json").out)) == count
    assert hermes("sessions", "search", "blue", "--until", "2001-01-01").err == "nothing found for 'blue'\n"
    wrong = hermes("sessions", "search", "blue", "--since", "soon")
    assert wrong.code == 2
    assert "2026-01-31" in wrong.err


@pytest.mark.contract("1.7")
def test_a_search_shows_what_matched_and_marks_it(hermes: Hermes, home: Path) -> None:
    fill(home, "word " * 100 + "when the ferries left " + "word " * 100)
    hermes("config", "set", "display.color", "always")
    shown = hermes("sessions", "search", "when did the ferry leave").out
    assert "\x1b[1mferries\x1b[0m" in shown


@pytest.mark.contract("1.7")
def test_title_is_printed_changed_and_cleared(hermes: Hermes, home: Path) -> None:
    session = fill(home, "x")
    assert hermes("sessions", "title", session).out == "(no title)\n"
    assert hermes("sessions", "title", session, "Stamps").out == "Stamps\n"
    assert hermes("sessions", "title", session).out == "Stamps\n"
    assert hermes("sessions", "title", session, "--clear").out == "(no title)\n"
    assert hermes("sessions", "title", session, "  ").code == 2


@pytest.mark.contract("1.7")
def test_export_writes_every_message_as_json_lines_or_markdown(hermes: Hermes, home: Path, tmp_path: Path) -> None:
    session = fill(home, "I collect stamps", "From where?", "Malta")
    compress(home, session)
    lines = [json.loads(line) for line in hermes("sessions", "export", session).out.splitlines()]
    assert [line["type"] for line in lines] == ["session", "message", "message", "message", "compression"]
    assert lines[0]["id"] == session
    target = tmp_path / "out.md"
    ran = hermes("sessions", "export", session, "--format", "md", "-o", str(target))
    assert (ran.code, ran.out) == (0, "")
    text = target.read_text()
    assert text.index("I collect stamps") < text.index("they spoke of stamps") < text.index("Malta")
    fill(home, "another")
    everything = hermes("sessions", "export", "--all").out.splitlines()
    assert sum(json.loads(line)["type"] == "session" for line in everything) == 2


def test_every_compression_is_noted_also_where_two_have_one_horizon(hermes: Hermes, home: Path) -> None:
    session = fill(home, "I collect stamps", "From where?", "Malta")
    names = [compress(home, session), compress(home, session, epoch=2)]
    shown = hermes("sessions", "show", session).out
    exported = hermes("sessions", "export", session, "--format", "md").out
    for text in (shown, exported):
        places = [text.index(part) for part in ("From where?", *names, "Malta")]
        assert places == sorted(places)


def test_export_needs_to_know_what_and_where(hermes: Hermes, home: Path, tmp_path: Path) -> None:
    assert hermes("sessions", "export").code == 2
    session = fill(home, "x")
    ran = hermes("sessions", "export", session, "-o", str(tmp_path / "no" / "such" / "folder.md"))
    assert ran.code == 1
    assert "folder.md" in ran.err


@pytest.mark.contract("1.8")
def test_delete_says_what_goes_asks_and_leaves_nothing(hermes: Hermes, home: Path) -> None:
    kept = fill(home, "stay, stamps")
    session = fill(home, "I collect stamps", "From where?", "Malta")
    compress(home, session)
    hermes("sessions", "search", "stamps")
    refused = hermes("sessions", "delete", session)
    assert refused.code == 2
    assert refused.out == f"This deletes session {session}: 3 messages, 1 snapshot.\n"
    assert hermes("sessions", "show", session).code == 0
    assert hermes("sessions", "delete", session, "--yes").code == 0
    assert hermes("sessions", "show", session).code == 1
    assert [row["session_id"] for row in json.loads(hermes("sessions", "search", "stamps", "--json").out)] == [kept]
    assert b"malta" not in (home / "state.db").read_bytes().lower()


def test_deleted_session_leaves_index_and_log_while_another_process_has_the_store(hermes: Hermes, home: Path) -> None:
    kept = fill(home, "stay, stamps")
    session = fill(home, *(f"Malta {number}" for number in range(40)))
    hermes("sessions", "search", "malta")
    with closing(sqlite3.connect(home / "state.db")) as other:
        assert other.execute("SELECT count(*) FROM messages").fetchone() == (41,)
        assert hermes("sessions", "delete", session, "--yes").code == 0
        files = [path for path in home.glob("state.db*") if b"malta" in path.read_bytes().lower()]
        assert files == []
        assert other.execute("SELECT count(*) FROM messages").fetchone() == (1,)
    assert [row["session_id"] for row in json.loads(hermes("sessions", "search", "stamps", "--json").out)] == [kept]


def test_deletion_says_so_when_somebody_still_reads_what_was_deleted(hermes: Hermes, home: Path) -> None:
    session = fill(home, "Malta")
    with closing(sqlite3.connect(home / "state.db", isolation_level=None)) as other:
        other.execute("BEGIN")
        assert other.execute("SELECT count(*) FROM messages").fetchone() == (1,)
        ran = hermes("sessions", "delete", session, "--yes")
    assert ran.code == 0
    assert "Deleted." in ran.out
    assert "Some deleted data remains in the files" in ran.err
    assert "state.db is in use" in ran.err


def test_control_characters_in_messages_cannot_steer_the_terminal(hermes: Hermes, home: Path) -> None:
    session = fill(home, "evil \x1b[2J\x9b31m text \u202e\u2066", title="t\x1b]0;x\x07\u202d")
    shown = [hermes("sessions", "show", session), hermes("sessions", "list"), hermes("sessions", "search", "evil")]
    for ran in shown:
        assert ran.out
        assert not {"\x1b", "\x9b", "\u202d", "\u202e", "\u2066"} & set(ran.out)


@pytest.mark.contract("10.25")
def test_what_was_taken_back_is_counted_and_shown_marked_on_request(hermes: Hermes, home: Path) -> None:
    session = fill(home, "stamps", "one", "figs", "two")

    def undo(store: Store, tx: Tx) -> None:
        store.turns.undo(tx, "c", store.turns.last(tx, session), now=1.0)

    write_into(home, undo)
    shown = hermes("sessions", "show", session)
    assert "figs" not in shown.out
    assert "(2 messages were taken back; --undone shows them)" in shown.err
    marked = hermes("sessions", "show", session, "--undone").out
    assert [line.count("taken back") for line in marked.splitlines() if line.startswith("[")] == [0, 0, 1, 1]
    whole = json.loads(hermes("sessions", "show", session, "--undone", "--json").out)["messages"]
    assert [message.get("undone", False) for message in whole] == [False, False, True, True]
    assert "figs" not in hermes("sessions", "export", session).out
    lines = [json.loads(line) for line in hermes("sessions", "export", session, "--undone").out.splitlines()]
    assert [line["content"] for line in lines if line.get("undone")] == ["figs", "two"]
    assert hermes("sessions", "export", session, "--undone", "--format", "md").out.count("taken back") == 2


def test_tool_calls_are_shown_and_exported(hermes: Hermes, home: Path) -> None:
    session = fill(home, "what time is it?")

    async def work() -> None:
        async with await Store.open(home / "state.db", clock=SystemClock(), lock_timeout=30.0) as store:
            call = ToolCall("c1", "clock", '{"zone": "Malta"}')
            await store.append(
                session,
                Draft("assistant", tool_calls=(call,)),
                Draft("tool", "noon", tool_call_id="c1", tool_name="clock"),
            )

    asyncio.run(work())
    out = hermes("sessions", "show", session).out
    assert 'clock({"zone": "Malta"})' in out
    assert "[tool clock" in out
    exported = [json.loads(line) for line in hermes("sessions", "export", session).out.splitlines()]
    assert exported[2]["tool_calls"][0]["function"]["name"] == "clock"
