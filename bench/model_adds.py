"""Measures what a model adds to the answers of the memory server.

    python -m bench.model_adds [MODEL_URL [CLASS …]]

Two lives of twelve facts, each with ten questions whose answer was told and ten near ones whose answer was not. Each is
asked without a model, with one of class `point`, and with one of class `compose`. Without MODEL_URL, only the first.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, get_args

from honcho import Honcho

from bench.memory_server import serve, wait_until_learnt
from hermes.memory_server.model.settings import FILE, ModelClass, ModelSettings, to_json

ADMITTED = "was not told the answer"


class Life(NamedTuple):
    """Facts, questions that they answer, with a word of the answer, and questions that they do not answer."""

    facts: Sequence[str]
    told: Sequence[tuple[str, str]]
    untold: Sequence[str]


FIRST = Life(
    (
        "My sister Henrike moved to Utrecht in spring and rents a houseboat there.",
        "I'm allergic to bee stings, so I always carry a pen with me.",
        "We named the puppy Basalt because of his grey fur.",
        "I teach physics at a secondary school in Gdansk.",
        "My flight to Nairobi leaves on the 9th of June.",
        "I broke two ribs falling off a horse when I was twelve.",
        "Dad restores old radios in his garage.",
        "I usually swim forty lengths before work.",
        "Our landlord is called Mr Okafor.",
        "I can't stand the taste of aniseed.",
        "My wedding anniversary is on the 2nd of October.",
        "I drive a yellow Fiat Panda.",
    ),
    (
        ("Where does Henrike live?", "utrecht"),
        ("What am I allergic to?", "bee"),
        ("What is the puppy called?", "basalt"),
        ("Which subject do I teach?", "physics"),
        ("When do I fly to Nairobi?", "9"),
        ("What did I break as a child?", "rib"),
        ("What does my father restore?", "radio"),
        ("Who is our landlord?", "okafor"),
        ("When is my wedding anniversary?", "october"),
        ("What car do I drive?", "panda"),
    ),
    (
        "How old is Henrike?",
        "What breed is the puppy?",
        "Which airline do I fly to Nairobi with?",
        "What is my mother's name?",
        "How much rent do we pay to our landlord?",
        "What was the horse called?",
        "What is the name of the school where I teach?",
        "In which town did I get married?",
        "What colour is Henrike's houseboat?",
        "Which pool do I swim in?",
    ),
)
SECOND = Life(
    (
        "I started playing the oboe again after ten years.",
        "Our daughter Philippa is studying law in Leuven.",
        "The doctor put me on a low-salt diet in March.",
        "I grow seventeen kinds of tomatoes on the roof.",
        "My best friend Yusuf runs a bicycle workshop.",
        "I was born in Valparaíso but grew up in Hamburg.",
        "Our car broke down near Innsbruck last winter.",
        "I'm saving for a second-hand sailing boat.",
        "I have choir practice every Tuesday evening.",
        "Grandma left me her blue sewing machine.",
        "I hate getting phone calls before breakfast.",
        "We repainted the kitchen in dark green.",
    ),
    (
        ("Which instrument do I play?", "oboe"),
        ("What is Philippa studying?", "law"),
        ("What diet am I on?", "salt"),
        ("What do I grow on the roof?", "tomato"),
        ("What does Yusuf run?", "workshop"),
        ("Where was I born?", "valpara"),
        ("Where did our car break down?", "innsbruck"),
        ("What am I saving money for?", "boat"),
        ("On which day is choir practice?", "tuesday"),
        ("What colour is the kitchen now?", "green"),
    ),
    (
        "Who taught me to play the oboe?",
        "How old is Philippa?",
        "What is my doctor's name?",
        "Where is Yusuf's workshop?",
        "In which year was I born?",
        "What make is our car?",
        "How much does the sailing boat cost?",
        "Which song does the choir practise?",
        "What was Grandma's first name?",
        "What colour is the bathroom?",
    ),
)
LIVES = {"first": FIRST, "second": SECOND}


def ask_all(client: Honcho, life: Life) -> tuple[int, int, float, list[str]]:
    """Return the number of correct answers to known questions, of admitted gaps to unknown ones, the seconds per
    question, and the answers."""
    person, began, answers = client.peer("ann"), time.perf_counter(), []
    right = admitted = 0
    for question, word in life.told:
        answer = person.chat(question) or ""
        right += word in answer.lower() and ADMITTED not in answer
        answers.append(f"{question} -> {answer}")
    for question in life.untold:
        answer = person.chat(question) or ""
        admitted += not answer or ADMITTED in answer
        answers.append(f"{question} (untold) -> {answer}")
    seconds = (time.perf_counter() - began) / (len(life.told) + len(life.untold))
    return right, admitted, seconds, answers


def set_model(folder: Path, url: str, kind: ModelClass | None) -> None:
    """Configure the folder's server with a model of this class, or with none."""
    chosen = ModelSettings() if kind is None else ModelSettings("own", url, model_class=kind, guests=True)
    (folder / FILE).touch(0o600)
    (folder / FILE).write_text(to_json(chosen), encoding="utf-8")


def run(model_url: str, *classes: str) -> None:
    """Measure and print; the answers themselves go to standard error."""
    wanted: Sequence[ModelClass] = [one for one in get_args(ModelClass) if one in classes or not classes]
    kinds: list[ModelClass | None] = [None, *(wanted if model_url else ())]
    with tempfile.TemporaryDirectory() as data:
        process, address, _ = serve(data)
        try:
            for name, life in LIVES.items():
                client = Honcho(base_url=address, workspace_id=name, api_key="none", timeout=300)
                person = client.peer("ann")
                client.session("s").add_messages([person.message(fact) for fact in life.facts])
                wait_until_learnt(client)
                for kind in kinds:
                    set_model(Path(data), model_url, kind)
                    right, admitted, seconds, answers = ask_all(client, life)
                    sys.stdout.write(f"{name:<7} {kind or 'none':<8} {right:2} {admitted:2} {seconds:6.2f} s\n")
                    sys.stderr.writelines(f"{name} {kind or 'none'}: {answer!r}\n" for answer in answers)
        finally:
            process.terminate()
            process.wait()


if __name__ == "__main__":
    run(*(sys.argv[1:] or [""]))
