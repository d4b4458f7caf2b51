"""Kinds of utterances: questions, small talk, reported speech, secrets."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hermes.ranking.personal import find_name, find_topic, is_general
from hermes.ranking.traits import find_small_talk, holds_secret, is_question, only_asks

SOURCE = Path(__file__).parents[2] / "src/hermes"


@pytest.mark.contract("10.5")
@pytest.mark.parametrize(
    "text",
    [
        "what is my cat called",
        "remind me what my dog is called",
        "wie heisst mein bruder",
        "Wogegen bin ich allergisch",
        "comment s'appelle ma sœur",
        "où habite ma sœur ?",
        "como se llama mi perro",
        "¿Dónde vivo",
    ],
)
def test_a_question_is_known_without_its_mark_in_several_languages(text: str) -> None:
    assert is_question(text)


@pytest.mark.contract("10.5")
@pytest.mark.parametrize(
    "text",
    [
        "When I was five I lived in Gozo.",
        "Wie ich schon sagte, wohne ich in Bern",
        "Quand je suis fatigué, je bois du thé",
        "Como con mi hermana los lunes",
        "Remind me to call my mother",
        "Wo wir sind, ist es kalt.",
    ],
)
def test_what_only_begins_like_a_question_is_said_and_not_asked(text: str) -> None:
    assert not is_question(text)


@pytest.mark.contract("10.5")
@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("Hello!", "greeting"),
        ("guten Morgen", "greeting"),
        ("buenos días", "greeting"),
        ("ça va ?", "greeting"),
        ("你好", "greeting"),
        ("thank you so much", "thanks"),
        ("谢谢", "thanks"),
        ("gute Nacht", "farewell"),
        ("ok", "nod"),
        ("Hi! My dog is sick", None),
        ("Morgen gehe ich schwimmen", None),
        ("good bread is rare", None),
        ("you", None),
    ],
)
def test_small_talk_is_known_from_its_first_word_to_its_last(text: str, kind: str | None) -> None:
    assert find_small_talk(text) == kind


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("My name is Anna Maria Weber.", "Anna Maria Weber"),
        ("my name is nina", "Nina"),
        ("Hallo, ich bin Lena", "Lena"),
        ("Name: Nina", "Nina"),
        ("is called Ada", "Ada"),
        ("I'm Nina and I live in Lisbon.", "Nina"),
        ("Ich bin Nina und wohne in Köln.", "Nina"),
        ("Soy Nina.", "Nina"),
        ("Je suis Anna-Lena", "Anna-Lena"),
        ("我叫Nina。", "Nina"),
        ("I'm Ahmed.", "Ahmed"),
        ("I'm German.", None),
        ("I'm Tired.", None),
        ("My name is Sterling.", "Sterling"),
        ("I'm Norwegian", None),
        ("Ich bin Deutsche", None),
        ("Soy Mexicana", None),
        ("Je suis Fatiguée", None),
        ("Ich bin Lehrer", None),
        ("My mother's name is Helga", None),
        ("My boss said: my name is Karen", None),
        ("我是学生。", None),
    ],
)
def test_a_name_is_what_people_call_themselves(text: str, name: str | None) -> None:
    assert find_name([text]) == (None if name is None else (name, text))


def test_a_name_said_outright_wins_over_one_that_is_likely() -> None:
    assert find_name(["I'm Tom.", "Please call me Thomas"]) == ("Thomas", "Please call me Thomas")


@pytest.mark.parametrize("text", ["What is my dog's name?", "What did I say about school?", "Where did I live?"])
def test_a_question_with_words_of_its_own_has_no_topic(text: str) -> None:
    assert find_topic(text) is None
    assert not is_general(text)


@pytest.mark.parametrize(
    ("text", "asks"),
    [
        ("What is my dog called?", True),
        ("what is my cat called", True),
        ("I moved to Ghent last week, do you know a good baker?", False),
        ("Do I? I like tea.", False),
        ("is called Ada", False),
    ],
)
def test_who_tells_something_with_a_question_does_not_only_ask(text: str, asks: bool) -> None:
    assert only_asks(text) == asks


def test_secrets_are_known_by_their_names() -> None:
    said = ["The wifi password is x", "my PIN is 4711", "Das Passwort lautet x", "La contraseña es x", "密码是x"]
    assert all(map(holds_secret, said))
    assert not any(map(holds_secret, ["I pinned the note to the wall", "We passed the exam", "My key opens the door"]))


def test_words_of_small_talk_are_listed_in_one_module() -> None:
    listing = re.compile(r"\b(?:danke|gracias|merci)\b|谢谢")
    found = [path.name for path in SOURCE.rglob("*.py") if listing.search(path.read_text(encoding="utf-8"))]
    assert found == ["traits.py"]
