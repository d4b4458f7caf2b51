"""Truth over time: a later statement changes or contradicts an earlier one, and this can be undone."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from honcho import Honcho

from hermes.memory_server.engine.dialectic import HEAD
from tests.memory_server.talking import conclude, held, itself, say, settle

pytestmark = pytest.mark.contract("9.5")
LISBON, PORTO, STAYED = "I live in Lisbon.", "I moved to Porto last week.", "Actually we stayed in Lisbon."


def tell(http: httpx.Client, *texts: str, session: str = "s") -> None:
    """Send each text on a different day, and wait until it is learned."""
    for text in texts:
        day = http.post(f"/sessions/{session}/messages/list", json={}).json().get("total", 0) + 1
        said = {"content": text, "peer_id": "ann", "created_at": f"2026-03-{day:02}T10:00:00Z"}
        assert http.post(f"/sessions/{session}/messages", json={"messages": [said]}).is_success
        settle(http)


def listed(http: httpx.Client) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = http.post("/conclusions/list", json={}).json()["items"]
    return found


def by_text(http: httpx.Client, text: str) -> dict[str, Any]:
    [found] = [one for one in listed(http) if one["content"].endswith(text)]
    return found


def query(http: httpx.Client, text: str, top_k: int = 10) -> list[str]:
    body = {"query": text, "top_k": top_k, "filters": {"observer_id": "ann", "observed_id": "ann"}}
    answer = http.post("/conclusions/query", json=body)
    assert answer.status_code == 200, answer.text
    return [one["content"].removeprefix("ann: ") for one in answer.json()]


def history(http: httpx.Client, text: str) -> dict[str, Any]:
    answer = http.get(f"/ext/conclusions/{by_text(http, text)['id']}/history")
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def test_a_move_ends_the_older_home_and_a_correction_ends_the_move(http: httpx.Client) -> None:
    tell(http, LISBON, PORTO)
    assert query(http, "Where do I live?", 1) == [PORTO], "the older one fits the words better"
    assert by_text(http, LISBON)["superseded_by"] == by_text(http, PORTO)["id"]
    assert by_text(http, LISBON)["valid_until"] == "2026-03-01T10:00:00Z", "not before it was said"
    told = held(http, "ann")
    assert f"[2026-03-02 10:00:00] ann: {PORTO}\n   until 1 March 2026: ann: {LISBON}" in told
    tell(http, STAYED)
    assert query(http, "Where do I live?") == [STAYED, PORTO, LISBON]
    told = held(http, "ann")
    assert f"ann: {STAYED}\n   until 3 March 2026: ann: {PORTO}\n   until 1 March 2026: ann: {LISBON}" in told
    assert [one["content"] for one in listed(http)] == [f"ann: {text}" for text in (STAYED, PORTO, LISBON)]


@pytest.mark.parametrize(
    ("both", "name", "moved"),
    [
        ("I'm Nina and I live in Lisbon.", "I'm Nina", PORTO),
        ("I'm Nina and live in Lisbon.", "I'm Nina", PORTO),
        ("Ich heiße Nina und wohne in Lissabon.", "Ich heiße Nina", "Ich bin letzte Woche nach Porto gezogen."),
        ("Me llamo Nina y vivo en Lisboa.", "Me llamo Nina", "Me mudé a Oporto."),
        ("Je m'appelle Nina et j'habite à Lisbonne.", "Je m'appelle Nina", "J'ai déménagé à Porto."),
        ("我叫小明，住在里斯本。", "我叫小明", "我上周搬到了波尔图。"),
    ],
)
def test_a_clause_that_changed_leaves_the_others_of_its_sentence(
    http: httpx.Client, both: str, name: str, moved: str
) -> None:
    tell(http, f"Hi! {both}", moved)
    card = [f"ann: {moved}", f"ann: {name}"]
    assert http.get("/peers/ann/card").json()["peer_card"] == card
    assert by_text(http, name)["superseded_by"] is None
    [ended] = [one for one in listed(http) if one["superseded_by"]]
    assert ended["content"].removeprefix("ann: ") in both, "each clause is a quote"


@pytest.mark.parametrize(
    ("told", "moved", "name", "home"),
    [
        ("Hi! I'm Nina and I live in Lisbon.", PORTO, "What is my name?", "Where do I live?"),
        (
            "Ich bin Nina und wohne in Lissabon.",
            "Ich bin letzte Woche nach Porto gezogen.",
            "Wie heiße ich?",
            "Wo wohne ich?",
        ),
        ("Soy Nina y vivo en Lisboa.", "Me mudé a Oporto.", "¿Cómo me llamo?", "¿Dónde vivo?"),
        ("Je suis Nina et j'habite à Lyon.", "J'ai déménagé à Porto.", "Comment je m'appelle ?", "Où j'habite ?"),
        ("我叫Nina，住在里斯本。", "我上周搬到了波尔图。", "我叫什么名字？", "我住在哪里？"),
    ],
)
def test_a_message_comes_behind_its_change_only_where_it_is_asked_about(
    http: httpx.Client, told: str, moved: str, name: str, home: str
) -> None:
    tell(http, told, moved)
    for question, first in ((name, told), (home, moved)):
        found = [one["content"] for one in http.post("/search", json={"query": question}).json()]
        assert found[0] == first, question


async def test_chat_says_what_holds_before_the_message_that_it_changed(http: httpx.Client, honcho: Honcho) -> None:
    tell(http, "Hi! I'm Nina and I live in Lisbon.", "I have a dog called Rex.", PORTO, "I'm Tired today.")
    lines = str(honcho.peer("ann").chat("Where do I live?")).splitlines()
    assert PORTO in next(line for line in lines if line.startswith("- "))


def marked(http: httpx.Client, query: str, **where: Any) -> dict[str, list[str]]:
    """Return the evidence messages for a question, each with the newer statements that replace its own."""
    answer = http.post("/ext/evidence", json={"query": query, **where})
    assert answer.status_code == 200, answer.text
    found = answer.json()["messages"]
    return {one["message"]["content"]: [newer["newer"] for newer in one["superseded"]] for one in found}


def test_evidence_marks_a_message_whose_statement_was_superseded(http: httpx.Client) -> None:
    tell(http, LISBON, "Lisbon is sunny.", PORTO)
    found = marked(http, "Where do I live, in Lisbon?", heard_by="ann")
    assert found == {PORTO: [], LISBON: [f"ann: {PORTO}"], "Lisbon is sunny.": []}
    undone = history(http, LISBON)["supersessions"][0]["id"]
    assert http.delete(f"/ext/supersessions/{undone}").is_success
    assert marked(http, "Where do I live, in Lisbon?")[LISBON] == []


def test_evidence_says_nothing_of_a_change_that_was_not_heard(http: httpx.Client) -> None:
    say(http, "both", "Hello Ann.", peer="bob")
    tell(http, LISBON, session="both")
    tell(http, "Hello.", "Hello again.", PORTO, session="alone")
    assert marked(http, "Who lives in Lisbon?", heard_by="bob")[LISBON] == []
    assert PORTO not in marked(http, "Who lives in Lisbon?", heard_by="bob")
    assert marked(http, "Who lives in Lisbon?", session_id="both")[LISBON] == []
    assert marked(http, "Who lives in Lisbon?", heard_by="ann")[LISBON] == [f"ann: {PORTO}"]


def test_change_does_not_bring_a_message_that_holds_a_secret(http: httpx.Client) -> None:
    secret = f"{PORTO} The PIN of my card is 4821."
    tell(http, LISBON, secret)
    assert marked(http, "Where do I live?") == {LISBON: [f"ann: {PORTO}"]}


def test_mark_of_a_superseded_statement_shows_no_secret(http: httpx.Client) -> None:
    tell(http, LISBON, "I moved to Porto, and my door code is 4821.")
    assert by_text(http, LISBON)["superseded_by"] is not None
    assert marked(http, "Where do I live?") == {LISBON: []}


def test_of_two_changed_clauses_the_one_that_is_asked_about_counts(http: httpx.Client) -> None:
    sold = "I drive a Zoe now."
    tell(http, "I live in Lisbon and I drive a Skoda.", sold, PORTO)
    found = http.post("/search", json={"query": "Do I drive a Skoda?"}).json()
    assert found[0]["content"] == sold


@pytest.mark.parametrize(
    ("told", "question"),
    [
        ("I'm Nina.", "What is my name?"),
        ("Hi! I'm Nina and I live in Lisbon.", "What is my name?"),
        ("Ich bin Nina.", "Wie heiße ich?"),
        ("Soy Nina.", "¿Cómo me llamo?"),
        ("Je m'appelle Nina.", "Quel est mon nom ?"),
        ("我叫Nina。", "我的名字是什么？"),
    ],
)
async def test_chat_says_a_name_that_was_given_in_other_words(
    http: httpx.Client, honcho: Honcho, told: str, question: str
) -> None:
    tell(http, told, PORTO, "I have a dog called Rex.")
    lines = str(honcho.peer("ann").chat(question)).splitlines()
    assert lines[0] == HEAD
    assert "Nina" in next(line for line in lines if line.startswith("- "))


@pytest.mark.parametrize("told", ["I'm Tired.", "I'm German.", "Ich bin Lehrer.", "Soy Mexicana.", "Je suis Belge."])
async def test_what_one_is_is_no_name(http: httpx.Client, honcho: Honcho, told: str) -> None:
    tell(http, told)
    assert HEAD not in str(honcho.peer("ann").chat("What is my name?"))


def test_what_is_said_of_one_thing_stays_one_sentence(http: httpx.Client) -> None:
    told = "I live in Berlin and in summer I live in Rome."
    tell(http, told)
    assert by_text(http, told)["superseded_by"] is None


def test_times_of_a_conclusion_are_told(http: httpx.Client) -> None:
    tell(http, LISBON, PORTO)
    told = history(http, PORTO)
    assert (told["said_at"], told["happened_at"]) == ("2026-03-02T10:00:00Z", "2026-02-23T00:00:00Z")
    assert told["valid_from"] == told["happened_at"]
    assert told["valid_until"] is None
    assert told["learnt_at"]
    [pair] = told["supersessions"]
    assert (pair["kind"], pair["why"], pair["undone_at"]) == ("change", "home", None)
    assert (pair["older_content"], pair["newer_content"]) == (f"ann: {LISBON}", f"ann: {PORTO}")
    assert history(http, LISBON)["supersessions"] == [pair]


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ("My bank is Nationwide.", "My bank is Monzo."),
        ("My phone number is 0123 456.", "My new phone number is 0987 654."),
        ("I work at Bolt.", "I've started at Calder Rivers."),
        ("I work as a nurse.", "I now work as a midwife."),
        ("I'm 37 years old.", "I turned 38."),
        ("I drive a Skoda.", "I drive a Zoe now."),
        ("I have a Skoda Fabia.", "I sold the Fabia to a student."),
        ("I like coffee.", "I don't like coffee any more."),
        ("Our wedding in Leeds is on 16 May.", "We moved our wedding in Leeds to 6 June."),
        ("Meine Bank heißt Sparkasse.", "Meine Bank heißt jetzt Monzo."),
        ("Ich wohne in Köln.", "Ich bin letzte Woche nach Porto gezogen."),
        ("Yo vivo en Madrid.", "Me mudé a Sevilla, mi ciudad."),
        ("J'habite à Lyon.", "J'ai déménagé à Paris la semaine dernière."),
        ("我住在上海。", "我上周搬到了北京。"),
        ("My brother Pieter lives in Rotterdam.", "My brother Pieter moved to Delft."),
    ],
)
def test_another_value_of_the_same_attribute_supersedes(http: httpx.Client, older: str, newer: str) -> None:
    tell(http, older, newer)
    assert by_text(http, older)["superseded_by"] == by_text(http, newer)["id"]


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ("I like coffee.", "I like tea."),
        ("I live in Lisbon.", "My brother Pieter lives in Rotterdam."),
        ("I live in Lisbon.", "I moved my meeting to Friday."),
        ("My sister is called Ann.", "My sister is called Berta."),
        ("My car is a Skoda.", "My car is 10 years old."),
        ("I have a cat.", "I have a dog."),
        ("I live in Sheffield.", "I live in Walkley in Sheffield."),
        ("I work at Bolt.", "We stayed in Lisbon for three nights."),
    ],
)
def test_what_can_both_be_true_supersedes_nothing(http: httpx.Client, older: str, newer: str) -> None:
    tell(http, older, newer)
    assert [one["superseded_by"] for one in listed(http)] == [None, None]


def test_a_contradiction_without_a_word_of_change_is_brought_with_both_sides(http: httpx.Client) -> None:
    tell(http, "I like oysters.", "I don't like oysters.")
    assert {one["superseded_by"] for one in listed(http)} == {None}
    [pair] = history(http, "I like oysters.")["supersessions"]
    assert pair["kind"] == "contradiction"
    assert sorted(query(http, "What about oysters?", 2)) == ["I don't like oysters.", "I like oysters."]


def test_an_undone_change_is_not_made_again(http: httpx.Client) -> None:
    tell(http, LISBON, PORTO)
    [pair] = history(http, PORTO)["supersessions"]
    undone = http.delete(f"/ext/supersessions/{pair['id']}")
    assert undone.status_code == 200
    assert undone.json()["undone_at"]
    assert http.delete(f"/ext/supersessions/{pair['id']}").json() == undone.json(), "twice is once"
    assert by_text(http, LISBON)["superseded_by"] is None
    tell(http, PORTO, session="other")
    assert {one["superseded_by"] for one in listed(http)} == {None}
    assert http.delete("/ext/supersessions/nobody").status_code == 404


def test_what_superseded_it_is_deleted_and_the_older_one_holds_again(http: httpx.Client) -> None:
    tell(http, LISBON)
    tell(http, PORTO, session="other")
    assert by_text(http, LISBON)["superseded_by"]
    assert http.delete("/sessions/other").is_success
    assert by_text(http, LISBON)["superseded_by"] is None
    settle(http)
    tell(http, PORTO, PORTO, session="third")
    assert by_text(http, LISBON)["superseded_by"] == by_text(http, PORTO)["id"]
    assert http.delete(f"/conclusions/{by_text(http, PORTO)['id']}").is_success
    assert by_text(http, LISBON)["superseded_by"] is None


def test_what_is_said_again_holds_again(http: httpx.Client) -> None:
    tell(http, LISBON, PORTO, LISBON)
    assert query(http, "Where do I live?", 1) == [LISBON]
    assert by_text(http, PORTO)["superseded_by"] in {one["id"] for one in listed(http)}


def test_an_older_message_that_comes_late_is_superseded_at_once(http: httpx.Client) -> None:
    tell(http, PORTO)
    late = {"content": LISBON, "peer_id": "ann", "created_at": "2020-01-01T00:00:00Z"}
    http.post("/sessions/s/messages", json={"messages": [late]})
    settle(http)
    assert by_text(http, LISBON)["superseded_by"] == by_text(http, PORTO)["id"]


def test_an_edited_conclusion_is_compared_anew(http: httpx.Client) -> None:
    [first] = conclude(http, "ann lives in Lisbon.")
    [second] = conclude(http, "ann likes rain.")
    changed = http.put(f"/ext/conclusions/{second['id']}", json={"content": "I moved to Porto."})
    assert changed.is_success
    http.put(f"/ext/conclusions/{first['id']}", json={"content": "I live in Lisbon."})
    assert by_text(http, "I live in Lisbon.")["superseded_by"] == second["id"]


def test_question_for_what_was_before_gets_the_older_one_first(http: httpx.Client) -> None:
    tell(http, LISBON, PORTO)
    asked = "Where did I live before I moved to Porto?"
    assert query(http, asked, 1) == [LISBON]
    found = http.post("/search", json={"query": asked, "limit": 2}).json()
    assert [one["content"] for one in found] == [LISBON, PORTO]


def test_messages_are_found_with_the_newer_value_first(http: httpx.Client) -> None:
    tell(http, "We keep 4 chickens in the garden.", "The chickens in our garden are now 7.")
    found = http.post("/search", json={"query": "How many chickens are in our garden?", "limit": 1}).json()
    assert "now 7" in found[0]["content"]


def test_the_newest_of_several_changes_is_found_although_few_messages_are_read(http: httpx.Client) -> None:
    tell(http, "My boss is Olga.", "I report to Samir.", "I now report to Rosa.")
    other = [{"content": f"The boss, number {n}, is out.", "peer_id": "ann"} for n in range(9)]
    assert http.post("/sessions/other/messages", json={"messages": other}).is_success
    found = http.post("/search", json={"query": "Who is my boss?", "limit": 1}).json()
    assert found[0]["content"].endswith("Rosa.")


def test_the_same_sentence_in_three_sessions_is_one_line_with_all_sources(http: httpx.Client) -> None:
    for session in ("one", "two", "three"):
        say(http, session, "I live in Malta.")
    settle(http)
    [line] = listed(http)
    assert line["times_derived"] == 3
    sources = http.get(f"/ext/conclusions/{line['id']}/messages").json()["items"]
    assert {one["session_id"] for one in sources} == {"one", "two", "three"}
    assert held(http, "ann").count("Malta") == 1
    assert query(http, "Malta?") == ["I live in Malta."]
    assert http.delete("/sessions/three").is_success
    assert [one["times_derived"] for one in listed(http)] == [2], "the others still say it"
    filtered = http.post("/conclusions/list", json={"filters": {"session_id": "one"}}).json()["items"]
    assert [one["session_id"] for one in filtered] == ["one"]


def card(http: httpx.Client) -> list[str] | None:
    lines: list[str] | None = http.get("/peers/ann/card").json()["peer_card"]
    return lines


def test_a_card_is_kept_up_without_a_dream_and_what_was_superseded_leaves(http: httpx.Client) -> None:
    tell(http, LISBON, "I like figs.", PORTO)
    assert card(http) == [f"ann: {PORTO}"], "what is liked comes with a dream"
    assert http.get("/sessions/s/context?peer_target=ann").json()["peer_card"] == card(http)
    tell(http, STAYED)
    assert card(http) == [f"ann: {STAYED}"]


def test_a_card_that_a_person_wrote_is_left_alone(http: httpx.Client) -> None:
    assert http.put("/peers/ann/card", json={"peer_card": ["mine"]}).is_success
    tell(http, LISBON)
    assert card(http) == ["mine"]


def test_no_card_is_made_where_the_workspace_makes_none(http: httpx.Client) -> None:
    assert http.put(itself(http), json={"configuration": {"peer_card": {"create": False}}}).is_success
    tell(http, LISBON)
    assert card(http) is None
