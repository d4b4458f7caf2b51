"""Composition of recalled texts for one request: without duplicates, within a budget, cut at word boundaries. Pure.

The budget goes first to the nearest quotes and the standing part (who the person is), each up to its share, then to
other evidence for the message, then to the other layers in their order. In the request the standing part comes first
and evidence last, the nearest quotes next to the message. A line stands once: among the nearest quotes, if it is one.

The injection log: a JSON line for each turn with its recalled text. One private file for all programs of a user.
`hermes memory explain` shows the same from the store.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import re
import stat
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from hermes.errors import ProviderError
from hermes.fence import OVERHEAD_CHARS, disarm
from hermes.honcho.addresses import EntryTarget
from hermes.honcho.evidence import Quote, write_quotes
from hermes.memory.provider import Host, Part, Recalled
from hermes.types import Json

CHARS_PER_TOKEN = 4
DEFAULT_TOKENS = 1000
MAX_INJECTED_CHARS = 32_000
"""The most that the host accepts from one recall."""
READ_FACTOR = 2
"""How much of a section is read, in budgets: duplicates in it are dropped, and more would not fit."""
MAX_CACHED_LINE_CHARS, MAX_CACHED_LINES = 400, 4096
"""Length of the lines whose normalized form is cached, and the size of that cache."""
SEPARATOR_CHARS = 2
"""Length of the separator that the host puts between two parts."""
SUPPLEMENT = "dialectic"
"""The layer before evidence, which leaves room for it."""
EVIDENCE, NEAREST = "evidence", "nearest"
"""The last layers: what was found for the message, then the best of it, next to the message."""
STANDING, STANDING_LINES = "user card", "standing"
"""The first layers, which are always included: key facts, and the person's lasting statements."""
MAX_STANDING_CHARS = 1200
MAX_LEFT_OUT = 20
BRIEF_CHARS = 100
"""Omitted lines that a part lists, and the length of each."""
STANDING_SHARE, LEFT_SHARE = 0.2, 0.3
"""Shares of the budget: the limit of the standing part, and the share kept from evidence for it and the supplement."""

MARKER = re.compile(r"^\s*(?:[-*•]\s+|\d{1,3}[.)]\s+)?(?:\[\d{4}-\d\d-\d\d[^\]\n]{0,30}\]\s*)?")
DATED = re.compile(r"^\s*(?:[-*•]\s+)?\[\d{4}-\d\d-\d\d")
SIGNED = re.compile(rf"{MARKER.pattern}[\w-]{{1,100}}: ")
NOT_WORDS = re.compile(r"[\W_]+")
# Scripts that put no space between words: there any character may end a piece.
UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\u2fdf\u3005-\u3007\u3040-\u30ff\u3100-\u312f\u31a0-\u31ff"
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"
)
JOINERS = frozenset("\u200d\ufe0e\ufe0f")


class Section(Struct, frozen=True):
    """A titled text of one layer."""

    layer: str
    title: str
    text: str
    as_of: float
    left: int = 0
    """Characters of the source that were not read."""
    quotes: tuple[Quote, ...] = ()
    """Evidence, the best first, instead of a text."""


def budget_chars(tokens: int | None) -> int:
    """Return the length limit of a recall, so that its block in the request, including the fence's note, has at most
    four characters per token."""
    return min(max((tokens or DEFAULT_TOKENS) * CHARS_PER_TOKEN - OVERHEAD_CHARS, 0), MAX_INJECTED_CHARS)


def compose(sections: Iterable[Section], limit: int) -> tuple[Part, ...]:
    """Return the sections as parts whose joined length is at most `limit`. A part omits lines of the parts filled
    before it. A part with empty text did not fit; its `cut` is its length."""
    given = [_beginning(section, READ_FACTOR * limit) for section in sections]
    apart = (STANDING, STANDING_LINES, EVIDENCE, NEAREST, SUPPLEMENT)
    card, lines, evidence, best, supplement = ([one for one in given if one.layer == layer] for layer in apart)
    base = [section for section in given if section.layer not in apart]
    wanted = sum(len(_write(section, section.text)) + SEPARATOR_CHARS for section in supplement)
    said = _SaidLines()
    nearest = _quote_unsaid(best, int(limit * (1 - LEFT_SHARE)), said)
    first = _fill_first(card, lines, min(int(limit * STANDING_SHARE), MAX_STANDING_CHARS), said)
    room = limit - _length(nearest) - _length(first)
    kept = min(wanted, max(0, int(limit * LEFT_SHARE) - _length(first)))
    last = _quote_unsaid(evidence, room - kept, said)
    room -= _length(last)
    between = _fill(base, room - min(wanted, max(kept, room // 2)), said)
    return (*first, *between, *_fill(supplement, room - _length(between), said), *last, *nearest)


def _fill_first(card: Sequence[Section], lines: Sequence[Section], room: int, said: _SaidLines) -> tuple[Part, ...]:
    """Return the standing part: key facts and lasting statements, each with half of the room or what the other
    leaves."""
    wanted = _length(_quote(section, room) for section in lines)
    first = _fill(card, room - min(wanted, room // 2), said)
    return (*first, *_quote_unsaid(lines, room - _length(first), said))


def _quote_unsaid(sections: Sequence[Section], room: int, said: _SaidLines) -> tuple[Part, ...]:
    """Return sections of quotes as parts without lines in `said`, and add the new lines to it."""
    parts = []
    for section in sections:
        left = set(_leave_out([quote.text for quote in section.quotes], said))
        quotes = tuple(quote for quote in section.quotes if quote.text in left)
        parts.append(_quote(replace(section, quotes=quotes), room))
        said.add(parts[-1].text)
    return tuple(parts)


def _length(parts: Iterable[Part]) -> int:
    """Return the length of parts, separators included."""
    return sum(len(part.text) + SEPARATOR_CHARS for part in parts if part.text)


def _quote(section: Section, room: int) -> Part:
    """Return a part with the best quotes that fit, their reasons, and some of those that did not fit."""
    text, kept = write_quotes(section.quotes, room - len(_write(section, "")) - SEPARATOR_CHARS)
    whole = _write(section, text) if text else ""
    stays = {quote.text for quote in kept}
    left = [quote for quote in section.quotes if quote.text not in stays]
    cut, tokens = sum(len(quote.text) for quote in left), -(-len(whole) // CHARS_PER_TOKEN)
    why, why_not = (tuple(quote.why for quote in kept), tuple(_brief(quote) for quote in left[:MAX_LEFT_OUT]))
    return Part(section.layer, whole, section.as_of, tokens, cut, why, why_not)


def _brief(quote: Quote) -> str:
    """Return the start of an omitted quote, with its reason."""
    text = cut_at_word(quote.text, BRIEF_CHARS)
    return f"{text}{'' if text == quote.text else ' …'} ({quote.why})"


def _beginning(section: Section, most: int) -> Section:
    """Return a section limited to `most` characters, which bounds the cost of comparing lines. From dated lines the
    newest are kept."""
    text, surplus = section.text[:most], max(0, len(section.text) - most)
    if surplus and _is_dated(text.splitlines()):
        text = section.text[-most:].partition("\n")[2]
    return replace(section, text=disarm(text), left=surplus)


def cut_at_word(text: str, limit: int) -> str:
    """Return the longest start of a text with at most `limit` characters that splits no word; "" if the first word
    is longer."""
    if len(text) <= limit:
        return text
    end = next((place for place in range(max(0, limit), 0, -1) if _may_end(text, place)), 0)
    return text[:end].rstrip()


def _may_end(text: str, place: int) -> bool:
    before, after = text[place - 1], text[place]
    if before.isspace() or after.isspace():
        return True
    if before in JOINERS or after in JOINERS or not after.isprintable() or _is_mark(after):
        return False
    return bool(UNSPACED.match(before) or UNSPACED.match(after))


def _is_mark(character: str) -> bool:
    import unicodedata  # only for texts that must be cut

    return unicodedata.category(character).startswith("M")


def _fill(sections: Sequence[Section], limit: int, said: _SaidLines) -> tuple[Part, ...]:
    """Return the sections as parts, as far as they fit, without lines that `said` or an earlier part has."""
    parts: list[Part] = []
    for section in sections:
        room = limit - len(_write(section, ""))
        if room <= 0 and section.text.strip():  # nothing to compare
            parts.append(Part(section.layer, "", section.as_of, 0, len(section.text) + section.left))
            continue
        units = _split_units(section.text)
        whole = _drop_bare_headings(_leave_out(units, said))
        if not whole:
            continue
        kept = _cut(whole, units, room, said)
        text = _write(section, kept) if kept else ""
        limit -= len(text) + SEPARATOR_CHARS if text else 0
        said.add(kept)
        tokens = -(-len(text) // CHARS_PER_TOKEN)  # rounded up
        parts.append(Part(section.layer, text, section.as_of, tokens, len(whole) - len(kept) + section.left))
    return tuple(parts)


def _cut(whole: str, units: Sequence[str], room: int, said: _SaidLines) -> str:
    """Return as much of a section as fits. Dated units are chronological: the newest are kept, and the later of two
    duplicates."""
    if len(whole) <= room:
        return whole
    if not _is_dated(units):
        return _drop_bare_headings(cut_at_word(whole, room).splitlines())
    kept: list[str] = []
    for unit in _leave_out(units[::-1], said, room):
        room -= len(unit) + 1
        if room < -1:  # nothing stands behind the last one
            break
        kept.append(unit)
    return _drop_bare_headings(kept[::-1])


def _is_dated(lines: Sequence[str]) -> bool:
    """Return True if most lines start with a date: a server writes these in chronological order."""
    return 2 * sum(bool(DATED.match(line)) for line in lines) >= len(lines) > 0


def _write(section: Section, text: str) -> str:
    return f"## {section.title}\n{text}"


class _Form(NamedTuple):
    """A normalized line for comparison: lower-case words without list mark and time."""

    plain: str
    triples: tuple[str, ...]
    """All runs of three words. A text that contains the line contains all of them, which is faster to check."""
    unsigned: str | None
    """The normalized line without its speaker; None without a speaker."""


class _SaidLines:
    """The normalized lines of earlier parts."""

    def __init__(self) -> None:
        self._text = "\n"
        self._triples: set[str] = set()

    def add(self, text: str) -> None:
        self.add_forms([_form(line) for line in text.splitlines()])

    def add_forms(self, forms: Sequence[_Form]) -> None:
        self._text += "".join([f"{form.plain}\n" for form in forms])
        for form in forms:
            self._triples.update(form.triples)

    def has(self, form: _Form) -> bool:
        return self._triples.issuperset(form.triples) and form.plain in self._text


def _split_units(text: str) -> list[str]:
    """Split a text into lines, each with the indented lines below it: earlier versions and premises."""
    units: list[str] = []
    for line in text.splitlines():
        if line[:1].isspace() and line.strip() and units and units[-1].strip() and not _is_heading(units[-1]):
            units[-1] += f"\n{line}"
        else:
            units.append(line)
    return units


def _leave_out(units: Iterable[str], said: _SaidLines, room: int = READ_FACTOR * MAX_INJECTED_CHARS) -> list[str]:
    """Return the units with at least one line that neither `said` nor an earlier unit has, up to `room` characters.
    A unit is kept whole: its indented lines make no sense without its first line."""
    before = _SaidLines()
    compared: set[str | None] = set()
    kept: list[str] = []
    for unit in units:
        forms = _unit_forms(unit)
        if forms is None:
            kept.append(unit)
            continue
        for form in forms:
            # What is noted is told as it is, and again as something that its person says.
            is_compared = form.plain in compared or form.unsigned in compared
            if not (is_compared or said.has(form) or before.has(form)):
                kept.append(unit)
                room -= len(unit)
                if room < 0:
                    return kept
                before.add_forms(forms)
                break
        compared.update([form.plain for form in forms])
    return kept


def _drop_bare_headings(lines: Sequence[str]) -> str:
    """Return the lines without headings that have no text below them; "" if no text is left."""
    kept: list[str] = []
    has_text = False
    for line in reversed(lines):
        if _is_heading(line):
            if has_text:
                kept.append(line)
            has_text = False
        else:
            kept.append(line)
            has_text = has_text or bool(line.strip())
    return re.sub(r"\n{3,}", "\n\n", "\n".join(reversed(kept))).strip()


def _is_heading(line: str) -> bool:
    return line.startswith("#") or (line.endswith(":") and len(line) < 40 and line[:1].isalpha())


def _unit_forms(unit: str) -> tuple[_Form, ...] | None:
    """Return the normalized lines of a unit; None for a heading and for a unit without words."""
    return _unit_forms_again(unit) if len(unit) <= MAX_CACHED_LINE_CHARS else _make_unit_forms(unit)


def _make_unit_forms(unit: str) -> tuple[_Form, ...] | None:
    lines = (line for line in unit.splitlines() if not (line[0].isspace() and line.endswith(":")))
    forms = tuple(map(_form, lines))
    return None if _is_heading(unit) or all(form.plain.isspace() for form in forms) else forms


def _form(line: str) -> _Form:
    """Return the normalized line. Lines of usual length are cached, since the next turn often recalls them again."""
    return _form_again(line) if len(line) <= MAX_CACHED_LINE_CHARS else _make_form(line)


def _make_form(line: str) -> _Form:
    plain = _make_plain(line)
    words = plain.split()
    signed = SIGNED.match(line)
    unsigned = None if signed is None else f" {_make_plain(line[signed.end() :])} "
    return _Form(f" {plain} ", tuple(map("{} {} {}".format, words, words[1:], words[2:])), unsigned)


def _make_plain(line: str) -> str:
    """Return a line as lower-case words, without list mark and time."""
    return NOT_WORDS.sub(" ", MARKER.sub("", line, count=1).lower()).strip()


_form_again = lru_cache(MAX_CACHED_LINES)(_make_form)
_unit_forms_again = lru_cache(MAX_CACHED_LINES)(_make_unit_forms)


log = logging.getLogger(__name__)
VARIABLE = "HONCHO_INJECTION_LOG"
DEFAULT = Path(".honcho") / "injection.log"
"""Relative to the user's folder."""
MAX_LOG_BYTES = 8 * 1024 * 1024
"""At this size the file is renamed to `<name>.1`, replacing an earlier one."""


def find_log(env: Mapping[str, str]) -> Path:
    """Return the path of the log."""
    folder = Path(env["HOME"]) if env.get("HOME") else Path.home()
    given = env.get(VARIABLE, "")
    return Path(os.path.expanduser(given)) if given else folder / DEFAULT  # noqa: PTH111 - an unknown user is no error


class InjectionLog(Struct, frozen=True):
    """The log of one conversation. Writing happens outside the turn; failures are only logged."""

    host: Host
    about: Mapping[str, Json]
    """The fields common to every record of the conversation."""

    @classmethod
    def at(cls, host: Host, target: EntryTarget, session_id: str) -> InjectionLog:
        names = {"workspace": target.workspace, "session": target.session, "hermes_session": session_id}
        return cls(host, names)

    def write(self, turn: int, recalled: Recalled) -> None:
        """Write the record of a turn in the background."""
        record = {
            "at": self.host.clock.now(),
            **self.about,
            "turn": turn,
            "parts": recalled.parts,
            "missed": recalled.missed,
        }
        path = find_log(self.host.env)

        async def append() -> None:
            try:
                await asyncio.to_thread(append_line, path, msgspec.json.encode(record))
            except OSError as error:
                log.warning("the injection log %s cannot be written: %s", path, error.strerror)

        try:
            self.host.spawn(append(), "injection log")
        except ProviderError as error:
            log.warning("a record of the injection log was dropped: %s", error.line())


def append_line(path: Path, line: bytes) -> None:
    """Append a line in one write to a private file. Raises OSError, also for devices and pipes: a device must not
    get other permissions, and a pipe without a reader would block."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    place = os.open(path, flags, 0o600)
    try:
        if not stat.S_ISREG(os.fstat(place).st_mode):
            raise OSError(errno.EINVAL, "it is not a file")
        if hasattr(os, "fchmod"):
            os.fchmod(place, 0o600)
        os.write(place, line + b"\n")
        is_full = os.fstat(place).st_size >= MAX_LOG_BYTES
    finally:
        os.close(place)
    if is_full:
        path.replace(path.with_name(f"{path.name}.1"))
