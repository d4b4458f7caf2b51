"""What a search needs to know of a message without its text, packed into one number beside the message's vector."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from typing import Any

from hermes.ranking.relative_times import resolve
from hermes.ranking.words import split_words

ASKS = 1
"""It holds a question."""
IS_QUESTION = 2
"""It ends with a question mark."""
TELLS_TIME = 4
"""It names a time: a day, a month, yesterday."""
OF_ONESELF = 8
"""Who wrote it speaks of themselves."""
LENGTH_AT = 4
"""From this bit on, 16 bits hold how many words the message has."""
LONGEST = 0xFFFF
UNWANTED = 1 << 20
"""Its author wished that it is not remembered: no search brings it."""
CONFIDENTIAL = 1 << 21
"""It holds a password, a PIN or the like: a search brings it only when it is asked for."""
READ = 4000
"""Only so many characters are read; the word count of a longer text is extrapolated."""
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
"""Whether a text holds a relative time does not depend on the day."""
ONESELF_LETTERS = "我私僕俺"


def count_words(traits: Any) -> Any:
    """Return how many words messages with these traits (a number or an array of them) have."""
    return traits >> LENGTH_AT & LONGEST


def traits_of(text: str) -> int:
    part = text[:READ]
    words = split_words(part)
    found = min(len(words) * len(text) // max(len(part), 1), LONGEST) << LENGTH_AT
    if any(mark in text for mark in QUESTION_MARKS):
        found |= ASKS | (IS_QUESTION if text.rstrip()[-1] in QUESTION_MARKS else 0)
    if not TIME.isdisjoint(words) or " May" in part or _tells_more(part):  # in small letters "may" is a verb
        found |= TELLS_TIME
    return found | OF_ONESELF if speaks_of_oneself(part, words) else found


def _tells_more(text: str) -> bool:
    """Does a text name a time in words that TIME does not hold, as in French and Chinese?"""
    return not text.isascii() and bool(resolve(text, ANY_DAY))


def speaks_of_oneself(text: str, words: Sequence[str]) -> bool:
    """Does somebody speak of themselves in a text with these words?"""
    return not ONESELF.isdisjoint(words) or (not text.isascii() and any(letter in text for letter in ONESELF_LETTERS))
