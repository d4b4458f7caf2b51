"""Traits: what a search must know about a message without its text, packed into one number beside its vector."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from typing import Any

from hermes.ranking.relative_times import resolve
from hermes.ranking.words import split_words

ASKS = 1 << 0
"""Bit: the message holds a question."""
IS_QUESTION = 1 << 1
"""Bit: the message ends with a question mark."""
NAMES_TIME = 1 << 2
"""Bit: the message names a time, such as a day, a month or "yesterday"."""
OF_ONESELF = 1 << 3
"""Bit: the author speaks of themselves."""
LOW_FLAG_COUNT = 4
"""The number of flags below the message's number of words, which takes 16 bits."""
MAX_LENGTH_WORDS = 0xFFFF
UNWANTED = 1 << 20
"""Bit: the author asked that the message is not remembered; no search returns it."""
CONFIDENTIAL = 1 << 21
"""Bit: the message holds a password, a PIN or the like; a search returns it only if the question asks for one."""
MAX_READ_CHARS = 4000
"""The number of characters that are read; the word count of a longer text is extrapolated."""
QUESTION_MARKS = "?？؟"
TIME = frozenset(
    """
    yesterday today tomorrow tonight ago last next week weeks weekend month months year years day days recently since
    monday tuesday wednesday thursday friday saturday sunday january february march april june july august september
    october november december summer winter spring
    gestern heute morgen vorgestern letzte letzten letzter letztes nächste nächsten seit woche wochen monat jahr jahre
    ayer hoy mañana pasado pasada próximo próxima desde hace semana mes año años
    昨天 今天 明天 去年 今年 明年 上个 下个 昨日 今日 来週 先週 أمس اليوم غدا
    """.split()  # noqa: SIM905 - one word a line would be a page
)
ONESELF = frozenset(
    """
    i me my mine myself we our us ich mich mir mein meine meinem meinen meiner wir uns unser unsere
    yo me mi mis nosotros nosotras nuestro nuestra أنا
    """.split()  # noqa: SIM905
)
ANY_DAY = date(2000, 1, 1)
"""An arbitrary day: whether a text holds a relative time does not depend on it."""
ONESELF_LETTERS = "我私僕俺"


def count_words(traits: Any) -> Any:
    """Return the number of words of messages with these traits (a number or an array of them)."""
    return traits >> LOW_FLAG_COUNT & MAX_LENGTH_WORDS


def traits_of(text: str) -> int:
    part = text[:MAX_READ_CHARS]
    words = split_words(part)
    found = min(len(words) * len(text) // max(len(part), 1), MAX_LENGTH_WORDS) << LOW_FLAG_COUNT
    if any(mark in text for mark in QUESTION_MARKS):
        found |= ASKS | (IS_QUESTION if text.rstrip()[-1] in QUESTION_MARKS else 0)
    if not TIME.isdisjoint(words) or " May" in part or _names_other_time(part):  # lower-case "may" is a verb
        found |= NAMES_TIME
    return found | OF_ONESELF if speaks_of_oneself(part, words) else found


def _names_other_time(text: str) -> bool:
    """Return True if a text names a time in words that TIME lacks, as in French and Chinese."""
    return not text.isascii() and bool(resolve(text, ANY_DAY))


def speaks_of_oneself(text: str, words: Sequence[str]) -> bool:
    """Return True if the author of a text with these words speaks of themselves."""
    return not ONESELF.isdisjoint(words) or (not text.isascii() and any(letter in text for letter in ONESELF_LETTERS))
