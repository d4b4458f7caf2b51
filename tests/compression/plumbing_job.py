"""A scripted conversation with known facts, decisions, tasks and identifiers that must survive compression."""

from __future__ import annotations

import random
from collections.abc import Iterator

from hermes.types import Draft, ToolCall

PLANTED: dict[str, tuple[str, str]] = {
    # key: who said it, and the sentence; the key is what must still be found.
    "Marisol": ("user", "My name is Marisol and I run a small plumbing firm."),
    "Valletta": ("user", "I live in Valletta with my two sons."),
    "penicillin": ("user", "By the way, I am allergic to penicillin."),
    "Tuesdays": ("user", "I never work on Tuesdays, keep that in mind."),
    "PostgreSQL": ("assistant", "Agreed: we decided to use PostgreSQL instead of MySQL for the invoices."),
    "invoices-v2": ("user", "Let's go with the name invoices-v2 for the new service."),
    "two-week notice": ("user", "We settled on a two-week notice for cancelled jobs."),
    "call the supplier": ("user", "I still need to call the supplier in Sliema about the copper pipes."),
    "renew the licence": ("user", "Remind me to renew the licence by Friday."),
    "back up the ledger": ("assistant", "Next step for you: back up the ledger before we migrate it."),
    "INV-20931": ("user", "The disputed bill is INV-20931 and they refuse to pay it."),
    "/srv/ledger/2026/march.csv": ("user", "The numbers are in /srv/ledger/2026/march.csv on the office machine."),
    "2026-06-14": ("user", "The inspection is on 2026-06-14 in the morning."),
    "a81f0c3d": ("assistant", "The fix for the rounding error is commit a81f0c3d on the main branch."),
    "joseph@tubi.example": ("user", "Joseph's address is joseph@tubi.example if you need him."),
    "https://tubi.example/orders/77": ("user", "Our order page is https://tubi.example/orders/77 by the way."),
    "LEDGER_URL": ("assistant", "It failed because LEDGER_URL was not set in the service file."),
    "18,450": ("user", "The whole job must not cost more than 18,450 euros."),
}
"""Required content of a compressed conversation, each with the word that identifies it."""

SUBJECTS = ("the weather", "that tune", "the tea", "the road", "the garden", "the view", "that film", "the soup")
VERBS = ("was", "seemed", "felt", "stayed", "turned out", "looked")
QUALITIES = ("rather fine", "a little odd", "quite long", "nice enough", "better than before", "not so bad")
ENDINGS = ("this morning", "again", "as they say", "I suppose", "after all", "in the end", "for once", "all day")


def small_talk(chance: random.Random, sentences: int) -> str:
    """Sentences that may be lost."""
    return " ".join(
        f"{chance.choice(SUBJECTS).capitalize()} {chance.choice(VERBS)} {chance.choice(QUALITIES)} "
        f"{chance.choice(ENDINGS)}."
        for _ in range(sentences)
    )


def conversation(*, seed: int = 7, padding: int = 4, tools: bool = True) -> list[Draft]:
    """Return the whole conversation: each planted sentence within small talk, and sometimes a noisy tool result."""
    chance = random.Random(seed)
    return [draft for number in range(len(PLANTED)) for draft in _exchange(chance, number, padding, tools)]


def more_talk(seed: int, turns: int) -> list[Draft]:
    """Return turns without anything to remember."""
    chance = random.Random(seed)
    roles = ("user", "assistant")
    return [Draft(role, small_talk(chance, 6)) for _ in range(turns) for role in roles]


def _exchange(chance: random.Random, number: int, padding: int, tools: bool) -> Iterator[Draft]:
    speaker, sentence = list(PLANTED.values())[number]
    told = f"{small_talk(chance, padding)} {sentence} {small_talk(chance, padding)}"
    plain = small_talk(chance, 2 * padding)
    yield Draft("user", told if speaker == "user" else plain)
    if tools and number % 4 == 0:
        yield Draft("assistant", None, tool_calls=(ToolCall(f"c{number}", "list_files", "{}"),))
        noise = "\n".join(f"-rw-r--r-- {chance.randrange(10**6)} file_{chance.randrange(10**4)}.tmp" for _ in range(40))
        yield Draft("tool", noise, tool_call_id=f"c{number}", tool_name="list_files")
    yield Draft("assistant", told if speaker == "assistant" else plain)


def forgotten(text: str) -> list[str]:
    """Return the planted words that `text` lacks."""
    return [key for key in PLANTED if key not in text]
