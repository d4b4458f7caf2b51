"""Tells an agent a life in forty messages over several conversations, and asks twenty separate questions about it.

python -m tests.slow.life HOME BASE_URL   # prints each question, its answer and whether it is right
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

Conversations = tuple[tuple[str, ...], ...]

CONVERSATIONS = (
    (
        "Hi! I am Marta, and I am 41 years old.",
        "I live in Ghent, in a small flat above a bakery.",
        "I work as a bridge engineer for the city.",
        "My husband Jonas is a baker, but not in the bakery downstairs, funnily enough.",
        "We have two children, Lotte and Wim.",
    ),
    (
        "Lotte is nine and plays the harp.",
        "Wim is six and talks about nothing but whales.",
        "It rained all day today, so we stayed in and baked.",
        "I drive an old green Volvo.",
        "I am allergic to walnuts, which is a pity with a baker in the house.",
    ),
    (
        "My sister Ines lives in Lisbon and teaches chemistry there.",
        "Our cat is called Pepper.",
        "I go swimming every Wednesday evening with my friend Saskia.",
        "Can you wish me luck? I have a presentation about the new footbridge.",
        "My birthday is on the 14th of February, so nobody ever forgets it.",
    ),
    (
        "The presentation went well, thank you.",
        "My favourite food is mushroom risotto.",
        "I cannot stand coriander.",
        "My father's name is Albrecht, and he repairs clocks.",
        "We spent our last summer holiday on the island of Texel.",
    ),
    (
        "Big news: we have moved. We live in Bruges now, in a house with a garden.",
        "The new house is at the end of Rozenlaan, number 27.",
        "The children like their new school so far.",
        "We planted an apple tree in the garden on Sunday.",
        "I still work for the city of Ghent; I take the train at 7:12 every morning.",
    ),
    (
        "I have sold the Volvo, since I take the train anyway.",
        "I bought a cargo bike instead, a red one.",
        "Jonas has broken his left wrist. He fell off a ladder.",
        "The doctor says it will take six weeks.",
        "I am reading a book about the history of tunnels.",
    ),
    (
        "Lotte has stopped playing the harp and has taken up the trumpet.",
        "Poor neighbours!",
        "We are planning a trip to Norway next June, to see the fjords.",
        "I do not like flying, so we will take the ferry from Denmark.",
        "Wim wants to know whether there are whales in Norway.",
    ),
    (
        "My boss is called Mr De Smet, and he loves long meetings.",
        "I have my own team now, with four engineers.",
        "Saskia has moved away, so I go swimming alone on Thursdays now.",
        "My phone number ends with 88, if anybody asks.",
        "That was my week. Good night!",
    ),
)
"""Forty messages; a new town, a sold car, another instrument and another day are corrections."""


class Asked(NamedTuple):
    """A question. A right answer contains one of `right`; `wrong` may appear only as an earlier state. None means that
    the answer is unknown."""

    question: str
    right: tuple[str, ...] | None
    wrong: str = ""


QUESTIONS = (
    Asked("What is my name?", ("marta",)),
    Asked("Which town do I live in now?", ("bruges",), "ghent"),
    Asked("What do I do for a living?", ("engineer",)),
    Asked("What is my husband's name?", ("jonas",)),
    Asked("How old is Wim?", ("six", "6")),
    Asked("Which instrument does Lotte play these days?", ("trumpet",), "harp"),
    Asked("What am I allergic to?", ("walnut",)),
    Asked("Do I still have the Volvo?", ("no", "sold")),
    Asked("What is our cat called?", ("pepper",)),
    Asked("When is my birthday?", ("14", "february")),
    Asked("Where does my sister Ines live?", ("lisbon",)),
    Asked("On which day do I go swimming now?", ("thursday",), "wednesday"),
    Asked("What is my favourite food?", ("risotto",)),
    Asked("What does my father repair?", ("clock",)),
    Asked("Where are we going next June?", ("norway",)),
    Asked("Which part of his body did Jonas break?", ("wrist",)),
    Asked("What is my blood type?", None),
    Asked("What is the name of my dentist?", None),
    Asked("How tall am I?", None),
    Asked("Which university did Jonas go to?", None),
)

ADMITS = re.compile(
    r"\b(?:not|n[o']t|never|unknown|unsure|no (?:information|record|mention|memory|details?|data)|cannot|unable)\b"
    r"|n[’']t\b",
    re.IGNORECASE,
)
BEFORE = re.compile(r"\b(?:used to|from|before|previous\w*|no longer|moved|stopped|formerly|instead|earlier)\b")


def is_right(asked: Asked, answer: str) -> bool:
    """Return True if an answer is right, by its words; an unknown answer must be admitted."""
    said = answer.lower()
    if asked.right is None:
        return ADMITS.search(said) is not None
    if asked.wrong and asked.wrong in said and not BEFORE.search(said):
        return False
    return any(re.search(rf"\b{word}", said) for word in asked.right)


def tell_life(home: Path, base_url: str, conversations: Conversations = CONVERSATIONS) -> None:
    """Send the life to an agent with default settings, one conversation after the other."""
    home.mkdir(parents=True, exist_ok=True)
    (home / "config.yaml").write_text(f"model:\n  base_url: {base_url}\n", encoding="utf-8")
    for conversation in conversations:
        said = "".join(f"{line}\n" for line in conversation)
        _hermes(home, "chat", said=said)


def ask(home: Path, asked: Asked) -> str:
    """Return the answer of a new process in a new session."""
    return _hermes(home, "chat", "-q", asked.question).strip()


def _hermes(home: Path, *arguments: str, said: str | None = None) -> str:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("HERMES_", "OPENAI_", "HONCHO_"))}
    done = subprocess.run(
        [sys.executable, "-m", "hermes", *arguments],
        input=said,
        stdin=subprocess.DEVNULL if said is None else None,
        env={**kept, "HERMES_HOME": str(home), "PYTHONUTF8": "1"},
        text=True,
        stdout=subprocess.PIPE,
        check=True,
    )
    return done.stdout


if __name__ == "__main__":
    place = Path(sys.argv[1])
    if not place.exists():
        tell_life(place, sys.argv[2])
    score = 0
    for one in QUESTIONS:
        reply = ask(place, one)
        score += is_right(one, reply)
        sys.stdout.write(f"{'right' if is_right(one, reply) else 'WRONG'}  {one.question}  {reply}\n")
        sys.stdout.flush()
    sys.stdout.write(f"{score} of {len(QUESTIONS)}\n")
