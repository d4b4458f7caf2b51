"""Sample conversations: chats in five languages, and a long history with an assistant that answers at length."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import cycle

from bench import sample_texts as texts
from bench.talks import Asked, Talk, Turn

START = datetime(2025, 3, 1, 9, tzinfo=UTC)
PER_SESSION = 12
CHATS = {
    "German": (texts.GERMAN, texts.GERMAN_BESIDE, ("Jonas", "Katrin")),
    "Spanish": (texts.SPANISH, texts.SPANISH_BESIDE, ("Pilar", "Andres")),
    "Chinese": (texts.CHINESE, texts.CHINESE_BESIDE, ("Xiaoming", "Lihua")),
    "Japanese": (texts.JAPANESE, texts.JAPANESE_BESIDE, ("Kenichi", "Hanako")),
    "Arabic": (texts.ARABIC, texts.ARABIC_BESIDE, ("Nadia", "Yusuf")),
}
SECTIONS = (
    "Here is what I would look at first",
    "What usually goes wrong",
    "What I would do in your place",
    "Things to keep an eye on",
    "Summary",
)
LINES = (
    "**Start with {topic} as it is.** You said what you have and where you are; write down when it happened.",
    "Many people who ask about {topic} change everything at once; which of it helped is then impossible to tell.",
    "Whom you ask matters: what one person recommends about {topic}, another one did years ago and gave up.",
    "- Check the *{topic}* notes of last week, and compare how many times it went well with how many it did not.",
    "- If it still hurts, breaks, fails or is refused, stop, and tell me what was said and who said it.",
    "- Set aside a little time every evening, on the same day of the week, and do not move it.",
    "| step | what | how long |\n|---|---|---|\n| 1 | look at your {topic} | 10 minutes |\n| 2 | change it | a week |",
    "For the numbers: take what you have, what you suggested and what it should be, and look at the difference.",
    "It is worth knowing where it comes from and why it was done like that before anything about {topic} is replaced.",
    "Let me know how it goes, and I will go through the next step with you in as much detail as you like.",
)


def samples() -> list[Talk]:
    """Return all conversations, each with its questions."""
    return [*(_chat(name, *given) for name, given in CHATS.items()), _history()]


def _chat(name: str, facts: str, beside: str, speakers: tuple[str, str]) -> Talk:
    fillers = cycle(beside.strip().splitlines())
    turns: list[Turn] = []
    questions: list[Asked] = []
    for line in facts.strip().splitlines():
        fact, question = line.split(" | ")
        for text in (next(fillers), next(fillers), fact, next(fillers)):
            turns.append(_turn(len(turns), speakers[len(turns) % 2], text))
        questions.append(Asked(question, frozenset({turns[-2].id}), 0))
    return Talk(name, turns, questions)


def _history() -> Talk:
    turns: list[Turn] = []
    questions: list[Asked] = []
    lines = texts.ASSISTANT.strip().splitlines()
    for number, (said, asked) in enumerate(zip(lines[::2], lines[1::2], strict=True)):
        topic, fact = said.split(" | ")
        about_fact, advice, about_advice = asked.split(" | ")
        turns.append(_turn(len(turns), "user", f"{fact} What should I do?"))
        questions.append(Asked(about_fact, frozenset({turns[-1].id}), 0))
        turns.append(_turn(len(turns), "assistant", "\n\n".join(_answer(number, topic, advice))))
        questions.append(Asked(about_advice, frozenset({turns[-1].id}), 0))
        turns.append(_turn(len(turns), "user", "Thanks, I will try that."))
        turns.append(_turn(len(turns), "assistant", "\n\n".join(_answer(number + 3, topic, "what we said before"))))
    return Talk("Assistant", turns, questions)


def _answer(number: int, topic: str, advice: str) -> Iterator[str]:
    lines = [LINES[(number + place) % len(LINES)].format(topic=topic) for place in range(len(LINES))]
    for place, heading in enumerate(SECTIONS):
        yield f"## {heading}"
        yield from lines[2 * place : 2 * place + 2]
        if place == number % len(SECTIONS):
            yield f"For your {topic} I recommend {advice}."


def _turn(number: int, speaker: str, text: str) -> Turn:
    session = number // PER_SESSION
    return Turn(str(number), f"session-{session}", speaker, text, START + timedelta(days=session, minutes=number))
