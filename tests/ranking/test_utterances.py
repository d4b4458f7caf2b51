"""What answers where no model is configured: which texts want an answer."""

from __future__ import annotations

import pytest

from hermes.ranking.utterances import is_question


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
