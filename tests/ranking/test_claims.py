"""Claims: which of two statements in different words changes the other."""

from __future__ import annotations

import pytest

from hermes.ranking.claims import ClaimEnd, compare, is_change, read_claims

pytestmark = pytest.mark.contract("9.5")


def ends(older: str, newer: str) -> set[ClaimEnd | None]:
    """Return how claims of a later statement end those of an earlier one by the same speaker."""
    pairs = ((before, after) for before in read_claims(f"ann: {older}") for after in read_claims(f"ann: {newer}"))
    return {compare(before, after, is_change=is_change(newer)) for before, after in pairs} - {None}


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ("My line manager is Olga Brandt, very calm.", "I report to Samir Haddad, he is new."),
        ("Mein Chef heißt Kramer.", "Meine Chefin ist jetzt Yilmaz."),
        ("Mi jefe es Ramón.", "Mi jefa ahora es Lucía."),
        ("Mon chef est Paul.", "Ma nouvelle cheffe est Claire."),
        ("我的老板是王强。", "我的新老板是李娜。"),
        ("Mondays are my day off.", "Tuesday's my day off, so come then."),
        ("Montag ist mein Putztag.", "Donnerstag ist jetzt mein Putztag."),
        ("Mara is a teacher at the Waldorf School.", "Mara got a job at Leibniz College."),
        ("Job: cook at the Harbour Inn.", "First day at the Blue Door today."),
        ("My mobile is 0151 555 0101.", "New SIM, so call me on 0151 555 0199."),
        ("My son Milo is 12 and plays chess.", "My son Milo turned 13."),
        ("I live in Lisbon.", "We finally gave up the flat in Lisbon."),
        ("I work at Barclays.", "I resigned from Barclays."),
        ("Vivo en Sevilla.", "Dejamos el piso de Sevilla."),
        ("My boss is Olga, she used to race.", "New boss at Barclays is called Samir."),
        ("Meine Chefin ist Frau Kramer.", "Meine neue Chefin heißt Frau Yilmaz."),
        ("Our vet is Dr. Brandt.", "The new vet is Dr. Haddad."),
        ("Mein Zahnarzt ist Dr. Kramer.", "Der neue Zahnarzt in Bonn ist Dr. Yilmaz."),
        ("My gym is Blue Door.", "I cancelled Blue Door."),
        ("I work as a cook at the Harbour Inn.", "I got promoted, head of kitchen at Blue Door."),
        ("I live in Lisbon.", "We moved. 12 Mill Lane, Leeds."),
        ("Ich wohne in Bonn.", "Wir sind umgezogen, Am Markt 3 in Kassel."),
        ("I'm Mara, a cook, living in Lisbon these days.", "We live in Leeds."),
        ("My mom Ann lives in Leeds.", "Mum moved in with Rosa in York."),
        ("Meine Mutter lebt in Kassel.", "Mama ist nach Bonn gezogen."),
        ("Mi madre vive en Sevilla.", "Mi madre se ha mudado a Vigo."),
        ("Meine Nummer ist 0151 5550101.", "Ich habe eine neue Nummer: 0151 5550199."),
    ],
)
def test_value_that_is_told_in_other_words_changes_the_older_one(older: str, newer: str) -> None:
    assert ends(older, newer) == {"change"}


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ("I work at Barclays.", "I'm a patient at Guy's Hospital."),
        ("My boss is Tom.", "My sister's boss is Ann."),
        ("Mondays are my day off.", "Tuesday's my gym day."),
        ("My son Milo is 12.", "My son Ben turned 13."),
        ("I'm 37 years old.", "There are 12, not 14."),
        ("I live in Lisbon.", "I sold the car."),
        ("Our vet is Dr. Brandt.", "The new dentist is Dr. Haddad."),
        ("I live in Lisbon.", "Mum moved in with Rosa in York."),
        ("I live in Lisbon.", "We moved in together."),
    ],
)
def test_statement_of_something_else_changes_nothing(older: str, newer: str) -> None:
    assert ends(older, newer) == set()


def test_only_the_clause_that_says_so_is_over() -> None:
    [claim] = [claim for claim in read_claims("ann: My boss is Olga, she used to race.") if claim.attribute == "boss"]
    assert not claim.is_denied
    assert [claim.is_denied for claim in read_claims("ann: I used to drink tea, I like coffee.")][-1:] == [False]
    assert [claim.is_denied for claim in read_claims("ann: I like tea not any more.")] == [True]
