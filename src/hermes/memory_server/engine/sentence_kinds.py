"""Kinds of sentences, by a small linear model over words, word classes, word vectors and pieces of words.

The model is fitted to labelled messages (`python -m bench.fit_reading`) and is stored beside this file. A word class
contains words of several languages with the same role in a sentence, such as `memory` (remember, merken, 记), so that a
rule learnt from one language applies to the others.
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

from hermes.memory_server.engine.value_shapes import VALUES, find_shapes
from hermes.memory_server.engine.word_vectors import WordVectors

KEPT_KINDS = ("statement", "other", "remember", "instruction", "preference", "plan")
OTHER_KINDS = ("question", "remark", "hypothetical", "quoted")
SECRET, DISCARD = "secret", "discard"
PLAIN_KINDS = (*KEPT_KINDS, *OTHER_KINDS)
MARKED_KINDS = (SECRET, DISCARD)
"""Kinds that take precedence over all others, the last one first. Their outputs use pieces, and no word vectors."""
KINDS = (*PLAIN_KINDS, *MARKED_KINDS)
GROUPS = ("identity", "health", "family", "home", "work", "other")
"""The parts of a person's life that a sentence may be about."""
GROUPS_START, GROUPS_END = len(PLAIN_KINDS), len(PLAIN_KINDS) + len(GROUPS)
"""The columns of weights of the groups; those of the marked kinds follow."""
MODEL_FILE = Path(__file__).with_name("sentence_model.json")
EAST_ASIAN = "\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"
TOKEN = re.compile(
    rf"[{EAST_ASIAN}]|[^\W\d_{EAST_ASIAN}]+(?:-[^\W\d_{EAST_ASIAN}]+)*|\d+|[?!:;,.…¿¡/=#@<>{{}}()_+*]|\x00+|\n+"
)
IS_EAST_ASIAN = re.compile(rf"[{EAST_ASIAN}]")
EMPHASIS = re.compile(r"(?<!\w)[*_`]{1,3}(?=\S)|(?<=\S)[*_`]{1,3}(?!\w)")
"""Markdown signs around words; passwords do not have them."""
LISTED = re.compile(r"\s{0,8}(?:[-*•#]|\d{1,3}[.)])\s")
"""Matches the beginning of a list item or a heading."""
WIDE_SIGNS = str.maketrans("？！：，。（）’", "?!:,.()'")
HIDDEN = "\x00"
"""Replaces each character of a text that is not the writer's own words."""
MAX_CACHED_SENTENCES = 4096
"""The number of sentences whose results are cached: a sentence is weighed with its message, as a conclusion and for
summaries.
"""
MAX_TOKENS, LONG_TOKENS = 60, 40
"""The number of tokens of a sentence that are read, and from which all lengths are alike."""
MAX_DISTANCE_TOKENS = 4
"""The largest distance of two words that are read as a pair."""
MAX_STEM_CHARS, MIN_STEM_CHARS = 14, 3
MAX_PHRASE_CHARS = 4
"""The number of East Asian characters in a word."""
MIN_SPELLED_DIGITS = 3
"""This many digits written as words count as a code."""
SECRET_WORDS = frozenset(("credential", "number_of"))
OBJECTS = frozenset(("this", "me", "you", "says", "memory", "technical", "text", "nothing", "trace", "ask_word"))
"""Classes that say what somebody should remember or forget."""
CLAUSE_ENDS = frozenset(",:;.!?…")
EQUALS = frozenset(
    (":", "=", "is", "are", "ist", "sind", "lautet", "heißt", "es", "son", "est", "sont", "是", "为", "was", "era")
)
SECRET_THRESHOLD, WISH_THRESHOLD = 0.5, 1.5
"""The scores above which a sentence is a secret, or a wish not to remember; chosen by the false alarms in talk that the
model was not fitted to.
"""
AS = frozenset(("as", "als", "como", "comme", "use", "nehme", "uso", "utilise", "用"))
WORD_SCALE, MARK_SCALE, VECTOR_SCALE, PIECE_SCALE = 3.0, 1.5, 2.0, 3.0
"""The scales of words, marks, the vector and pieces relative to each other; chosen by cross-validation."""
PIECE_COUNT, PIECE_SIZES = 1 << 15, range(3, 6)
"""The number of hashed pieces that the marked kinds have weights for, and the numbers of characters in one."""
PIECE_FACTORS = np.array((0x9E3779B1, 0x85EBCA6B, 0xC2B2AE35, 0x27D4EB2F, 0x165667B1), dtype=np.uint32)
DIGITS = str.maketrans("123456789", "000000000")
Numbers = NDArray[np.float32]


class WordClasses:
    """Classes of words. `word*` is a prefix, `*word` a suffix, and `two_words` stands for two adjacent words."""

    def __init__(self, given: Mapping[str, str]) -> None:
        """Read the words of each class, separated by spaces."""
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
                for size in range(2, MAX_PHRASE_CHARS + 1):
                    classes |= self._words.get("".join(tokens[place : place + size]), frozenset())
            elif place + 1 < len(tokens):
                classes |= self._words.get(f"{token} {tokens[place + 1]}", frozenset())
            found.append(classes)
        return found

    def _classify(self, token: str) -> frozenset[str]:
        found = self._words.get(token, frozenset())
        for size in range(MIN_STEM_CHARS, min(len(token), MAX_STEM_CHARS) + 1):
            found |= self._beginnings.get(token[:size], frozenset()) | self._endings.get(token[-size:], frozenset())
        if "-" in token:
            found = found.union(*(self._words.get(part, frozenset()) for part in token.split("-")))
        return found


@dataclass(frozen=True, slots=True)
class Weighed:
    """The kind of a sentence, the probability that a memory should keep it, and the part of life that it is about."""

    kind: str
    score: float
    group: str


class SentenceModel:
    """The fitted model: a row of weights per feature, a column per plain kind, group and marked kind.
    Only the marked kinds have weights for pieces.
    """

    def __init__(
        self, classes: WordClasses, rows: Mapping[str, int], weights: Numbers, vector_weights: Numbers,
        piece_weights: Numbers,
    ) -> None:  # fmt: skip
        self.classes = classes
        self._rows = rows
        self._weights = weights
        self._vector_weights = vector_weights
        self._piece_weights = piece_weights
        self._vectors = WordVectors()
        self.weigh = lru_cache(MAX_CACHED_SENTENCES)(self._weigh)
        """Return the `Weighed` result of a sentence; cached."""

    def _weigh(self, sentence: str) -> Weighed:
        words, marks = find_features(sentence, self.classes)
        known = [row for word in words if (row := self._rows.get(word)) is not None]
        total = self._weights[0].copy()
        if known:
            total += self._weights.take(known, axis=0).sum(axis=0) * (WORD_SCALE / len(known) ** 0.5)
        if seen := [row for mark in marks if (row := self._rows.get(mark)) is not None]:
            total += self._weights.take(seen, axis=0).sum(axis=0) * MARK_SCALE
        total += (self._vectors.direction(sentence.replace(HIDDEN, " ")) @ self._vector_weights) * VECTOR_SCALE
        plain, groups, marked = total[:GROUPS_START], total[GROUPS_START:GROUPS_END], total[GROUPS_END:]
        group = GROUPS[int(groups.argmax())]
        if (pieces := find_pieces(sentence)).size:
            marked += self._piece_weights.take(pieces, axis=0).sum(axis=0) * (PIECE_SCALE / pieces.size**0.5)
        if marked[1] > WISH_THRESHOLD:
            return Weighed(DISCARD, 0.0, group)
        likely = _softmax(plain)
        kept = float(likely[: len(KEPT_KINDS)].sum())
        if marked[0] > SECRET_THRESHOLD:
            return Weighed(SECRET, max(kept, float(1 / (1 + np.exp(-marked[0])))), group)
        return Weighed(PLAIN_KINDS[int(likely.argmax())], kept, group)


@cache
def shipped_model() -> SentenceModel:
    """Return the built-in model, which is read once."""
    given = json.loads(MODEL_FILE.read_text(encoding="utf-8"))
    matrices = [_unpack(given[f"{of}weights"], given[f"{of}steps"]) for of in ("", "vector_", "piece_")]
    rows = {name: row for row, name in enumerate(given["features"].split("\t"), start=1)}  # the first is the bias
    return SentenceModel(WordClasses(given["classes"]), rows, *matrices)


def _unpack(text: str, steps: str) -> Numbers:
    """Return a matrix of one-byte integers, each multiplied by the step of its column."""
    each = np.array(steps.split(), dtype=np.float32)
    whole = np.frombuffer(zlib.decompress(b64decode(text)), dtype=np.int8)
    return whole.reshape(-1, len(each)).astype(np.float32) * each


def _softmax(values: Numbers) -> Numbers:
    powers: Numbers = np.exp(values - values.max())
    likely: Numbers = powers / powers.sum()
    return likely


def split_tokens(text: str, most: int = MAX_TOKENS) -> list[str]:
    """Return words, numbers, signs and single East Asian characters, lower-cased."""
    return TOKEN.findall(text.lower().translate(WIDE_SIGNS))[:most]


def find_classes(text: str) -> frozenset[str]:
    """Return the classes of the words in the part of a text that is read."""
    return frozenset[str]().union(*shipped_model().classes.find(split_tokens(text)))


def find_features(sentence: str, classes: WordClasses) -> tuple[list[str], list[str]]:
    """Return the words of a sentence and its marks, each once."""
    sentence = EMPHASIS.sub("", sentence)
    tokens = split_tokens(sentence)
    found = classes.find(tokens)
    words = dict.fromkeys(_words([_shape(token) for token in tokens]))
    marks = dict.fromkeys(f"@{mark}" for mark in _marks(sentence, tokens, found))
    return [*words], [*marks]


def find_pieces(sentence: str) -> NDArray[np.intp]:
    """Return the hashes of the runs of a few characters in a sentence. All digits count as one."""
    text = f" {' '.join(sentence.lower().translate(WIDE_SIGNS).translate(DIGITS).split())} "
    letters = np.frombuffer(text.encode("utf-32-le", "replace"), dtype=np.uint32)
    found: list[NDArray[np.uint32]] = []
    mixed = np.ones(len(letters), dtype=np.uint32)
    for size, factor in enumerate(PIECE_FACTORS[: len(letters)], start=1):
        mixed = mixed[: len(letters) - size + 1] * np.uint32(31) + letters[size - 1 :] * factor
        if size in PIECE_SIZES:
            found.append((mixed ^ (mixed >> np.uint32(15))) * np.uint32(0x2C1B3C6D) >> np.uint32(17))
    return np.concatenate(found).astype(np.intp) if found else np.zeros(0, dtype=np.intp)


def _shape(token: str) -> str:
    """Return the feature of a token: for a number its length, else the token."""
    if token[0] in "\x00\n":
        return token[0]
    return f"#{min(len(token), 6)}" if token.isdigit() else token


def _words(tokens: Sequence[str]) -> Iterable[str]:
    for token in tokens:
        yield token
        if len(token) > MAX_DISTANCE_TOKENS:
            yield f"^{token[:4]}"
            yield f"${token[-3:]}"
    whole = ("<", *tokens, ">")
    for first, second in pairwise(whole):
        yield f"{first} {second}"


def _marks(sentence: str, tokens: Sequence[str], found: Sequence[frozenset[str]]) -> Iterable[str]:
    every = frozenset[str]().union(*found)
    yield from sorted(every)
    yield f"length {min(len(tokens), LONG_TOKENS) // 4}"
    for place, classes in enumerate(found[:3]):
        yield from (f"{'first' if place == 0 else 'early'} {name}" for name in sorted(classes))
    yield from _pairs(found)
    if "me" not in every:
        yield "nobody"
    if LISTED.match(sentence):
        yield "listed"
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
    """Yield pairs of classes whose words are near each other."""
    last: dict[str, int] = {}
    for place, classes in enumerate(found):
        if classes:
            near = [name for name, before in last.items() if place - before <= MAX_DISTANCE_TOKENS]
            yield from (f"{before} {name}" for name in sorted(classes) for before in near)
            last.update(dict.fromkeys(sorted(classes), place))


def _wishes(tokens: Sequence[str], found: Sequence[frozenset[str]], *, is_asked: bool) -> Iterable[str]:
    """Yield who should remember or forget, and whether a negation reverses it."""
    is_technical = any("technical" in classes for classes in found)
    for place, classes in enumerate(found):
        for name in sorted(classes & {"memory", "forget"}):
            denied = "not " if _is_denied(tokens, found, place) else ""
            who = _find_subject(tokens, found, place)
            asked = "asked " if is_asked else ""
            yield from (f"{denied}{name}", f"{denied}{name} by {who}", f"{asked}{denied}{name} by {who}")
            if place <= MAX_DISTANCE_TOKENS // 2:
                yield f"early {denied}{name}"
            followed = _following(tokens, found, place)
            yield from {f"{denied}{name} then {other}" for other in followed}
            yield f"{asked}{denied}{name} by {who} then {' and '.join(sorted(followed & OBJECTS)) or 'other'}"
            if who != "me" and not is_asked and not is_technical:
                yield "wish against" if bool(denied) == (name == "memory") else "wish for"


def _following(tokens: Sequence[str], found: Sequence[frozenset[str]], place: int) -> set[str]:
    """Return the classes of the words after one in its clause, and how the clause ends."""
    followed: set[str] = set()
    for other in range(place + 1, min(len(tokens), place + 2 * MAX_DISTANCE_TOKENS)):
        if tokens[other] in CLAUSE_ENDS:
            return followed | {"nothing"} if other == place + 1 else followed | {f"end {tokens[other]}"}
        followed |= found[other]
    return followed or {"nothing"}


def _values(
    sentence: str, tokens: Sequence[str], found: Sequence[frozenset[str]], every: frozenset[str]
) -> Iterable[str]:
    """Yield the values that a sentence gives, what they are values of, and what it calls a password."""
    kinds = [name for name in ("credential", "number_of", "opens", "phone", "technical") if name in every]
    named = " and ".join(kinds) or "nothing"
    shapes = sorted(find_shapes(sentence))
    for shape in shapes:
        yield f"shape {shape}"
        yield from (f"{shape} of {name}" for name in kinds or ("nothing",))
    if sum("digit" in classes for classes in found) >= MIN_SPELLED_DIGITS:
        shapes.append("digits as words")
    if not VALUES.isdisjoint(shapes):
        yield "value"
        yield f"value of {named}"
    for place, classes in enumerate(found):
        name = next((name for name in ("credential", "number_of", "opens") if name in classes), None)
        if name is not None:
            yield from _mark_secrets(name, place, tokens, found)
        if name == "credential" and _is_word_then_end(tokens[place + 1 : place + 3], found[place + 1 : place + 2]):
            yield "credential then word"
        if name == "credential" and not AS.isdisjoint(tokens[max(0, place - MAX_DISTANCE_TOKENS) : place]):
            yield "as credential"


def _mark_secrets(name: str, place: int, tokens: Sequence[str], found: Sequence[frozenset[str]]) -> Iterable[str]:
    """Yield the words after `is` or a colon that follow a word for a secret."""
    equals = next((other for other in range(place + 1, min(place + 7, len(tokens))) if tokens[other] in EQUALS), None)
    if equals is None:
        return
    rest = [*takewhile(lambda other: tokens[other] not in CLAUSE_ENDS, range(equals + 1, len(tokens)))]
    yield f"{name} is"
    yield f"{name} is {min(len(rest), 5)} words"
    yield from {f"{name} is {other}" for one in rest[:3] for other in found[one]}


def _is_word_then_end(following: Sequence[str], found: Sequence[frozenset[str]]) -> bool:
    """Return True if a single word without a class follows and ends its clause."""
    if not following or any(found):
        return False
    is_east_asian = IS_EAST_ASIAN.match(following[0]) is not None
    is_word = len(following[0]) >= MAX_DISTANCE_TOKENS and following[0].isalpha()
    return is_east_asian or (is_word and (len(following) == 1 or following[1] in CLAUSE_ENDS))


def _is_denied(tokens: Sequence[str], found: Sequence[frozenset[str]], place: int) -> bool:
    """Return True if a word is negated: a negation before it in its clause, in German also after it."""
    before = range(place - 1, max(-1, place - MAX_DISTANCE_TOKENS - 2), -1)
    for other in before:
        if tokens[other] in CLAUSE_ENDS:
            break
        if "not" in found[other]:
            return True
    for other in range(place + 1, min(len(tokens), place + MAX_DISTANCE_TOKENS + 2)):
        if tokens[other] in CLAUSE_ENDS or "that" in found[other]:
            break
        if "not_behind" in found[other]:
            return True
    return False


def _find_subject(tokens: Sequence[str], found: Sequence[frozenset[str]], place: int) -> str:
    for other in range(place - 1, max(-1, place - MAX_DISTANCE_TOKENS - 2), -1):
        if tokens[other] in CLAUSE_ENDS:
            break
        if found[other] & {"me", "you"}:
            return "you" if "you" in found[other] else "me"
    return "nobody"
