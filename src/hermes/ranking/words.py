"""Words of any script: splitting of texts, and the words of a question that show what it is about.

Chinese, Japanese, Korean, Thai and related scripts put no spaces between words, or attach endings to them: a run of
such characters counts as its pairs, and its last character as one more word, so that every character begins a word.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from functools import cache

SPACELESS = (
    "\u0e00-\u0eff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff\u2e80-\u2fdf\u3005-\u3007\u3040-\u30ff\u3100-\u318f"
    "\u31a0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\uff66-\uffdc"
    "\U00020000-\U0003ffff"
)
STEM_CHARS = 5
"""Two words with the same first letters, up to this number, count as forms of one word."""
MAX_QUESTION_WORDS = 48
"""The number of words of a long question that are searched for."""
PLAIN = re.compile(r"\w+")
OWN = re.compile(r"['’]s\b")
"""The English possessive, as in "Anna's"."""
SENTENCE_END = re.compile(r"[.!?](?=\s)|[。！？\n]")
ENGLISH = frozenset(
    """
    a about all am an and any are as at be been but by can could d did do does during ever for from had has have he her
    him his how i if in into is it its just kind like ll m many may me might more most much my no not of often on or our
    over re s said say she should so some t tell than that the their them then there these they this to too type us ve
    was we were what when where which who why will with would you your
    """.split()  # noqa: SIM905 - one word a line would be a page
)
GERMAN = frozenset(
    """
    aber als am an auch auf aus bei das dass dem den der des die du ein eine einem einen einer er es für hat hatte
    heiße heißen heißt ich ihr im in ist man mein meine meinem meinen mit nach nicht noch nur oder sein seine sich
    sie sind so über um und uns von vor wann war waren warum was welche welchen welcher wer wie wir wo zu zum zur
    """.split()  # noqa: SIM905
)
SPANISH = frozenset(
    """
    a al como con cuando cuál cuándo cómo de del dónde donde el ella en era es esta este fue ha hay la las le llama
    llaman llamo lo los me mi mis o para pero por porque que qué quién se sin sobre su sus te tu un una y ya yo
    """.split()  # noqa: SIM905
)
STOP_WORDS = (ENGLISH, GERMAN, SPANISH)
"""Stop words of three languages. In others, frequent words count little because they are frequent."""


@cache
def _spaceless() -> re.Pattern[str]:
    return re.compile(f"[{SPACELESS}]+")


def segment(text: str) -> str:
    """Return a text for the word index: spaceless scripts as pairs, others unchanged."""
    if text.isascii() or not _spaceless().search(text):
        return text
    return _spaceless().sub(lambda run: f" {' '.join(_pairs(run[0]))} ", unicodedata.normalize("NFKC", text))


def _pairs(run: str) -> list[str]:
    return [run[place : place + 2] for place in range(len(run))]


def split_words(text: str) -> list[str]:
    """Return the words of a text in order, lower-cased, without punctuation."""
    if text.isascii():
        return PLAIN.findall(_plain(text))
    text = OWN.sub("", text).lower()
    # A mark (an accent, a vowel sign) is part of its word.
    kept = (letter if letter.isalnum() or letter == "_" or _is_mark(letter) else " " for letter in text)
    return [word for found in "".join(kept).split() for word in _parts(found)]


def _plain(text: str) -> str:
    return (OWN.sub("", text) if "'s" in text else text).lower()


def _is_mark(letter: str) -> bool:
    return unicodedata.category(letter).startswith("M")


def _parts(word: str) -> list[str]:
    if word.isascii() or not _spaceless().search(word):
        return [word]
    parts: list[str] = []
    for part in segment(word).split():
        is_last = len(part) == 1 and bool(parts) and parts[-1].endswith(part)
        if not is_last:  # the preceding pair is more specific
            parts.append(f"{part}*" if len(part) == 1 and _spaceless().match(part) else part)
    return parts


def is_pair(word: str) -> bool:
    """Return True for a pair of characters, or one with `*`, of a script without spaces."""
    return not word.isascii() and _spaceless().match(word) is not None


def share_held(words: Sequence[str], text: str) -> float:
    """Return the share of the words that a text holds, in any form with the same beginning."""
    if not words:
        return 0.0
    forms = [word.rstrip("*")[:STEM_CHARS] for word in words]
    if text.isascii():
        small = _plain(text)
        return sum(form in small and _is_word(form, small) for form in forms) / len(forms)
    said = {word[:STEM_CHARS] for word in split_words(text)}
    return sum(form in said for form in forms) / len(forms)


def _is_word(form: str, small: str) -> bool:
    """Return True if the text, lower-cased, holds this word, or one that begins with it if it is cut."""
    is_cut = len(form) == STEM_CHARS
    place = small.find(form)
    while place >= 0:
        end = place + len(form)
        begins = place == 0 or not _is_letter(small[place - 1])
        if begins and (is_cut or end == len(small) or not _is_letter(small[end])):
            return True
        place = small.find(form, place + 1)
    return False


def _is_letter(sign: str) -> bool:
    return sign.isalnum() or sign == "_"


def telling_words(words: list[str]) -> list[str]:
    """Return the words that show what a question is about, each once: all but stop words, or all words if nothing else
    is left. A word `x*` stands for every word that begins with x.
    """
    spoken = [word for word in words if any(letter.isalnum() for letter in word)]
    language = max(STOP_WORDS, key=lambda stops: sum(word in stops for word in spoken))
    return list(dict.fromkeys([word for word in spoken if word not in language] or spoken))[:MAX_QUESTION_WORDS]


def split_speaker(text: str) -> tuple[str, str]:
    """Return the speaker in small letters ("" for none) and the rest of a statement such as `ann: I …`."""
    name, colon, said = text.partition(": ")
    return (name.lower(), said) if colon and " " not in name and len(name) <= 100 else ("", text)
