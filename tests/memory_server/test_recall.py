"""Learning by each peer, selection and display of conclusions, and budgets of contexts."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import text

from hermes.memory_server.db.database import Tx
from hermes.memory_server.engine.context import fill_window
from hermes.memory_server.engine.messages import append_messages
from hermes.memory_server.engine.sessions import get_session
from hermes.memory_server.engine.summaries import SessionSummary, plan_summary, store_summary
from hermes.memory_server.tokens import count_tokens
from tests.memory_server.floor import draft
from tests.memory_server.talking import conclude, held, itself, say, settle

NOW = 1_700_000_000_000_000


def make_summary(tx: Tx, session_id: int, kind: str, seq: int) -> SessionSummary | None:
    """Write the summary by rule."""
    plan = plan_summary(tx, session_id, kind, seq)
    return None if plan is None else plan.extract()


def test_who_observes_others_holds_a_view_of_its_own_and_nobody_else_does(http: httpx.Client) -> None:
    members = {"ann": {}, "ben": {"observe_others": True}, "cid": {"observe_others": False}, "dan": {}}
    http.post("/sessions", json={"id": "talk", "peers": members}).raise_for_status()
    http.request("DELETE", "/sessions/talk/peers", json=["dan"])
    say(http, "talk", "I live in Malta.")
    say(http, "talk", "I live in Rome.", peer="ben")
    settle(http)
    assert held(http, "ann").endswith("ann: I live in Malta.\n")
    assert held(http, "ben", target="ann") == held(http, "ann")
    assert "Rome" in held(http, "ben")
    for observer in ("cid", "dan"):
        assert held(http, observer, target="ann") == ""
    assert held(http, "ann", target="ben") == ""


def test_who_is_not_observed_is_not_learnt_about_by_anyone(http: httpx.Client) -> None:
    members = {"ann": {"observe_me": False}, "ben": {"observe_others": True}}
    http.post("/sessions", json={"id": "talk", "peers": members}).raise_for_status()
    say(http, "talk", "I live in Malta.")
    settle(http)
    assert held(http, "ann") == held(http, "ben", target="ann") == ""


@pytest.mark.parametrize(
    ("workspace_says", "session_says", "queued"),
    [
        ({"deriver": {"enabled": False}}, {}, 0),
        ({"skip_deriver": True}, {}, 0),
        ({"skip_deriver": False}, {}, 1),
        ({"deriver": {"enabled": False}}, {"reasoning": {"enabled": True}}, 1),
        ({"reasoning": {"enabled": False}}, {"deriver": {"enabled": True}}, 1),
        ({"reasoning": {"enabled": True}}, {"skip_deriver": True}, 0),
        ({"reasoning": {"enabled": True}, "deriver": {"enabled": False}}, {}, 1),
        ({"reasoning": {"enabled": False}}, {"reasoning": {"custom_instructions": "be brief"}}, 0),
        ({"deriver": 7, "reasoning": None}, {"deriver": None}, 1),
    ],
)
def test_older_words_for_reasoning_still_count_each_in_its_layer(
    quiet: httpx.Client, workspace_says: Any, session_says: Any, queued: int
) -> None:
    quiet.put(itself(quiet), json={"configuration": workspace_says}).raise_for_status()
    quiet.post("/sessions", json={"id": "talk", "configuration": session_says}).raise_for_status()
    say(quiet, "talk", "I live in Malta.")
    assert quiet.get("/queue/status").json()["total_work_units"] == queued


def test_same_sentence_counts_again_in_one_session_and_in_another(http: httpx.Client) -> None:
    say(http, "one", "I live in Malta.", "  i LIVE in malta. ", "Do I live in Malta?")
    settle(http)
    say(http, "two", "I live in Malta.")
    settle(http)
    found = http.post("/conclusions/list?reverse=true").json()["items"]
    assert [(item["session_id"], item["times_derived"]) for item in found] == [("two", 3)]


def test_every_message_of_a_batch_is_learnt_and_repeated_sentences_count_once(http: httpx.Client) -> None:
    say(http, "talk", *(f"I own house number {n}. I own house number {n}." for n in range(25)))
    settle(http)
    found = http.post("/conclusions/list?size=100").json()["items"]
    assert {item["content"] for item in found} == {f"ann: I own house number {n}." for n in range(25)}
    assert {item["times_derived"] for item in found} == {1}


def test_dream_adds_up_how_often_the_same_was_derived(http: httpx.Client) -> None:
    say(http, "talk", "I sing in a choir.", "I sing in a choir.")
    settle(http)
    conclude(http, "ann: I sing in a choir.", session="talk")
    http.post("/schedule_dream", json={"observer": "ann", "dream_type": "omni"}).raise_for_status()
    settle(http)
    assert [item["times_derived"] for item in http.post("/conclusions/list").json()["items"]] == [3]


def test_scope_learns_peers_statements_about_themselves_and_keeps_theirs(http: httpx.Client) -> None:
    say(http, "talk", "I live in Malta.")
    settle(http)
    http.post("/peers", json={"id": "ben"})
    rumour = {"content": "ann lives in Rome", "observer_id": "ben", "observed_id": "ann", "session_id": "talk"}
    http.post("/conclusions", json={"conclusions": [rumour]}).raise_for_status()
    http.post("/scopes", json={"id": "work"}).raise_for_status()
    for _ in range(2):
        assert http.post("/scopes/work/sessions", json={"session_ids": ["talk"]}).status_code == 204
    deadline = time.monotonic() + 100
    while http.get("/scopes/work/status").json()["backfill_status"]["talk"]["state"] != "completed":
        assert time.monotonic() < deadline
        time.sleep(0.02)  # the server has no way to be waited for
    seen = held(http, "ann", scope="work")
    assert ("Malta" in seen, "Rome" in seen) == (True, False)
    assert http.delete("/scopes/work/sessions/talk").status_code == 204
    assert http.delete("/scopes/work/sessions/talk").status_code == 404
    assert held(http, "ann", scope="work") == ""
    assert "Malta" in held(http, "ann")
    assert "Rome" in held(http, "ben", target="ann")


def test_what_has_nothing_to_do_with_a_question_is_not_concluded(http: httpx.Client) -> None:
    conclude(http, "the stove needs a new pipe")
    assert http.post("/peers/ann/chat", json={"query": "sailing boats"}).json() == {"content": None}


def test_unanswerable_question_gets_no_answer_while_a_search_finds_messages(http: httpx.Client) -> None:
    told = [
        "I keep bees behind the house.",
        "My sister moved to Ghent.",
        "We fixed the stove on Sunday.",
        "Lovely day!",
    ]
    given = [{"content": content, "peer_id": "ann"} for content in told]
    http.post("/sessions/talk/messages", json={"messages": given}).raise_for_status()
    settle(http)
    asked = {"query": "What is the capital of Peru?"}
    assert http.post("/peers/ann/chat", json=asked).json() == {"content": None}
    assert http.post("/chat", json=asked).json() == {"content": None}
    assert len(http.post("/search", json=asked).json()) == 4
    unsure = http.post("/ext/search", json=asked).json()
    assert [found["about"] for found in unsure] == [False] * 4
    sure = http.post("/ext/search", json={"query": "Where did your sister move?", "limit": 2}).json()
    assert sure[0]["message"]["content"] == told[1]
    assert sure[0]["about"]
    assert sure[0]["certainty"] > max(found["certainty"] for found in unsure)
    assert "Ghent" in http.post("/peers/ann/chat", json={"query": "Where did your sister move?"}).json()["content"]


def test_representation_shows_the_level_the_time_and_the_oldest_first(http: httpx.Client) -> None:
    says = [{"content": f"I was in {city}.", "peer_id": "ann", "created_at": f"20{year}-01-02T03:04:05Z"}
            for city, year in (("Rome", 20), ("Bonn", 10))]  # fmt: skip
    http.post("/sessions/talk/messages", json={"messages": says}).raise_for_status()
    settle(http)
    lines = ["[2010-01-02 03:04:05] ann: I was in Bonn.", "[2020-01-02 03:04:05] ann: I was in Rome."]
    assert held(http, "ann") == "\n".join(["## Explicit Observations", "", *lines, ""])


def test_representation_holds_the_requested_number_with_relevant_conclusions_first(http: httpx.Client) -> None:
    conclude(http, "ann plays the violin in an orchestra", "ann plays the violin in an orchestra")
    conclude(http, *(f"ann bought apple number {n}" for n in range(60)))
    assert len(held(http, "ann").splitlines()) == 2 + 25
    assert len(held(http, "ann", max_conclusions=3).splitlines()) == 2 + 3
    assert "violin" not in held(http, "ann", max_conclusions=3)
    assert "violin" in held(http, "ann", max_conclusions=3, search_query="music and orchestras")
    fitting = held(http, "ann", max_conclusions=9, search_query="violin orchestra", search_max_distance=0.01)
    assert "violin" not in fitting, "nothing is that close"
    everything = http.get("/peers/ann/context").json()["representation"].splitlines()
    assert len(everything) == 2 + 61, "the same said twice is shown once"
    for wrong in ({"max_conclusions": 0}, {"max_conclusions": 101}, {"search_top_k": 0}, {"search_top_k": 101}):
        assert http.post("/peers/ann/representation", json=wrong).status_code == 422
        query = "&".join(f"{name}={value}" for name, value in wrong.items())
        assert http.get(f"/peers/ann/context?{query}").status_code == 422
        assert http.get(f"/sessions/s/context?peer_target=ann&{query}").status_code == 422
    for distance in ("-0.1", "1.1", "nan"):
        assert http.get(f"/peers/ann/context?search_max_distance={distance}").status_code == 422


def test_most_often_derived_is_shown_when_it_is_wanted(http: httpx.Client) -> None:
    often = ["I sing in a choir.", "I play in a band."]
    say(http, "talk", *often, *often, *(f"I bought apple {n}." for n in range(20)))
    settle(http)
    assert "choir" not in held(http, "ann", max_conclusions=4)
    half = held(http, "ann", max_conclusions=4, include_most_frequent=True)
    assert ("choir" in half, "band" in half, half.count("apple")) == (True, True, 2)
    assert "choir" in http.get("/peers/ann/context?max_conclusions=4").json()["representation"]
    assert "choir" not in http.get("/peers/ann/context?max_conclusions=4&include_most_frequent=false").text


def test_recall_can_be_limited_to_sessions(http: httpx.Client) -> None:
    for city in ("Rome", "Bonn", "Oslo"):
        say(http, city, f"I live in {city}.")
    settle(http)
    conclude(http, "ann moves a lot")

    def cities(**asked: Any) -> set[str]:
        text = held(http, "ann", **asked)
        return {word for word in ("Rome", "Bonn", "Oslo", "moves") if word in text}

    assert cities() == {"Rome", "Bonn", "Oslo", "moves"}
    assert cities(session_id="Rome") == {"Rome"}
    assert cities(filters={"session_id": "Rome"}) == {"Rome"}
    assert cities(filters={"session_id": ["Rome", "Bonn"]}) == {"Rome", "Bonn"}
    assert cities(filters={"session_id": {"in": ["Rome", "nowhere"]}}) == {"Rome"}
    assert cities(filters={"session_id": []}) == set()
    assert cities(filters={"session_id": ["Rome", "Bonn"]}, session_id="Bonn") == {"Bonn"}
    assert cities(filters={"session_id": [f"s{n}" for n in range(999)] + ["Oslo"]}) == {"Oslo"}
    for wrong in ({}, {"session_id": {"ne": "Rome"}}, {"session_id": None}, {"session_id": ["x"] * 1001}):
        assert http.post("/peers/ann/representation", json={"filters": wrong}).status_code == 422
        assert http.post("/peers/ann/chat", json={"query": "x", "filters": wrong}).status_code == 422
    answer = http.post("/peers/ann/chat", json={"query": "Where do I live?", "filters": {"session_id": "Oslo"}}).text
    assert ("Oslo" in answer, "Rome" in answer) == (True, False)
    http.put("/peers/ann/card", json={"peer_card": ["Name: Ann"]})
    context = http.get("/sessions/Rome/context?peer_target=ann&sessions=Rome&sessions=Bonn").json()
    assert "Oslo" not in context["peer_representation"]
    assert "Bonn" in context["peer_representation"]
    assert context["peer_card"] is None
    assert http.get("/sessions/Rome/context?peer_target=ann").json()["peer_card"] == ["Name: Ann"]
    for wrong_query in ("peer_target=ann&sessions=Rome&limit_to_session=true", "sessions=Rome", "scope=x"):
        assert http.get(f"/sessions/Rome/context?{wrong_query}").status_code == 422
    many = "&".join(f"sessions=s{n}" for n in range(1000))
    assert http.get(f"/sessions/Rome/context?peer_target=ann&sessions=Rome&{many}").status_code == 422


def test_answer_from_both_views_includes_each_conclusion_once(
    http: httpx.Client,
) -> None:
    http.post("/sessions", json={"id": "both", "peers": {"ann": {}, "bot": {"observe_others": True}}})
    say(http, "both", "I own a boat called Vega.")
    say(http, "elsewhere", "My boat is moored in Bergen.")
    settle(http)
    asked = {"query": "Where is my boat?", "target": "ann", "reasoning_level": "high"}
    alone = http.post("/peers/bot/chat", json=asked).json()["content"]
    assert (alone.count("Vega"), alone.count("Bergen")) == (1, 0)
    both = http.post("/peers/bot/chat", json={**asked, "with_own_view": True}).json()["content"]
    assert (both.count("Vega"), both.count("Bergen")) == (1, 1)
    say(http, "both", "My boat is red.", "My boat is old.", "My boat is slow.")
    settle(http)
    few = http.post("/peers/bot/chat", json={**asked, "reasoning_level": "minimal", "with_own_view": True}).json()
    concluded = few["content"].partition("Said:")[0].count("ann: ")
    assert concluded == 3, "what both know takes one place, not two"


def test_peer_is_quoted_where_the_observer_heard_it(http: httpx.Client) -> None:
    http.post("/sessions", json={"id": "open", "peers": {"ann": {}, "ben": {}}}).raise_for_status()
    say(http, "open", "The weather on the beach is fine.")
    say(http, "private", "The beach is where the treasure lies.")
    heard = http.post("/peers/ben/chat", json={"query": "beach", "target": "ann"}).json()["content"]
    assert ("weather" in heard, "treasure" in heard) == (True, False)
    own = http.post("/peers/ann/chat", json={"query": "beach"}).json()["content"]
    assert ("weather" in own, "treasure" in own) == (True, True)


def test_card_that_was_emptied_is_filled_by_the_next_dream(http: httpx.Client) -> None:
    conclude(http, "ann: My name is Ann.")
    http.put("/peers/ann/card", json={"peer_card": ["Name: Anna"]}).raise_for_status()
    dream = {"observer": "ann", "dream_type": "card_refresh"}
    for written, read in ((["Name: Anna"], ["Name: Anna"]), ([], ["ann: My name is Ann."])):
        assert http.put("/peers/ann/card", json={"peer_card": written}).json() == {"peer_card": written}
        assert http.post("/schedule_dream", json=dream).status_code == 204
        settle(http)
        assert http.get("/peers/ann/card").json() == {"peer_card": read}


def test_card_is_shown_unless_the_workspace_does_not_use_cards(http: httpx.Client) -> None:
    http.put("/peers/ann/card", json={"peer_card": ["Name: Ann"]})
    assert http.get("/peers/ann/context").json()["peer_card"] == ["Name: Ann"]
    http.put(itself(http), json={"configuration": {"peer_card": {"use": False}}})
    assert http.get("/peers/ann/context").json()["peer_card"] is None
    assert http.get("/sessions/s/context?peer_target=ann").json()["peer_card"] is None
    assert http.get("/peers/ann/card").json() == {"peer_card": ["Name: Ann"]}
    assert http.get("/peers/ann/card?target=nobody").json() == {"peer_card": None}


def test_dream_leaves_a_persons_card_alone_and_a_refresh_leaves_conclusions(http: httpx.Client) -> None:
    def dream(kind: str) -> None:
        http.post("/schedule_dream", json={"observer": "ann", "dream_type": kind}).raise_for_status()
        settle(http)

    conclude(http, *(f"I like song {n}" for n in range(50)), "I like song 1")
    dream("card_refresh")
    assert http.post("/conclusions/list").json()["total"] == 51, "what clients conclude stays as it was given"
    assert len(http.get("/peers/ann/card").json()["peer_card"]) == 40
    dream("omni")
    assert http.post("/conclusions/list").json()["total"] == 50, "what was said twice is one line"
    http.put("/peers/ann/card", json={"peer_card": ["mine"]})
    dream("omni")
    assert http.get("/peers/ann/card").json() == {"peer_card": ["mine"]}


def expected(sizes: list[int], short: tuple[int, int] | None, long: tuple[int, int] | None, budget: int) -> Any:
    """Compute the expected context: the summary (seq, tokens) within 40 %, then the newest messages since it."""
    room = int(0.4 * budget)
    chosen = None
    if long is not None and long[1] <= room and (short is None or long[1] > short[1]):
        chosen = long
    elif short is not None and 0 < short[1] <= room:
        chosen = short
    left = budget - (chosen[1] if chosen else 0)
    shown: list[int] = []
    for seq in range(len(sizes), (chosen[0] if chosen else 1) - 1, -1):
        if left < sizes[seq - 1] or budget <= 0:
            break
        left -= sizes[seq - 1]
        shown.insert(0, seq)
    return (chosen[1] if chosen else None), shown


summary_of = st.none() | st.tuples(st.integers(1, 100), st.integers(0, 60))


@pytest.mark.contract("9.1")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.integers(0, 12), min_size=1, max_size=100), summary_of, summary_of, st.integers(-5, 250))
def test_context_holds_the_summary_that_fits_and_the_newest_messages_since(
    tx: Tx, sizes: list[int], short: tuple[int, int] | None, long: tuple[int, int] | None, budget: int
) -> None:
    tx.exec_driver_sql("SAVEPOINT example")
    append_messages(tx, "w", "s", [draft("x", "ann") for _ in sizes], NOW)
    for seq, size in enumerate(sizes, start=1):
        tx.execute(text("UPDATE messages SET token_count = :size WHERE seq = :seq"), {"size": size, "seq": seq})
    made: dict[str, tuple[int, int] | None] = {}
    for kind, wanted in (("short", short), ("long", long)):
        made[kind] = (min(wanted[0], len(sizes)), wanted[1]) if wanted else None
        if found := made[kind]:
            session_id = get_session(tx, "w", "s").id
            summary = make_summary(tx, session_id, kind, found[0])
            assert summary is not None
            store_summary(tx, session_id, summary, NOW)
            change = {"size": found[1], "kind": kind}
            tx.execute(text("UPDATE summaries SET token_count = :size WHERE kind = :kind"), change)
    session = get_session(tx, "w", "s")
    window = fill_window(tx, session, budget, with_summary=True)
    told = (window.summary.token_count if window.summary else None), [row.seq for row in window.messages]
    assert told == expected(sizes, made["short"], made["long"], budget)
    bare = fill_window(tx, session, budget, with_summary=False)
    assert (None, [row.seq for row in bare.messages]) == expected(sizes, None, None, budget)
    tx.exec_driver_sql("ROLLBACK TO example")


def test_context_leaves_room_for_what_is_held_about_the_target(http: httpx.Client) -> None:
    sizes = [message["token_count"] for message in say(http, "talk", *(f"word {n}" for n in range(10)))]
    conclude(http, "a long sentence that takes some room in the context of the talk")
    http.put("/peers/ann/card", json={"peer_card": ["Name: Ann", "Likes: tea"]})

    def shown(**asked: Any) -> int:
        return len(http.get("/sessions/talk/context", params=asked).json()["messages"])

    assert shown(tokens=sum(sizes)) == 10
    assert shown(tokens=sum(sizes) - 1) == 9
    assert shown(tokens=0) == 0
    assert shown(tokens=100_000, peer_target="ann") == 10
    told = http.get("/sessions/talk/context?peer_target=ann").json()
    about = count_tokens(told["peer_representation"]) + count_tokens("Name: Ann\nLikes: tea")
    assert shown(tokens=sum(sizes) + about, peer_target="ann") == 10
    assert shown(tokens=sum(sizes) + about - 1, peer_target="ann") == 9
    assert http.get("/sessions/talk/context?tokens=-1").status_code == 422


@pytest.fixture
def summed(http: httpx.Client) -> httpx.Client:
    """Create a session of 40 messages with a summary every 10 and a long one every 20."""
    summary = {"messages_per_short_summary": 10, "messages_per_long_summary": 20}
    http.post("/sessions", json={"id": "talk", "configuration": {"summary": summary}}).raise_for_status()
    for start in range(0, 44, 4):
        say(http, "talk", *(f"In year {n} I built house number {n}." for n in range(start, start + 4)))
    settle(http)
    return http


def test_summaries_come_as_often_as_is_configured(summed: httpx.Client) -> None:
    messages = summed.post("/sessions/talk/messages/list?size=100").json()["items"]
    told = summed.get("/sessions/talk/summaries").json()
    for kind in ("short", "long"):
        found = told[f"{kind}_summary"]
        assert found["message_id"] == messages[39]["id"]
        assert found["summary_type"] == f"honcho_chat_summary_{kind}"
        assert found["content"].count("house number") == 40
        assert found["created_at"].endswith("Z")
        assert "." not in found["created_at"]
        assert found["token_count"] > 0
    context = summed.get("/sessions/talk/context?tokens=5000").json()
    assert context["summary"] == told["short_summary"], "the long one is no longer"
    assert [message["id"] for message in context["messages"]] == [message["id"] for message in messages[39:]]
    assert len(summed.get("/sessions/talk/context?summary=false").json()["messages"]) == 44


FACT = "My sister Ottilie is allergic to walnuts."


def told_in(context: dict[str, Any]) -> str:
    """Return all text in a context."""
    parts = [context["summary"]["content"] if context["summary"] else "", context["peer_representation"] or ""]
    return "\n".join([*parts, *(message["content"] for message in context["messages"])])


@pytest.mark.parametrize("filler", ["Message number {n}.", "In year {n} I built house number {n} for my family."])
@pytest.mark.parametrize(("count", "place"), [(131, 0), (1000, 0), (1000, 400)])
def test_fact_of_long_ago_is_still_in_the_context(http: httpx.Client, filler: str, count: int, place: int) -> None:
    off = {"reasoning": {"enabled": False}}
    http.post("/sessions", json={"id": "talk", "configuration": off}).raise_for_status()
    texts = [filler.format(n=n) for n in range(count)]
    texts[place] = f"Hello again! {FACT} What do you think?"
    for start in range(0, count, 50):
        say(http, "talk", *texts[start : start + 50])
    settle(http)
    told = http.get("/sessions/talk/summaries").json()
    for kind, most in (("short", 1000), ("long", 4000)):
        assert FACT in told[f"{kind}_summary"]["content"]
        assert told[f"{kind}_summary"]["token_count"] <= most
    for tokens in (500, 2000, 3000, 100_000):
        context = http.get(f"/sessions/talk/context?tokens={tokens}").json()
        assert FACT in told_in(context)
        assert sum(one["token_count"] for one in (context["summary"], *context["messages"]) if one) <= tokens
        assert texts[-1] == context["messages"][-1]["content"]


def test_summary_that_forgot_the_beginning_is_made_anew(tx: Tx) -> None:
    append_messages(tx, "w", "s", [draft(FACT, "ann"), *(draft(f"Message {n}.", "ann") for n in range(39))], NOW)
    session_id = get_session(tx, "w", "s").id
    first = make_summary(tx, session_id, "short", 20)
    assert first is not None
    old = replace(first, content="Extract of 19 messages (made without a model):\n- ann: Message 3.")
    store_summary(tx, session_id, old, NOW)
    second = make_summary(tx, session_id, "short", 40)
    assert second is not None
    assert second.content.count("\n- ann: ") == 40
    assert FACT in second.content
    store_summary(tx, session_id, second, NOW)
    assert make_summary(tx, session_id, "short", 40) is None, "there is nothing new"


def test_summary_takes_the_one_before_it_along(tx: Tx) -> None:
    append_messages(tx, "w", "s", [draft(f"Message {n}.", "ann") for n in range(40)], NOW)
    session_id = get_session(tx, "w", "s").id
    first = make_summary(tx, session_id, "long", 20)
    assert first is not None
    store_summary(tx, session_id, replace(first, content=first.content.replace("Message 7.", FACT)), NOW)
    second = make_summary(tx, session_id, "long", 40)
    assert second is not None
    assert (FACT in second.content, "Message 7." in second.content) == (True, False)


@pytest.mark.parametrize("tokens", [600, 2000])
def test_conclusions_that_repeat_the_session_leave_room_for_it(http: httpx.Client, tokens: int) -> None:
    facts = [f"I own house number {n} in the old town." for n in range(70)]
    say(http, "talk", *facts)
    say(http, "before", "I was born in Bonn.")
    settle(http)
    asked: dict[str, str | int] = {"tokens": tokens, "peer_target": "ann"}
    context = http.get("/sessions/talk/context", params=asked).json()
    assert context["messages"][-1]["content"] == facts[-1]
    assert "born in Bonn" in context["peer_representation"], "what the session does not say is shown"
    sizes = [
        count_tokens(context["peer_representation"]),
        context["summary"]["token_count"] if context["summary"] else 0,
    ]
    assert sum(sizes) + sum(message["token_count"] for message in context["messages"]) <= tokens
    if tokens == 2000:
        assert [fact for fact in facts if fact not in told_in(context)] == []
    roomy = http.get("/sessions/talk/context?peer_target=ann&summary=false").json()
    assert roomy["peer_representation"].count("house number") == len(roomy["messages"]) == 70


def test_no_summary_is_made_where_summaries_are_switched_off(quiet: httpx.Client) -> None:
    off = {"summary": {"enabled": False}, "reasoning": {"enabled": False}}
    quiet.post("/sessions", json={"id": "talk", "configuration": off}).raise_for_status()
    say(quiet, "talk", *(f"message {n}" for n in range(60)))
    assert quiet.get("/queue/status").json()["total_work_units"] == 0
    quiet.post("/sessions", json={"id": "more", "configuration": {"reasoning": {"enabled": False}}})
    say(quiet, "more", *(f"message {n}" for n in range(19)))
    assert quiet.get("/queue/status").json()["total_work_units"] == 0
    say(quiet, "more", "message 20")
    assert quiet.get("/queue/status").json()["total_work_units"] == 1
    say(quiet, "more", *(f"message {n}" for n in range(40)))
    assert quiet.get("/queue/status").json()["total_work_units"] == 3


def test_workspace_is_asked_and_the_closest_of_all_peers_answers(http: httpx.Client) -> None:
    for number in range(6):
        say(
            http,
            "talk",
            *(f"I have a garden with {tree} trees." for tree in ("apple", "plum", "pear", "fig", "nut")),
            peer=f"p{number}",
        )
    say(http, "talk", "I have a zeppelin in my garden.", peer="last")
    settle(http)
    asked = {"query": "Who has a zeppelin in the garden?", "reasoning_level": "minimal", "include_evidence": True}
    found = http.post("/chat", json=asked).json()["evidence"]["conclusions"]
    assert found[0]["content"] == "last: I have a zeppelin in my garden."
