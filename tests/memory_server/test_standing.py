"""Conclusions that always hold of a person are part of the evidence for any question."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from hermes.memory_server.engine.sentences import is_statement
from hermes.memory_server.engine.standing import MAX_PER_KIND
from hermes.memory_server.engine.standing_kinds import standing_kind
from tests.memory_server.talking import conclude, say, settle

pytestmark = pytest.mark.contract("7.3")
KINDS = {
    "name": [
        "My name is Rosa Lind.",
        "I'm Rosa.",
        "Ich heiße Rosa.",
        "Me llamo Rosa.",
        "Je m'appelle Rosa.",
        "我叫罗莎。",
    ],
    "instruction": [
        *("Always answer in metric units.", "From now on, keep replies short.", "Please never suggest pork."),
        *("Antworte mir immer auf Deutsch.", "Respóndeme siempre en español.", "Ne me recommande jamais de viande."),
        "请始终用中文回答我。",
    ],
    "identity": [
        *("I live in Ghent.", "I'm a carpenter.", "I am 41 years old.", "Ich wohne in Kiel.", "Ich bin Lehrerin."),
        *("Vivo en Cádiz.", "Soy enfermera.", "J'habite à Lille.", "Je suis infirmière.", "我住在成都。"),
    ],
    "health": [
        *("I'm allergic to peanuts.", "I have type 1 diabetes.", "I can't eat gluten.", "Ich bin Vegetarierin."),
        *("Soy alérgica al marisco.", "J'ai de l'asthme.", "我对花生过敏。"),
    ],
    "family": [
        *("My daughter is called Lea.", "I have two sons.", "I'm married.", "Meine Tochter heißt Lea."),
        *("Tengo dos hijos.", "Ma fille s'appelle Zoé.", "我的女儿叫小美。"),
    ],
    "wish": [
        "I'd prefer trains to planes.",
        "Mein Traum ist ein Boot.",
        "Mi sueño es un barco.",
        "Je préfère le train.",
    ],
}
PASSING = [
    *("I'm so tired today.", "I'm OK.", "I had pasta for lunch.", "My sister is ill today.", "I'm a big fan of jazz."),
    *(
        "Never mind, I found my keys.",
        "Always a pleasure.",
        "I watched a film on cancer research.",
        "I live for coffee.",
    ),
    *("Ich war heute im Kino.", "Ayer comí pasta.", "J'ai mangé une pomme.", "我今天看了一部电影。"),
]
SECRETS = [
    *("My name is Rosa and my password is hunter2.", "I live in Ghent, the PIN of my card is 4711."),
    *("I work at the bank, account number 12 3456 7890.", "Ich heiße Rosa, mein Passwort ist geheim."),
    *("Vivo en Cádiz y mi contraseña es sol.", "J'habite à Lille, mon mot de passe est mer.", "我叫罗莎，密码是太阳。"),
]


@pytest.mark.parametrize(("kind", "sentence"), [(kind, one) for kind, listed in KINDS.items() for one in listed])
def test_lasting_facts_have_a_kind_and_are_learnt(kind: str, sentence: str) -> None:
    assert standing_kind(sentence) == standing_kind(f"rosa: {sentence}") == kind
    assert is_statement(sentence)


@pytest.mark.contract("7.10")
@pytest.mark.parametrize(
    ("sentence", "kind"), [*((one, None) for one in PASSING), *((one, "secret") for one in SECRETS)]
)
def test_small_talk_is_of_no_kind_and_secrets_do_not_stand(sentence: str, kind: str | None) -> None:
    assert standing_kind(sentence) == kind
    assert kind not in MAX_PER_KIND


def standing(http: httpx.Client, **more: Any) -> list[tuple[str, str]]:
    views = [{"observer_id": "ann", "observed_id": "ann"}]
    told = http.post("/ext/evidence", json={"query": "How is the weather?", "views": views, **more})
    assert told.status_code == 200, told.text
    return [(one["kind"], one["content"].removeprefix("ann: ")) for one in told.json()["standing"]]


@pytest.mark.processes
def test_what_always_holds_comes_in_order_of_worth_the_newest_first(http: httpx.Client) -> None:
    say(http, "talk", "My dream is a boat.", "I live in Ghent.", "I have two sons.", "My name is Ann Lind.")
    say(
        http, "talk", *(f"I had lunch number {number}." for number in range(60)), "I moved to Oslo.", "I live in Ghent."
    )
    settle(http)
    assert standing(http) == [
        ("name", "My name is Ann Lind."),
        ("identity", "I live in Ghent."),
        ("family", "I have two sons."),
        ("wish", "My dream is a boat."),
    ]


@pytest.mark.processes
def test_older_lines_of_one_kind_do_not_crowd_out_another(http: httpx.Client) -> None:
    say(http, "talk", "My name is Ann Lind.", *(f"I work at office number {number}." for number in range(20)))
    settle(http)
    found = standing(http)
    assert found[0] == ("name", "My name is Ann Lind.")
    assert found[1:] == [
        ("identity", f"I work at office number {number}.") for number in range(19, 19 - MAX_PER_KIND["identity"], -1)
    ]


@pytest.mark.processes
def test_standing_lines_follow_corrections_deletions_and_the_session_asked_for(http: httpx.Client) -> None:
    [first] = conclude(http, "I live in Ghent.")
    http.put(f"/ext/conclusions/{first['id']}", json={"content": "I like Ghent."}).raise_for_status()
    assert standing(http) == []
    http.put(f"/ext/conclusions/{first['id']}", json={"content": "I live in Oslo."}).raise_for_status()
    assert standing(http) == [("identity", "I live in Oslo.")]
    said = say(http, "talk", "I'm a nurse.")
    settle(http)
    assert standing(http, session_id="talk") == [("identity", "I'm a nurse.")]
    http.delete(f"/ext/sessions/talk/messages/{said[0]['id']}").raise_for_status()
    assert standing(http, session_id="talk") == []
    http.delete(f"/conclusions/{first['id']}").raise_for_status()
    assert standing(http) == []
