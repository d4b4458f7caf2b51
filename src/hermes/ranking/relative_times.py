"""Relative times in a text ("last week", "am Freitag", "三年前"), resolved from the day of the text.

Each word becomes a letter, its code (see `time_words`), and one regular expression over these letters finds the
phrases. So the languages share one grammar, and the time grows only with the length of the text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from functools import cache, cached_property, lru_cache
from itertools import groupby, islice

from hermes.ranking.time_words import COMMON, TABLES, VERBS

MAX_CACHED_CHARS, MAX_CACHED_TEXTS = 500, 4096
"""The length up to which texts are cached after writing them out, and the number of cached texts."""
MAX_PHRASES = 50
"""The number of phrases that are resolved in a text."""
MAX_VERB_DISTANCE_WORDS = 12
"""The distance within which a verb shows the tense of a phrase."""
MAX_COUNTS = {"d": 3660, "w": 520, "m": 240, "y": 200}
"""Larger counts, by unit, are not times relative to today."""
LAST_HOLIDAY_DAYS = 30
"""For this long after a holiday, "last Christmas" is still the one of the year before."""
NEAR_DAYS = 90
"""A date without a year means the nearest one within this distance, whatever the tense: "I booked the flight of 3
June".
"""
MONTH_NAMES = (
    *("January", "February", "March", "April", "May", "June", "July"),
    *("August", "September", "October", "November", "December"),
)
SEASON_NAMES = ("spring", "summer", "autumn", "winter")
WINTER_CODE = 3
SINCE = "since "
CAPITALISED = frozenset({"may", "march"})
"""Words that name a month only with a capital letter."""
PERIOD = "(?:[Nn]U|P)"
BEFORE_DATE = "[OIZC]?J?(?:[Ww],?[OJjx]{0,2})?"
SAME = str.maketrans("ewmni", "EWMNt")
WORD = re.compile(r"\w+")
ORDINAL = re.compile(r"\d{1,2}(?:st|nd|rd|th|er|\.|[日号])")
YEAR = re.compile(r"(?:1\d|20)\d\d年?")
DIGITS = re.compile(r"\d{1,6}")
OTHER = ("x", "")
COMMAS = frozenset(",:，、：–—")
SENTENCE_ENDS = frozenset(".!?;\n。！？；")
SENTENCE_END = re.compile(r"[.!?](?=\s|$)|[。！？](?![。！？])|(?=\n)")
Meaning = tuple[date, date, str]
"""The first and the last day, and both in words."""
Values = Mapping[str, str]
"""The values of a phrase's words, by code."""


@dataclass(frozen=True, slots=True)
class RelativeTime:
    """A phrase of a text, its days, and these in words."""

    start: int
    end: int
    first: date
    last: date
    written: str

    @property
    def is_span(self) -> bool:
        """True for the whole time from then until the day of the text."""
        return self.written.startswith(SINCE)


def resolve(text: str, said_on: date, language: str | None = None) -> list[RelativeTime]:
    """Return the relative times of a text, in order. `said_on` may be a datetime: its day counts. `language` is en,
    de, es, fr or zh; by default the words of the text decide.
    """
    words = set(WORD.findall(text.lower()))
    reader = READERS.get(language or _language_of(text, words))
    if reader is None or not (reader.is_spaceless or ORDINAL.search(text) or not words.isdisjoint(reader.signals)):
        return []
    return list(islice(_Phrases(reader, text, date(said_on.year, said_on.month, said_on.day)).times(), MAX_PHRASES))


def write_out(text: str, said_on: date, language: str | None = None) -> str:
    """Return the text with its relative times resolved after each sentence: "I ran last week. (week of 1 May 2023)".
    Several times in one sentence are shown with their phrases.
    """
    write = _write_out if len(text) <= MAX_CACHED_CHARS else _write_out.__wrapped__
    return write(text, date(said_on.year, said_on.month, said_on.day), language)


@lru_cache(MAX_CACHED_TEXTS)  # the next turn quotes most of these texts again
def _write_out(text: str, said_on: date, language: str | None) -> str:
    parts: list[str] = []
    done = 0
    for end, times in groupby(resolve(text, said_on, language), lambda time: _sentence_end(text, time.end)):
        found = list(times)
        meant = [f"{text[each.start : each.end]}: {each.written}" if found[1:] else each.written for each in found]
        parts += (text[done:end], f" ({'; '.join(meant)})")
        done = end
    return "".join((*parts, text[done:]))


def _sentence_end(text: str, place: int) -> int:
    found = SENTENCE_END.search(text, place)
    return len(text.rstrip()) if found is None else found.end()


class _Reader:
    """The words of one language."""

    def __init__(self, language: str) -> None:
        self.language, self.is_spaceless = language, language not in COMMON
        self.codes: dict[str, tuple[str, str]] = {}
        for line in TABLES[language].strip().splitlines():
            code, _, groups = line.partition(" ")
            for value, *words in (group.split() for group in groups.split(" · ")):
                self.codes.update({word.replace("_", " "): (code, value) for word in words})
        telling = (word for word, (code, _) in self.codes.items() if code in "DUEWwMSH")
        self.signals = frozenset(WORD.findall(word)[-1] for word in telling)
        """A text with a relative time contains at least one of these words."""
        self.known = self.signals.union(self.codes, COMMON.get(language, "").split())

    @cached_property
    def verb(self) -> re.Pattern[str]:
        return re.compile(VERBS[self.language])

    @cached_property
    def token(self) -> re.Pattern[str]:
        longest = sorted(self.codes, key=len, reverse=True)
        parts = [YEAR.pattern, r"\d{1,2}[日号月]", r"\d+", *longest, r"\S"]
        if not self.is_spaceless:
            phrases = (rf"{re.escape(word)}(?!\w)" for word in longest if not word.isalpha())
            ordinal = r"\d{1,2}\.(?=\s[A-Z])|" if self.language == "de" else ""
            parts = [*phrases, rf"{ordinal}\d+(?:[.,:]\d+)*\w*", r"\w+", r"[^\w\s'’]|\n"]
        return re.compile("|".join(parts), re.IGNORECASE)

    def read(self, token: str, before: str) -> tuple[str, str]:
        """Return the code and the value of a token, given the code of the previous token."""
        small = token.lower()
        if (known := self.codes.get(small)) is not None:
            is_other = (small in CAPITALISED and token == small) or (small == "morgen" != token and before not in ".,")
            return OTHER if is_other else known
        if token[0].isalpha():
            return OTHER
        if digits := DIGITS.match(token):
            if YEAR.fullmatch(token):
                return "Y", digits[0]
            ordinal = "m" if token[-1] == "月" else "t" if ORDINAL.fullmatch(token) else "x"
            return "n" if token.isdigit() else ordinal, digits[0]
        return "." if token in SENTENCE_ENDS else "," if token in COMMAS else "#", ""


class _Phrases:
    """A text as words with their codes, and the phrases in it."""

    def __init__(self, reader: _Reader, text: str, today: date) -> None:
        self.text, self.today, self.verb = text, today, reader.verb
        self.tokens = list(reader.token.finditer(text))
        self.values: list[str] = []
        codes = ["."]
        for token in self.tokens:
            code, value = reader.read(token.group(), codes[-1])
            codes.append(code)
            self.values.append(value)
        self.codes = "".join(codes[1:])

    def times(self) -> Iterator[RelativeTime]:
        for found in _grammar().finditer(self.codes):
            start, end = self.span = found.span()
            given = dict(zip(found[0].translate(SAME), self.values[start:end], strict=True))
            try:
                meant = RULES[str(found.lastgroup)][1](self, given)
            except (ValueError, OverflowError):  # no such day: 31 June, or before year 1
                continue
            if meant is not None:
                last = self.tokens[end - 1].end()
                is_owner = self.text[last : last + 2] in ("'s", "’s")
                yield RelativeTime(self.tokens[start].start(), last + 2 * is_owner, *meant)

    def around(self) -> tuple[int, int]:
        """Return the range of words around the phrase, within its sentence."""
        start, end = self.span
        low = max(0, start - MAX_VERB_DISTANCE_WORDS)
        stop = self.codes.find(".", end, end + MAX_VERB_DISTANCE_WORDS)
        high = min(end + MAX_VERB_DISTANCE_WORDS, len(self.codes)) if stop < 0 else stop
        return max(low, self.codes.rfind(".", low, start) + 1), high

    def before(self) -> range:
        """Return the positions of the words before the phrase, within its sentence."""
        return range(self.around()[0], self.span[0])

    def has(self, code: str) -> bool:
        """Return True if a word with this code is near the phrase."""
        return code in self.codes[slice(*self.around())]

    def verbs_in(self, places: Iterable[int]) -> list[str]:
        """Return the kinds of the verbs at these positions."""
        verbs = (self.verb.fullmatch(self.tokens[place][0].lower()) for place in places)
        return [str(verb.lastgroup) for verb in verbs if verb is not None]

    def is_past(self) -> bool:
        """Return True if the phrase is about the past."""
        (start, end), (low, high) = self.span, self.around()
        nearest = sorted((*range(low, start), *range(end, high)), key=lambda place: max(start - place, place - end + 1))
        kinds = self.verbs_in(nearest)
        told = next((kind for kind in kinds if kind in ("past", "future")), "future")
        return told == "past" or {"have", "been"} <= set(kinds)

    def is_lasting(self) -> bool:
        """Return True if the verbs before the phrase describe something that continues: "have been", "have lived"."""
        kinds = {*self.verbs_in(self.before())}
        return not kinds.isdisjoint(("been", "never")) or {"have", "past"} <= kinds


def _day(day: date) -> Meaning:
    return day, day, f"{day.day} {MONTH_NAMES[day.month - 1]} {day.year}"


def _week(day: date) -> Meaning:
    monday = day - timedelta(day.weekday())
    return monday, monday + timedelta(6), f"week of {_day(monday)[2]}"


def _weekend(day: date) -> Meaning:
    saturday = day + timedelta(5 - day.weekday())
    return saturday, saturday + timedelta(1), f"weekend of {_day(saturday)[2]}"


def _month(year: int, month: int) -> Meaning:
    """Return a month; 0 is December of the previous year, 13 January of the next."""
    year, month = year + (month - 1) // 12, (month - 1) % 12 + 1
    after = date(year + month // 12, month % 12 + 1, 1)
    return date(year, month, 1), after - timedelta(1), f"{MONTH_NAMES[month - 1]} {year}"


def _season(year: int, season: int) -> Meaning:
    """Return a season of the northern hemisphere; winter begins in December of the year."""
    first, last = _month(year, 3 * season + 3)[0], _month(year, 3 * season + 5)[1]
    return first, last, f"{SEASON_NAMES[season]} {year}" + (f"/{last.year % 100:02}" if season == WINTER_CODE else "")


def _away(today: date, count: int, unit: str) -> Meaning:
    """Return the day, week, month or year that is `count` units from today's."""
    if abs(count) > MAX_COUNTS[unit]:
        raise OverflowError
    if unit == "y":
        year = today.year + count
        return date(year, 1, 1), date(year, 12, 31), str(year)
    if unit == "m":
        return _month(today.year, today.month + count)
    return _day(today + timedelta(count)) if unit == "d" else _week(today + timedelta(7 * count))


def _weekday(today: date, weekday: int, step: int) -> Meaning:
    """Return the last (-1) or next (1) such weekday, never today."""
    ahead = (weekday - today.weekday() - 1) % 7 + 1
    return _day(today + timedelta(ahead if step > 0 else ahead - 7 or -7))


def _yearly(given: Values) -> Callable[[int], Meaning]:
    """Return a function that gives the month, season or holiday of a phrase in a year."""
    if "M" in given:
        return lambda year: _month(year, int(given["M"]))
    if "S" in given:
        return lambda year: _season(year, int(given["S"]))
    month, day = map(int, given["H"].split("-"))
    return lambda year: _day(date(year, month, day))


def _by_tense(today: date, each: Callable[[int], Meaning], *, past: bool) -> Meaning:
    """Return the latest occurrence that has begun, or the first that is not over."""
    meant = [each(today.year + years) for years in (-1, 0, 1)]
    return [m for m in meant if m[0] <= today][-1] if past else next(m for m in meant if m[1] >= today)


def _nearest_date(today: date, month: int, day: int, *, past: bool) -> date:
    """Return the date nearest to today; a distant one only if it agrees with the tense."""
    years = range(today.year - 1, today.year + 2)
    days = [date(year, month, day) for year in years if day <= _month(year, month)[1].day]
    nearest = min(days, key=lambda each: abs(each - today))
    if abs(nearest - today).days <= NEAR_DAYS:
        return nearest
    fitting = [each for each in days if (each < today) == past]
    return max(fitting) if past else min(fitting)


def _period(given: Values) -> tuple[int, str]:
    if period := given.get("P") or given.get("T"):
        return int(period[:-1]), period[-1]
    return int(given.get("N", 1)), given["U"]


def _read_nothing(_text: _Phrases, _given: Values) -> None:
    return None


def _read_weekday_of_week(text: _Phrases, given: Values) -> Meaning | None:
    monday = _week(text.today)[0] + timedelta(7 * int(given["R"]))
    return _day(monday + timedelta(int(given["W"]))) if given.get("U", "w") == "w" else None


def _read_ago(text: _Phrases, given: Values) -> Meaning:
    count, unit = _period(given)
    return _away(text.today, -count, unit)


def _read_since(text: _Phrases, given: Values) -> Meaning | None:
    if given.get("R", "-1") != "-1" or ("C" in given and "R" not in given and not text.is_lasting()):
        return None
    first, _, written = _read_ago(text, given)
    return first, text.today, f"{SINCE}{written}"


def _read_later(text: _Phrases, given: Values) -> Meaning | None:
    if "never" in text.verbs_in(text.before()):  # "I haven't smoked in two years"
        return _read_since(text, given)
    return None if text.is_past() else _away(text.today, *_period(given))


def _read_part_of_year(text: _Phrases, given: Values) -> Meaning | None:
    step = given.get("y") or given.get("R") or given["r"]
    return _yearly(given)(text.today.year + int(step)) if given.get("U", "y") == "y" else None


def _read_dated(text: _Phrases, given: Values) -> Meaning | None:
    today, past, day = text.today, text.is_past(), int(given["t"] if "t" in given else given["N"])
    if text.has("B") or (text.has("b") and not past):
        return None
    if "M" in given:
        return _day(_nearest_date(today, int(given["M"]), day, past=past))
    is_this_month = day <= today.day if past else day >= today.day
    return _day(_month(today.year, today.month + (0 if is_this_month else -1 if past else 1))[0].replace(day=day))


def _read_relative(text: _Phrases, given: Values) -> Meaning | None:
    today = text.today
    if "T" in given:
        return _away(today, *_period(given))
    step = int(given.get("y") or given.get("R") or given["r"])
    if "y" in given or "U" in given:
        unit = given.get("U", "y")
        return None if unit == "d" else _away(today, step, unit)
    if "E" in given:
        is_over = step == 0 and today.weekday() < 5 and text.is_past()
        return _weekend(today + timedelta(-7 if is_over else 7 * step))
    if abs(step) > 1:
        return None
    if "W" in given:
        return _weekday(today, int(given["W"]), step or (-1 if text.is_past() else 1))
    each = _yearly(given)
    if step == 0:
        return each(today.year - (given.get("S") == str(WINTER_CODE) and today.month < 7))
    if step > 0:
        return next(m for m in map(each, range(today.year, today.year + 2)) if m[0] > today)
    before = today - timedelta(LAST_HOLIDAY_DAYS if "H" in given else 0)
    return next(m for m in map(each, range(today.year, today.year - 3, -1)) if m[1] < before)


def _read_by_tense(text: _Phrases, given: Values) -> Meaning | None:
    sense = int(given.get("O") or given.get("Z") or 0)
    today, past = text.today, sense < 0 or (sense == 0 and text.is_past())
    if text.has("B") or ("M" in given and text.has("b") and not past):
        return None
    if "E" in given:
        return _weekend(today - timedelta(7) if past and today.weekday() < 5 else today)
    if "W" in given:
        return _weekday(today, int(given["W"]), -1 if past else 1)
    return _by_tense(today, _yearly(given), past=past)


def _read_day(text: _Phrases, given: Values) -> Meaning:
    return _day(text.today + timedelta(int(given["D"])))


RULES: Mapping[str, tuple[str, Callable[[_Phrases, Values], Meaning | None]]] = {
    # Complete dates, and habits.
    "nothing": (
        rf"{BEFORE_DATE}(?:[nti][oO]?)?[Mm][nt]?,?o?Y|Yo?[Mm]t?|[Ww](?:[cO]|,x?)[Ww]|B[^.,]?[WwMmSEeUDH]",
        _read_nothing,
    ),
    "weekday_of_week": (r"[OIZC]?[Ww]d?O?RU|RUO?[Ww]|Rw", _read_weekday_of_week),
    "ago": (rf"{PERIOD}A|V{PERIOD}", _read_ago),
    "since": (rf"[ZC]{PERIOD}|[OIC]JRU|[RQ][Nn]U|[Nn]QU|{PERIOD}G", _read_since),
    "later": (rf"I{PERIOD}F?|{PERIOD}F", _read_later),
    "part_of_year": (r"y[mS]|[OI]?[MS][Oox]{0,2}(?:RU|Ur)|(?:RU|Ur)[OI][MS]", _read_part_of_year),
    "dated": (rf"{BEFORE_DATE}(?:[nti][oO]?[Mm]|[Mm][nt])|OJt(?=[,.k]|O(?!R)|$)", _read_dated),
    "relative": (r"(?<![Jg])R(?:[UEeMmSH]|Wd?)|O?[UEWwMSH]r|Or[UEWMSH]|y|T", _read_relative),
    "by_tense": (
        r"[OIZC]l?M|lM|[OI]H|[OC]J?E|e|m|[OIZC][Ww](?!B)d?|(?:(?<=[k,.])|^)W(?:d|(?=[,.kOI]|$))|(?<![BNjo])wd?",
        _read_by_tense,
    ),
    "day": (r"(?<![BN])Dd?", _read_day),
}
"""The kinds of phrases: the codes of their words, and the function that resolves them. The first match counts."""


@cache
def _grammar() -> re.Pattern[str]:
    return re.compile("|".join(f"(?P<{name}>{pattern})" for name, (pattern, _) in RULES.items()))


READERS = {language: _Reader(language) for language in TABLES}


def _language_of(text: str, words: set[str]) -> str:
    if not text.isascii():
        han = sum("\u4e00" <= letter <= "\u9fff" for letter in text)
        is_japanese = han and any("\u3040" <= letter <= "\u30ff" for letter in text)
        if 2 * han > len(words):
            return "ja" if is_japanese else "zh"
    return max(COMMON, key=lambda language: len(READERS[language].known & words))
