"""A summary without a model: the sentences that carry facts, decisions, open tasks and identifiers, word for word.

The same messages always give the same digest. It is used when the model's limit is reached and no summary can be had,
and when there is no model. What an earlier summary said competes with what is new on the same terms, and identifiers
that no chosen sentence holds are listed at the end as far as they fit.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Collection, Iterable, Iterator, Sequence

from msgspec import Struct

from hermes.llm.tokens import estimate_tokens
from hermes.types import Message

SENTENCE_END = re.compile(r"(?<=[.!?…])[\"')\]]*\s+|(?<=[。！？])|\n+")
LONGEST = 240
"""Characters of one entry; a longer sentence becomes several."""

IDENTIFIER = re.compile(
    r"""
    https?://[^\s<>"']*[\w/]                            # addresses
    | (?<![\w.+-])[\w.+-]+@[\w-]+\.[\w.-]*\w            # mail
    | (?:~|\.{1,2}|[A-Za-z]:)?(?:[/\\][\w.@+-]+){2,}    # paths
    | \b[\w-]{1,255}\.(?:py|md|json|ya?ml|toml|txt|csv|sql|db|js|ts|go|rs|sh|html?|pdf|log|conf|lock)\b
    | \b\d{4}-\d{2}-\d{2}(?:[T ]\d{2}:\d{2}(?::\d{2})?)?\b | \b\d{1,2}:\d{2}\b
    | \b[A-Za-z]+(?:[-_][A-Za-z]+)*[-_#]\d[\w-]*        # ABC-123, release_7
    | \#\d+ | @\w{2,}
    | \b(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{7,40}\b
    | \b[A-Z][A-Z0-9]*_[A-Z0-9_]+\b                     # ENVIRONMENT_NAMES
    | \bv?\d+(?:[.,]\d+)+\b | \b\d{2,}\b
    """,
    re.VERBOSE,
)
QUOTED = re.compile(r"`[^`\n]{2,60}`")
NAME = re.compile(r"(?<![.!?:] )(?<!^)\b[A-Z][a-zà-ÿ]+(?: [A-Z][a-zà-ÿ]+)*")
WEIGHTS = (
    (re.compile(r"\b(decid|decision|agree|chose|conclu|settled|approved|instead of|will use|go with)", re.I), 4.0),
    (re.compile(r"\b(todo|to do|open task|next step|must|needs? to|have to|remind|deadline|due|unresolved|pending|still"
                r"|waiting for|blocked|follow up|by (?:mon|tues|wednes|thurs|fri|satur|sun)day)\b", re.I), 4.0),
    (re.compile(r"\b(my|our|i am|i'm|i have|i live|i like|i prefer|i work|we are|call me|name is|allergic|never"
                r"|always|birthday|prefers?|favou?rite|password|account|lives? in|works? (?:at|for|as))\b", re.I), 2.5),
    (re.compile(r"\b(error|failed|fixed|broke|bug|because|reason|cause|turned out|root cause)\b", re.I), 1.5),
    (re.compile("决定|決定|決め|选择|同意|采用|採用"), 4.0),
    (re.compile("待办|必须|必須|需要|記得|记得|截止|期限|まだ|しなければ|未完成"), 4.0),
    (re.compile("我叫|我的|我是|我住|喜欢|名前|私は|住んで|好き|過敏|过敏|アレルギー"), 2.5),
)  # fmt: skip
ROLE_WEIGHTS = {"user": 1.5, "assistant": 1.0, "tool": 0.2}
"""How much what was said weighs, by who said it: a tool's listing has many identifiers and few that matter."""
PLAIN = 1.0
"""What a sentence is worth that tells nothing in particular."""
NEW_IDENTIFIER = 2.0
NEW_NAME = 0.7
COUNTED = 4
"""Identifiers of one sentence that count: a list of hundreds is no better than four."""

TELLING = PLAIN + 2.0
STRONG = 5
WORD = re.compile(r"\w{4,}")
MISSING = "Also said, word for word:"
OPENING = "Digest (made without a model, quoting what was said):"
ALSO = "- also mentioned: "
ALSO_SHARE = 5
"""The part of the room, as a divisor, that is left for identifiers without their sentences."""


class DigestLine(Struct, frozen=True):
    """A line that may stand in the digest, and what speaks for it."""

    place: int
    line: str
    weight: float
    base: float
    cost: int
    identifiers: tuple[str, ...]
    names: tuple[str, ...]

    @property
    def strong_identifiers(self) -> list[str]:
        """Those long enough to be told from any other number."""
        return [mark for mark in self.identifiers if len(mark) >= STRONG]

    def is_in(self, text: str, words: Collection[str]) -> bool:
        """Whether a text with these words says it: with its identifiers and most of its longer words."""
        own = set(WORD.findall(self.line.casefold()))
        return all(mark in text for mark in self.strong_identifiers) and 2 * len(own.intersection(words)) >= len(own)

    def value(self, covered: set[str]) -> float:
        """Worth per token; what others hold already is worth nothing, so it only falls as the digest grows."""
        new = sum(mark not in covered for mark in self.identifiers)
        names = sum(mark not in covered for mark in self.names)
        worth = self.base + NEW_IDENTIFIER * min(new, COUNTED) + NEW_NAME * min(names, COUNTED)
        return self.weight * worth / (12 + self.cost)


def make_digest(previous: str | None, leaving: Sequence[Message], budget: int) -> str:
    """The most telling sentences of `previous` and of what leaves, in order, within `budget` tokens."""
    room = budget - estimate_tokens(OPENING) - 1
    entries = list(_entries(previous, leaving))
    covered: set[str] = set()
    chosen = _choose(entries, room - room // ALSO_SHARE, covered)
    left = room - sum(entry.cost for entry in chosen)
    also = _also(entries, previous, covered, left)
    if not also:  # nothing to list: the room goes to sentences
        taken = {entry.place for entry in chosen}
        chosen += _choose([entry for entry in entries if entry.place not in taken], left, covered)
    lines = [entry.line for entry in sorted(chosen, key=lambda entry: entry.place)]
    return "\n".join([OPENING, *lines, *also])


def read_telling(previous: str | None, leaving: Sequence[Message]) -> list[DigestLine]:
    """What people and the assistant said, not tools, that names a fact, a decision, a task or an identifier."""
    return [
        entry
        for entry in _entries(previous, leaving)
        if entry.weight > ROLE_WEIGHTS["tool"] and (entry.base >= TELLING or entry.strong_identifiers)
    ]


def add_missing(summary: str, telling: Sequence[DigestLine], room: int) -> str:
    """`summary`, and within `room` tokens the best of those sentences that it has not taken up, word for word."""
    words = set(WORD.findall(summary.casefold()))
    missing = [entry for entry in telling if not entry.is_in(summary, words)]
    chosen = _choose(missing, room - estimate_tokens(MISSING) - 2, set())
    lines = [entry.line for entry in sorted(chosen, key=lambda entry: entry.place)]
    return "\n".join([summary, "", MISSING, *lines]) if lines else summary


def _choose(entries: Iterable[DigestLine], room: int, covered: set[str]) -> list[DigestLine]:
    """The best that fit, one after another; a value is worked out anew only when it comes to the top."""
    heap = [(-entry.value(covered), -entry.place, entry) for entry in entries]
    heapq.heapify(heap)
    chosen: list[DigestLine] = []
    while heap and room > 0:
        worth, place, entry = heapq.heappop(heap)
        if entry.cost > room:
            continue
        if (now := -entry.value(covered)) > worth:
            heapq.heappush(heap, (now, place, entry))
            continue
        chosen.append(entry)
        covered.update(entry.identifiers, entry.names)
        room -= entry.cost
    return chosen


def _also(entries: Sequence[DigestLine], previous: str | None, covered: set[str], room: int) -> list[str]:
    """Identifiers that no chosen sentence holds: those of an earlier list, then the newest."""
    listed = [line.removeprefix(ALSO) for line in (previous or "").splitlines() if line.startswith(ALSO)]
    earlier = [mark for line in listed for mark in line.split(", ")]
    new = [mark for entry in reversed(entries) if entry.weight > ROLE_WEIGHTS["tool"] for mark in entry.identifiers]
    missing = [mark for mark in dict.fromkeys([*new, *earlier]) if mark and mark not in covered]
    room -= estimate_tokens(ALSO) + 1
    taken: list[str] = []
    for mark in missing:
        cost = estimate_tokens(f"{mark}, ")
        if cost > room:
            break
        room -= cost
        taken.append(mark)
    return [ALSO + ", ".join(taken)] if taken else []


def _entries(previous: str | None, leaving: Sequence[Message]) -> Iterator[DigestLine]:
    seen: set[str] = set()
    place = 0
    for speaker, weight, text in _spoken(previous, leaving):
        for sentence in _sentences(text):
            key = sentence.casefold()
            if len(sentence) > 2 and key not in seen:
                seen.add(key)
                place += 1
                yield _entry(place, speaker, weight, sentence)


def _spoken(previous: str | None, leaving: Sequence[Message]) -> Iterator[tuple[str, float, str]]:
    """Who said what, and how much that weighs. Lines of an earlier digest say it themselves."""
    for line in (previous or "").splitlines():
        if line in (OPENING, MISSING) or line.startswith(ALSO):
            continue
        speaker, colon, text = line.removeprefix("- ").partition(": ")
        if line.startswith("- ") and colon and speaker in ROLE_WEIGHTS:
            yield speaker, ROLE_WEIGHTS[speaker], text
        else:
            yield "", ROLE_WEIGHTS["user"], line.lstrip("-*• ")
    for message in leaving:
        yield message.role, ROLE_WEIGHTS.get(message.role, 0.5), message.content or ""


def _sentences(text: str) -> Iterator[str]:
    for part in SENTENCE_END.split(text):
        sentence = " ".join(part.split())
        start = 0
        while len(sentence) - start > LONGEST:
            around = start + LONGEST // 2, start + LONGEST
            end = max(sentence.rfind(" ", *around), sentence.rfind("，", *around) + 1)
            end = end if end > start else start + LONGEST
            yield sentence[start:end].strip()
            start = end
        if rest := sentence[start:].strip():
            yield rest


def _identifiers(text: str) -> Iterator[str]:
    """Looked for only among words that are more than letters: most are not, and the pattern is a slow one."""
    if "`" in text:
        yield from QUOTED.findall(text)
    if unusual := [word for word in text.split() if not word.rstrip(",.;:!?").isalpha()]:
        yield from IDENTIFIER.findall(" ".join(unusual))


def _entry(place: int, speaker: str, weight: float, text: str) -> DigestLine:
    line = f"- {speaker}: {text}" if speaker else f"- {text}"
    base = PLAIN + sum(worth for pattern, worth in WEIGHTS if pattern.search(text))
    base -= (0.5 if text.endswith(("?", "？")) else 0.0) + (0.4 if len(text) < 12 else 0.0)
    identifiers = tuple(dict.fromkeys(mark.strip("`") for mark in _identifiers(text)))
    names = tuple(dict.fromkeys(NAME.findall(text)))
    return DigestLine(place, line, weight, base, estimate_tokens(line) + 1, identifiers, names)
