"""Later statements about the same thing rank first if a question asks for the present state."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from hermes.ranking.scoring import Floats
from hermes.ranking.successors import SaidStatement, holds_wanted, put_successors_first

ASKED: Floats = np.array([1.0, 0.0, 0.0], dtype=np.float32)


def towards(angle: float, aside: float = 0.0) -> Floats:
    """Return a vector whose distance to the question grows with the angle."""
    made = np.array([np.cos(angle), np.sin(angle), aside], dtype=np.float32)
    return made / np.linalg.norm(made)


def said(*texts: str, speakers: Sequence[str] = (), angles: Sequence[float] = ()) -> list[SaidStatement]:
    """Return statements of one speaker in order of time, all with nearly the same vector."""
    return [
        SaidStatement(
            text, speakers[n] if speakers else "ann", float(n), towards(angles[n] if angles else 0.5 + n / 10)
        )
        for n, text in enumerate(texts)
    ]


def test_later_statement_with_a_word_of_change_goes_first() -> None:
    found = said("Our vet is Dr. Simmons.", "The new vet is Dr. Abrams.")
    assert put_successors_first("Who is our vet?", ASKED, found) == [1, 0]


def test_later_one_without_a_word_of_change_goes_first_if_it_is_close_enough() -> None:
    found = said("Pepper weighs 22 pounds.", "Pepper gained weight, she's 31 pounds.")
    assert put_successors_first("How much does Pepper weigh?", ASKED, found) == [1, 0]
    apart = said("Pepper weighs 22 pounds.", "Pepper ate 31 pounds.", angles=(0.4, -0.6))
    assert put_successors_first("How much does Pepper weigh?", ASKED, apart) == [0, 1]


@pytest.mark.parametrize(
    "question", ["Who was our vet?", "Who was our first vet?", "Why is he our vet?", "Wer war unser Tierarzt?"]
)
def test_question_for_what_was_so_keeps_the_order(question: str) -> None:
    found = said("Our vet is Dr. Simmons.", "The new vet is Dr. Abrams.")
    assert put_successors_first(question, ASKED, found) == [0, 1]


@pytest.mark.parametrize(
    "question",
    [
        "Who was our vet before Dr. Abrams?",
        "Who was our vet originally?",
        "Wer war früher unser Tierarzt?",
        "¿Quién era antes nuestro veterinario?",
        "Qui était notre vétérinaire avant ?",
        "我们以前的兽医是谁?",
    ],
)
def test_question_for_what_was_before_gets_the_earlier_one_first(question: str) -> None:
    found = said("Our vet is Dr. Simmons.", "The new vet is Dr. Abrams.")[::-1]
    assert put_successors_first(question, ASKED, found) == [1, 0]
    assert put_successors_first(question, ASKED, found[::-1]) == [0, 1]


def test_what_another_says_an_earlier_one_and_a_question_go_not_first() -> None:
    texts = ("Our vet is Dr. Simmons.", "The new vet is Dr. Abrams.")
    assert put_successors_first("Who is our vet?", ASKED, said(*texts, speakers=("ann", "bob"))) == [0, 1]
    assert put_successors_first("Who is our vet?", ASKED, said(*reversed(texts))[::-1]) == [0, 1]
    asked = said("Our vet is Dr. Simmons.", "Is Ms Abrams the new vet?")
    assert put_successors_first("Who is our vet?", ASKED, asked) == [0, 1]


def test_later_one_that_lacks_what_is_asked_for_goes_not_first() -> None:
    found = said("The wedding is on October 4.", "The wedding is still on now, they are back together.")
    assert put_successors_first("When is the wedding?", ASKED, found) == [0, 1]
    assert holds_wanted("Where does Leo go to school?", "Leo starts at Tosa East.")
    assert not holds_wanted("Where does Leo go to school?", "Leo likes it there.")
    assert not holds_wanted("How many cats has she?", "She likes cats.")
    assert holds_wanted("Does she like cats?", "She likes cats.")


def test_long_text_and_one_without_a_direction_stay_where_they_are() -> None:
    long = said("Our vet is Dr. Simmons.", "The new vet is Dr. Abrams. " + "And much else. " * 10)
    assert put_successors_first("Who is our vet?", ASKED, long) == [0, 1]
    blind = [SaidStatement("Our vet is Dr. Simmons.", "ann", 0.0, None), *said("", "The new vet is Dr. Abrams.")[1:]]
    assert put_successors_first("Who is our vet?", ASKED, blind) == [0, 1]
