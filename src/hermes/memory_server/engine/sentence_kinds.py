"""What kind of sentence a text is, by a small linear model over its words, word classes and word vectors.

The model is fitted to labelled messages (`python -m bench.fit_reading`) and lies beside this file. A word class holds
words of several languages that do the same in a sentence, such as `memory` (remember, merken, 记): what was learnt from
one language holds for the others.
"""

from __future__ import annotations

import json
import re
import zlib
from base64 import b64decode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import pairwise, takewhile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hermes.memory_server.engine.word_vectors import WordVectors

KEPT_KINDS = ("statement", "other", "remember", "instruction", "preference", "plan")
OTHER_KINDS = ("question", "remark", "hypothetical", "quoted")
SECRET, DISCARD = "secret", "discard"
PLAIN_KINDS = (*KEPT_KINDS, *OTHER_KINDS)
MARKED_KINDS = (SECRET, DISCARD)
"""Kinds that go before all others, the last one first. They are told by marks alone: few messages have them, and their
other words say nothing."""
KINDS = (*PLAIN_KINDS, *MARKED_KINDS)
GROUPS = ("identity", "health", "family", "home", "work", "other")
"""What part of a life a sentence is about."""
MODEL_FILE = Path(__file__).with_name("sentence_model.json")
EAST_ASIAN = "\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"
TOKEN = re.compile(
    rf"[{EAST_ASIAN}]|[^\W\d_{EAST_ASIAN}]+(?:-[^\W\d_{EAST_ASIAN}]+)*|\d+|[?!:;,.…¿¡/=#@<>{{}}()_+*]|\x00+|\n+"
)
IS_EAST_ASIAN = re.compile(rf"[{EAST_ASIAN}]")
SHAPES = re.compile(
    r"(?P<mail>[^\s@]{1,64}@[\w-]{1,64}\.\w)"
    r"|(?P<date>\b(?:\d{4}-\d{1,2}-\d{1,2}|\d{1,2}[./]\d{1,2}[./](?:\d{4}|\d\d)?)(?!\d))"
    r"|(?P<hex>\b0x[0-9a-fA-F]+)"
    r"|(?P<iban>\b[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,3})?\b)"
    r"|(?P<card>(?<![\w-])(?:\d[ .-]?){12,18}\d(?!\w))"
    r"|(?P<phone>(?<![\w-])(?:\+\d|\(?0\d|1[3-9]\d{2})[\d ()/-]{5,14}\d(?!\w))"
    r"|(?P<key>(?=[\w.+/=-]{0,200}\d)(?=[\d.+/=_-]{0,200}[A-Za-z])[A-Za-z0-9][\w.+/=-]{15,200})"
    r"|(?P<turns>(?<![\w-])\d{1,2}(?:-\d{1,2}){2,4}(?!\w))"
    r"|(?P<groups>(?<![\w-])\d{2,4}(?:[ -]\d{2,4}){1,5}(?![\w]))"
    r"|(?P<amount>\d{1,3}(?:[.,]\d{3}){1,4}|\d[\d.,:]{0,9}(?= ?(?:€|£|\$|%|euros?|eur|dollars?|pounds?|francs?|franken"
    r"|pesos|k?m\b|k?g\b|kilos?|mg|ml|pages?|people|words|degrees|块|元|年|公斤|岁|米|人|公里)))"
    r"|(?P<year>\b(?:19|20)\d\d\b)"
    r"|(?P<sized>\b\d{1,4}-?[a-z]{1,6}\b)"
    r"|(?P<code>[A-Za-z0-9!#$%&*_+=/.@-]+)"
)
"""What looks like a value, the most special first."""
EMPHASIS = re.compile(r"(?<!\w)[*_`]{1,3}(?=\S)|(?<=\S)[*_`]{1,3}(?!\w)")
"""Signs of Markdown around words: no password has them."""
IDENTIFIER = re.compile(r"[A-Za-z]{1,40}(?:[_=+.]{1,2}[A-Za-z]{1,40}){1,9}|[A-Za-z]{1,2}_\d")
VERSION = re.compile(
    r"v?\d{1,4}(?:\.\d{1,4})+|v\d{1,4}|\$\d[\d.,]{0,15}(?:/[a-z]{1,15})?|\d[\d.]{0,9}(?:[KMGT]i?B|ms|px|fps)"
)
CODE_CHARS = 6
CODE_SHAPES = ("iban", "card", "key", "turns", "groups", "number and sign", "mixed with sign", "capitals and digits")
SIZED_SHAPES = (*(f"number {size}" for size in range(3, 10)), *(f"letters and {size} digits" for size in range(1, 5)))
VALUES = frozenset((*CODE_SHAPES, *SIZED_SHAPES))
"""Shapes that a code may have."""
WIDE_SIGNS = str.maketrans("？！：，。（）’", "?!:,.()'")
HIDDEN = "\x00"
"""Stands for each character of a text that is not the writer's own words."""
SENTENCES_KEPT = 4096
"""A sentence is weighed with its message, as a conclusion and for summaries: the last results are kept."""
MAX_TOKENS = 60
"""Of a sentence, so many words are read."""
NEAR_TOKENS = 4
"""How far apart two words are at most that are read together."""
LONGEST_STEM, SHORTEST_STEM = 9, 3
LONGEST_PHRASE = 4
"""East Asian characters of a word at most."""
CODE_DIGITS = 3
SECRET_MARKS, DISCARD_MARKS = (
    {f"@{mark}" for mark in marks} for marks in (("credential", "number_of", "value"), ("memory", "forget", "private"))
)
"""A sentence without one of these is neither: few of a thousand are, and both kinds hide their message."""
OBJECTS = frozenset(("this", "me", "you", "says", "memory", "technical", "text", "nothing", "trace", "ask_word"))
"""Classes that tell what somebody is to remember or to forget."""
CLAUSE_ENDS = frozenset(",:;.!?…")
EQUALS = frozenset((":", "=", "is", "are", "ist", "sind", "lautet", "es", "son", "est", "sont", "是"))
WORD_SCALE, MARK_SCALE, VECTOR_SCALE = 3.0, 1.5, 2.0
"""How large words, marks and the vector are in comparison; chosen by cross-validation."""
Numbers = NDArray[np.float32]


class WordClasses:
    """Classes of words. `word*` is a beginning of words, `*word` an ending, `two_words` stands for two in a row."""

    def __init__(self, given: Mapping[str, str]) -> None:
        """Take the words of each class, separated by blanks."""
        self._words: dict[str, frozenset[str]] = {}
        self._beginnings: dict[str, frozenset[str]] = {}
        self._endings: dict[str, frozenset[str]] = {}
        for name, words in given.items():
            for word in words.split():
                known = self._words
                if word.endswith("*"):
                    known = self._beginnings
                elif word.startswith("*"):
                    known = self._endings
                key = word.strip("*").replace("_", " ")
                known[key] = known.get(key, frozenset()) | {name}
        self._of_token = lru_cache(8192)(self._classify)

    def find(self, tokens: Sequence[str]) -> list[frozenset[str]]:
        """Return the classes of each token."""
        found = []
        for place, token in enumerate(tokens):
            classes = self._of_token(token)
            if IS_EAST_ASIAN.match(token):
                for size in range(2, LONGEST_PHRASE + 1):
                    classes |= self._words.get("".join(tokens[place : place + size]), frozenset())
            elif place + 1 < len(tokens):
                classes |= self._words.get(f"{token} {tokens[place + 1]}", frozenset())
            found.append(classes)
        return found

    def _classify(self, token: str) -> frozenset[str]:
        found = self._words.get(token, frozenset())
        for size in range(SHORTEST_STEM, min(len(token), LONGEST_STEM) + 1):
            found |= self._beginnings.get(token[:size], frozenset()) | self._endings.get(token[-size:], frozenset())
        if "-" in token:
            found = found.union(*(self._words.get(part, frozenset()) for part in token.split("-")))
        return found


@dataclass(frozen=True, slots=True)
class Weighed:
    """What kind of sentence it is, how likely it is that a memory should keep it, and what it is about."""

    kind: str
    score: float
    group: str


class SentenceModel:
    """The fitted model: a row of weights for each feature, a column for each plain kind, group and marked kind."""

    def __init__(
        self, classes: WordClasses, rows: Mapping[str, int], weights: Numbers, vector_weights: Numbers
    ) -> None:
        self.classes = classes
        self._rows = rows
        self._weights = weights
        self._vector_weights = vector_weights
        self._vectors = WordVectors()
        self.weigh = lru_cache(SENTENCES_KEPT)(self._weigh)
        """Return how likely the kinds and groups of a sentence are."""

    def _weigh(self, sentence: str) -> Weighed:
        words, marks = find_features(sentence, self.classes)
        known = [row for word in words if (row := self._rows.get(word)) is not None]
        total = self._weights[0].copy()
        if known:
            total += self._weights[known].sum(axis=0) * (WORD_SCALE / len(known) ** 0.5)
        if seen := [row for mark in marks if (row := self._rows.get(mark)) is not None]:
            total += self._weights[seen].sum(axis=0) * MARK_SCALE
        total += (self._vectors.direction(sentence.replace(HIDDEN, " ")) @ self._vector_weights) * VECTOR_SCALE
        plain, groups, marked = np.split(total, (len(PLAIN_KINDS), len(PLAIN_KINDS) + len(GROUPS)))
        group = GROUPS[int(groups.argmax())]
        if marked[1] > 0 and not DISCARD_MARKS.isdisjoint(marks):
            return Weighed(DISCARD, 0.0, group)
        likely = _softmax(plain)
        kept = float(likely[: len(KEPT_KINDS)].sum())
        if marked[0] > 0 and not SECRET_MARKS.isdisjoint(marks):
            return Weighed(SECRET, max(kept, float(1 / (1 + np.exp(-marked[0])))), group)
        return Weighed(PLAIN_KINDS[int(likely.argmax())], kept, group)


@cache
def shipped_model() -> SentenceModel:
    """Read the model that ships, once."""
    given = json.loads(MODEL_FILE.read_text(encoding="utf-8"))
    weights, vector_weights = (_unpack(given[f"{of}weights"], given[f"{of}steps"]) for of in ("", "vector_"))
    rows = {name: row for row, name in enumerate(given["features"].split("\t"), start=1)}  # the first is the bias
    return SentenceModel(WordClasses(given["classes"]), rows, weights, vector_weights)


def _unpack(text: str, steps: str) -> Numbers:
    """Return whole numbers of one byte times the step of their column."""
    each = np.array(steps.split(), dtype=np.float32)
    whole = np.frombuffer(zlib.decompress(b64decode(text)), dtype=np.int8)
    return whole.reshape(-1, len(each)).astype(np.float32) * each


def _softmax(values: Numbers) -> Numbers:
    powers: Numbers = np.exp(values - values.max())
    likely: Numbers = powers / powers.sum()
    return likely


def split_tokens(text: str, most: int = MAX_TOKENS) -> list[str]:
    """Return words, numbers, signs and single East Asian characters in small letters."""
    return TOKEN.findall(text.lower().translate(WIDE_SIGNS))[:most]


def find_classes(text: str) -> frozenset[str]:
    """Return the classes of the words of a text, as far as it is read."""
    return frozenset[str]().union(*shipped_model().classes.find(split_tokens(text)))


def find_features(sentence: str, classes: WordClasses) -> tuple[list[str], list[str]]:
    """Return the words of a sentence and what is marked in it, each once."""
    sentence = EMPHASIS.sub("", sentence)
    tokens = split_tokens(sentence)
    found = classes.find(tokens)
    words = dict.fromkeys(_words([_shape(token) for token in tokens]))
    marks = dict.fromkeys(f"@{mark}" for mark in _marks(sentence, tokens, found))
    return [*words], [*marks]


def _shape(token: str) -> str:
    """Return what counts of a token: of a number its length."""
    if token[0] in "\x00\n":
        return token[0]
    return f"#{min(len(token), 6)}" if token.isdigit() else token


def _words(tokens: Sequence[str]) -> Iterable[str]:
    for token in tokens:
        yield token
        if len(token) > NEAR_TOKENS:
            yield f"^{token[:4]}"
            yield f"${token[-3:]}"
    whole = ("<", *tokens, ">")
    for first, second in pairwise(whole):
        yield f"{first} {second}"


def _marks(sentence: str, tokens: Sequence[str], found: Sequence[frozenset[str]]) -> Iterable[str]:
    every = frozenset[str]().union(*found)
    yield from sorted(every)
    yield f"length {min(len(tokens), 20) // 4}"
    for place, classes in enumerate(found[:3]):
        yield from (f"{'first' if place == 0 else 'early'} {name}" for name in sorted(classes))
    yield from _pairs(found)
    if "me" not in every:
        yield "nobody"
    is_asked = sentence.rstrip("\"'”’)» \x00").endswith(("?", "？", "؟"))
    yield from _wishes(tokens, found, is_asked=is_asked)
    if is_asked:
        yield "asked"
        yield from (f"asked {name}" for name in ("memory", "forget", "credential", "that") if name in every)
    elif "?" in tokens:
        yield "asked inside"
    if HIDDEN in sentence:
        yield "hidden"
    if tokens and tokens[-1] == ":":
        yield "ends with colon"
    yield from _values(sentence, tokens, found, every)


def _pairs(found: Sequence[frozenset[str]]) -> Iterable[str]:
    """Yield pairs of classes whose words stand near each other."""
    last: dict[str, int] = {}
    for place, classes in enumerate(found):
        if classes:
            near = [name for name, before in last.items() if place - before <= NEAR_TOKENS]
            yield from (f"{before} {name}" for name in sorted(classes) for before in near)
            last.update(dict.fromkeys(sorted(classes), place))


def _wishes(tokens: Sequence[str], found: Sequence[frozenset[str]], *, is_asked: bool) -> Iterable[str]:
    """Yield who is to remember or to forget, and whether a negation turns it round."""
    is_technical = any("technical" in classes for classes in found)
    for place, classes in enumerate(found):
        for name in sorted(classes & {"memory", "forget"}):
            denied = "not " if _is_denied(tokens, found, place) else ""
            who = _find_subject(tokens, found, place)
            asked = "asked " if is_asked else ""
            yield from (f"{denied}{name}", f"{denied}{name} by {who}", f"{asked}{denied}{name} by {who}")
            if place <= NEAR_TOKENS // 2:
                yield f"early {denied}{name}"
            followed = _following(tokens, found, place)
            yield from {f"{denied}{name} then {other}" for other in followed}
            yield f"{asked}{denied}{name} by {who} then {' and '.join(sorted(followed & OBJECTS)) or 'other'}"
            if who != "me" and not is_asked and not is_technical:
                yield "wish against" if bool(denied) == (name == "memory") else "wish for"


def _following(tokens: Sequence[str], found: Sequence[frozenset[str]], place: int) -> set[str]:
    """Return the classes of the words behind one in its clause, and how the clause ends."""
    followed: set[str] = set()
    for other in range(place + 1, min(len(tokens), place + 2 * NEAR_TOKENS)):
        if tokens[other] in CLAUSE_ENDS:
            return followed | {"nothing"} if other == place + 1 else followed | {f"end {tokens[other]}"}
        followed |= found[other]
    return followed or {"nothing"}


def _values(
    sentence: str, tokens: Sequence[str], found: Sequence[frozenset[str]], every: frozenset[str]
) -> Iterable[str]:
    """Yield which values a sentence gives, of what, and what is said to be a password."""
    kinds = [name for name in ("credential", "number_of", "opens", "phone", "technical") if name in every]
    named = " and ".join(kinds) or "nothing"
    shapes = sorted(_shapes(sentence))
    for shape in shapes:
        yield f"shape {shape}"
        yield from (f"{shape} of {name}" for name in kinds or ("nothing",))
    if not VALUES.isdisjoint(shapes):
        yield "value"
        yield f"value of {named}"
    for place, classes in enumerate(found):
        name = next((name for name in ("credential", "number_of", "opens") if name in classes), None)
        if name is not None:
            yield from _told(name, place, tokens, found)


def _told(name: str, place: int, tokens: Sequence[str], found: Sequence[frozenset[str]]) -> Iterable[str]:
    """Yield what follows after `is` or a colon behind a word for a secret."""
    equals = next((other for other in range(place + 1, min(place + 7, len(tokens))) if tokens[other] in EQUALS), None)
    if equals is None:
        return
    rest = [*takewhile(lambda other: tokens[other] not in CLAUSE_ENDS, range(equals + 1, len(tokens)))]
    yield f"{name} is"
    yield f"{name} is {min(len(rest), 5)} words"
    yield from {f"{name} is {other}" for one in rest[:3] for other in found[one]}


def _is_denied(tokens: Sequence[str], found: Sequence[frozenset[str]], place: int) -> bool:
    """Return whether a negation belongs to a word: before it in its clause, in German also behind it."""
    before = range(place - 1, max(-1, place - NEAR_TOKENS - 2), -1)
    for other in before:
        if tokens[other] in CLAUSE_ENDS:
            break
        if "not" in found[other]:
            return True
    for other in range(place + 1, min(len(tokens), place + NEAR_TOKENS + 2)):
        if tokens[other] in CLAUSE_ENDS or "that" in found[other]:
            break
        if "not_behind" in found[other]:
            return True
    return False


def _find_subject(tokens: Sequence[str], found: Sequence[frozenset[str]], place: int) -> str:
    for other in range(place - 1, max(-1, place - NEAR_TOKENS - 2), -1):
        if tokens[other] in CLAUSE_ENDS:
            break
        if found[other] & {"me", "you"}:
            return "you" if "you" in found[other] else "me"
    return "nobody"


def holds_value(sentence: str) -> bool:
    """Return whether a sentence holds something like a code: many digits, or letters mixed with digits or signs."""
    return not VALUES.isdisjoint(_shapes(sentence))


def _shapes(sentence: str) -> set[str]:
    """Return the shapes of the numbers and codes of a sentence."""
    found = {
        _shape_of_code(part[0].strip(".!?/-*_")) if (name := part.lastgroup) == "code" else name or ""
        for part in SHAPES.finditer(sentence)
    }
    return found - {""}


def _shape_of_code(part: str) -> str:
    digits = sum(map(str.isdigit, part))
    if digits == len(part):
        return f"number {min(digits, 9)}" if digits else ""
    has_sign = any(sign in "!#$%&*_=+@" for sign in part[1:-1]) or part[-1:] in ("!", "#", "$")
    if VERSION.fullmatch(part) is not None:
        return "amount"
    if not any(map(str.isalpha, part)):
        return "number and sign" if digits > 2 else ""
    if IDENTIFIER.fullmatch(part) is not None:
        return "identifier"
    if digits == 0 and not has_sign:
        return "camel" if any(map(str.isupper, part[1:])) and any(map(str.islower, part)) else ""
    if has_sign and (digits or len(part) >= CODE_CHARS):
        return "mixed with sign"
    if part.isupper() or digits >= len(part) // 2:
        return "capitals and digits" if digits else ""
    return f"letters and {min(digits, 4)} digits" if digits else ""
