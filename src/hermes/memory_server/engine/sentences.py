"""Reading of messages: their sentences, the kind of each, and which of them a memory should keep. All code that reads
messages uses this module.

message ── hide text by others (code, quotes, pasted mail) ── split ── kind and score of each sentence

A request not to remember applies to the whole message. No language model is needed.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from hermes.memory_server.engine.sentence_kinds import (
    DISCARD,
    HIDDEN,
    IS_EAST_ASIAN,
    SECRET,
    SECRET_WORDS,
    find_classes,
    shipped_model,
    split_tokens,
)
from hermes.memory_server.engine.value_shapes import holds_value
from hermes.ranking.traits import CONFIDENTIAL, UNWANTED, traits_of

END = re.compile(r"(?<=[.!?])\s+|(?<!\s)\s*\n\s*|(?<=[。！？])\s*")
TITLE = re.compile(
    r"(?:^|[\s(])(?:dr|mr|mrs|ms|mx|prof|rev|hon|gen|col|capt|sgt|lt|st|ste|sta|sto|sr|sra|srta|jr|fr|hr|mme|mlle|mt|ft"
    r"|ca|approx|vs|cf|e\.g|i\.e|z\. ?b|d\. ?h|u\. ?a|p\. ?ej)\.$",
    re.IGNORECASE,
)
"""Matches the end of a text after an abbreviation, where the sentence continues."""
SHORTENED = re.compile(
    r"(?:^|[\s(])(?:etc|usw|bzw|inc|ltd|co|corp|str|ave|rd|blvd|nr|no|jan|feb|apr|aug|sept?|oct|okt|nov|dec|dez)\.$",
    re.IGNORECASE,
)
"""The same, if the next word does not begin like a sentence."""
INITIAL = re.compile(r"(?:^|[\s.(])[A-HJ-Z]\.$")
ORDINAL = re.compile(r"(?:^|\s)\d{1,2}\.$")
NUMBERED = re.compile(r"\s{0,20}\d{1,3}\.$")
MONTH = re.compile(
    r"jan|feb|fév|m[aä]r|apr|avr|abr|ma[ijy]|jun|jui|jul|aug|aoû|ago|se[pt]|o[ck]t|out|nov|d[eé][cz]|des|gen|giu|lug|dic",
    re.IGNORECASE,
)
MAX_ABBREVIATION_CHARS = 12
"""The number of characters before a full stop that show whether it ends a sentence."""
QUOTED = re.compile(
    r"\"[^\"\n]*\"|“[^“”\n]*”|„[^„“”\n]*[“”]|«[^«»\n]*»|「[^「」\n]*」|‘[^‘’\n]{2,200}’(?!\w)"
    r"|(?<!\w)'(?:[^'\n]|'(?=\w)){2,200}'(?!\w)"
    r"|^[ \t]*>[^\n]*",  # a quoted line, to the end of its last sentence
    re.MULTILINE,
)
TAG = re.compile(r"<(?P<end>/?)(?P<name>\w{1,40})>")
PIPED = re.compile(r"stdin_*")
"""The name of the block in which a host puts piped input."""
GREETING = re.compile(
    r"\s{0,20}(?:(?:hi|hello|hey|dear|hallo|liebe[rs]?|guten tag|moin|hola|estimad[oa]s?|querid[oa]s?|bonjour|salut"
    r"|ch[eè]re?s?)\s[^\n.!?。]{1,40}[,:!\n]|sehr geehrte|madame|monsieur|to whom"
    r"|(?:亲爱的|尊敬的|你好)[^\n。]{1,20}[，：,:!\n])",
    re.IGNORECASE,
)
"""The beginning of a letter."""
SIGNATURE = re.compile(
    r"[\n.!?…。]\s{0,20}(?:(?:all the |kind |best |warm |many |viele |liebe |mit freundlichen |un |muchos |bien )?"
    r"(?:best|regards|wishes|cheers|yours|sincerely|love|thanks|grüße[n]?|gruß|saludos|abrazo|atentamente|besos"
    r"|cordialement|amitiés|bises|à toi|à vous)|祝好|此致|敬礼|敬上)[^\n.!?]{0,20}[,，\s]\s{0,20}[^\n!?]{1,40}$",
    re.IGNORECASE,
)
"""The end of a letter."""
MAX_SIGNATURE_CHARS = 160
MAIL_HEADER = re.compile(
    r"^(?:from|to|subject|date|von|an|betreff|de|para|asunto|objet|à|发件人|收件人|主题) ?[:：]",
    re.IGNORECASE | re.MULTILINE,
)
CHAT_LINE = re.compile(r"(?:\[[^\]\n]{1,30}\] {0,2})?[^\W\d_][\w .-]{0,20} ?[:：] ?(?P<said>\S.*)")
MIN_CHAT_WORDS = 3
"""The smallest average number of words per line in a pasted chat. Shorter lines are a list: `City: Porto`."""
INTRODUCTION_END = re.compile(r"[:：?？]")
SENTENCE_END = re.compile(r"[.!?。！？\n]")
MAX_INTRODUCTIONS = 20
MAX_INTRODUCTION_CHARS = 120
OWN_WORDS = frozenset(("memory", "forget", "private", "credential", "number_of", "joke"))
"""Word classes of an introduction that the writer's own words follow: `Remember this: …`."""
MAX_SENTENCE_CHARS = 400
MIN_SENTENCE_CHARS = 8
MIN_EAST_ASIAN_CHARS = 4
MAX_SENTENCES = 1000
"""The number of sentences of one message that are read; nobody types more."""
SPEAKER = re.compile(r"^[\w-]{1,100}: ")
MAX_MARKED_CHARS = 4000
"""The number of characters of a message that are read to decide whether a search may return it."""
KEPT_SCORE = 0.6
"""The score from which a sentence is kept. A missed sentence is still found in its message; wrong ones are in the
way.
"""
SIGNS = " \t\n.,:;!?…-*#>()\"'“”。，：！？"


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence of a message, with its classification."""

    text: str
    kind: str
    """One of `sentence_kinds.KINDS`."""
    score: float
    """The probability, from 0 to 1, that a memory of the writer should keep it."""
    group: str = "other"
    """The part of life that it is about: one of `sentence_kinds.GROUPS`."""


def read_message(text: str) -> list[Sentence]:
    """Return the sentences of a message, classified in its context. If the writer asks not to remember something, no
    sentence of the message is to be kept.
    """
    own = _hide(text)
    found = [_read(text, own, start, end) for start, end in islice(_spans(own), MAX_SENTENCES)]
    if any(sentence.kind == DISCARD for sentence in found):
        return [replace(sentence, kind=DISCARD, score=0.0) for sentence in found]
    return found


def is_kept(sentence: Sentence) -> bool:
    """Return True if a memory should keep a sentence."""
    least = MIN_EAST_ASIAN_CHARS if IS_EAST_ASIAN.search(sentence.text) else MIN_SENTENCE_CHARS
    return sentence.score >= KEPT_SCORE and least <= len(sentence.text) <= MAX_SENTENCE_CHARS


def _read(text: str, own: str, start: int, end: int) -> Sentence:
    sentence = own[start:end]
    if not sentence.strip(f"{HIDDEN}{SIGNS}"):
        return Sentence(text[start:end], "quoted", 0.0)
    weighed = shipped_model().weigh(sentence[:MAX_SENTENCE_CHARS])
    return Sentence(text[start:end], weighed.kind, weighed.score, weighed.group)


def split_sentences(text: str) -> list[str]:
    """Return the sentences of a text, without empty ones."""
    return [text[start:end] for start, end in _spans(text)]


def is_statement(sentence: str) -> bool:
    """Return True if a memory should keep a sentence that stands alone."""
    return any(map(is_kept, read_message(sentence)))


def is_secret(text: str) -> bool:
    """Return True if a text, which may begin with its speaker's name, holds a password, a PIN or the like."""
    return any(sentence.kind == SECRET for said in {text, SPEAKER.sub("", text)} for sentence in read_message(said))


def asks_for_secret(question: str) -> bool:
    """Return True if a question asks for a password, a code or an account."""
    return not SECRET_WORDS.isdisjoint(find_classes(question))


def message_traits(text: str) -> int:
    """Return the traits of a message that a search needs, and whether it may return the message (see
    `ranking.traits`).
    """
    found = traits_of(text)
    part = text[:MAX_MARKED_CHARS]
    kinds = {sentence.kind for sentence in read_message(part)}
    return found | (UNWANTED if DISCARD in kinds else 0) | (CONFIDENTIAL if SECRET in kinds else 0)


def score_information(sentence: str) -> int:
    """Return roughly how informative a sentence is: names, numbers and words count, questions less."""
    words = re.findall(r"\w+", sentence)
    weight = sum(2 if word[:1].isupper() or word.isdigit() else 1 for word in words[:40])
    return weight - (8 if sentence.endswith("?") else 0)


def _spans(text: str) -> Iterator[tuple[int, int]]:
    """Yield where sentences begin and end."""
    start = 0
    for end in END.finditer(text):
        if "\n" in end[0] or not _continues(text, start, end):
            yield from _trimmed(text, start, end.start())
            start = end.end()
    yield from _trimmed(text, start, len(text))


def _trimmed(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    part = text[start:end]
    if kept := part.strip():
        begin = start + part.index(kept[0])
        yield begin, begin + len(kept)


def _continues(text: str, start: int, end: re.Match[str]) -> bool:
    """Return True if the full stop before a gap belongs to an abbreviation or a number."""
    before, after = (
        text[max(start, end.start() - MAX_ABBREVIATION_CHARS) : end.start()],
        text[end.end() : end.end() + 3],
    )
    if not before.endswith("."):
        return False
    if TITLE.search(before) or INITIAL.search(before) or NUMBERED.fullmatch(text, start, end.start()):
        return True
    if ORDINAL.search(before):
        return after[:1].islower() or MONTH.match(after) is not None
    return SHORTENED.search(before) is not None and not after[:1].isupper()


def _hide(text: str) -> str:
    """Return the text with everything hidden that is not the writer's own words."""
    own = _hide_quotes(_hide_blocks(text))
    start = 0 if _is_pasted(own) else _find_material(own)
    return own[:start] + "".join(letter if letter == "\n" else HIDDEN for letter in own[start:])


def _is_pasted(text: str) -> bool:
    """Return True if a text is a pasted letter, mail or chat."""
    if GREETING.match(text) and SIGNATURE.search(text, max(0, len(text) - MAX_SIGNATURE_CHARS)):
        return True
    if len(MAIL_HEADER.findall(text)) > 1:
        return True
    lines = [line for line in text.splitlines() if line.strip()]
    said = [found["said"] for line in lines if (found := CHAT_LINE.match(line)) is not None]
    if len(said) < max(2, len(lines)):
        return False
    return sum(len(split_tokens(line)) for line in said) >= MIN_CHAT_WORDS * len(said)


def _find_material(text: str) -> int:
    """Return where the introduced words of others begin, as in `Translate this: …`."""
    for end in islice(INTRODUCTION_END.finditer(text), MAX_INTRODUCTIONS):
        before = text[max(0, end.start() - MAX_INTRODUCTION_CHARS) : end.start()]
        introduction = SENTENCE_END.split(before)[-1]
        classes = find_classes(introduction)
        is_material = "text" in classes or (end[0] in ":：" and bool(classes & {"request", "says"}))
        if is_material and not classes & OWN_WORDS:
            return end.end()
    return len(text)


def _hide_quotes(text: str) -> str:
    """Return the text with quotes hidden, except a single word with digits or signs, such as a password."""
    return QUOTED.sub(lambda quoted: quoted[0] if _is_quoted_value(quoted[0]) else HIDDEN * len(quoted[0]), text)


def _is_quoted_value(quoted: str) -> bool:
    return len(quoted[1:-1].split()) == 1 and quoted[0] not in "> \t" and holds_value(quoted)


def _hide_blocks(text: str) -> str:
    """Return the text with code blocks, and blocks between the lines `<name>` and `</name>`, hidden. The last line
    break stays, because another sentence follows.
    """
    if "```" not in text and "<" not in text:
        return text
    lines = text.splitlines(keepends=True)
    for find_blocks in (_code_blocks, _tagged_blocks):
        for block in find_blocks(lines):
            for place in block:
                lines[place] = HIDDEN * len(lines[place])
            lines[block[-1]] = lines[block[-1]][:-1] + "\n"
    return "".join(lines)


def _code_blocks(lines: Sequence[str]) -> list[range]:
    """Return the blocks between lines of three backticks; an unclosed block extends to the end."""
    fences = [place for place, line in enumerate(lines) if line.lstrip().startswith("```")]
    ends = [*fences[1::2], len(lines) - 1]
    return [range(start, end + 1) for start, end in zip(fences[::2], ends, strict=False)]


def _tagged_blocks(lines: Sequence[str]) -> list[range]:
    """Return the blocks between tags. Piped input may be split into several messages, so its first or last line may be
    missing.
    """
    tags = {place: tag for place, line in enumerate(lines) if (tag := TAG.fullmatch(line.strip())) is not None}
    closings: dict[str, list[int]] = {}
    for place, tag in tags.items():
        if tag["end"]:
            closings.setdefault(tag["name"], []).append(place)
    blocks: list[range] = []
    for place, tag in tags.items():
        if blocks and place in blocks[-1]:
            continue
        known = closings.get(tag["name"], [])
        next_one = bisect_right(known, place)
        if not tag["end"] and next_one < len(known):
            blocks.append(range(place, known[next_one] + 1))
        elif PIPED.fullmatch(tag["name"]):
            blocks = [range(place + 1)] if tag["end"] else [*blocks, range(place, len(lines))]
    return blocks
