"""Dates in a question, and how well the day of a message fits them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hermes.ranking.relative_times import READERS, RelativeTime

Days = NDArray[np.int32]
"""Days since 1970."""
MICROSECONDS_PER_DAY = 86_400_000_000
AMBIGUOUS = re.compile(r"\bMay\b(?!\s+I\b)|\bmars\b")
"""Months whose names are another word with another first letter: a verb, a planet."""
MONTHS = {
    word: int(value)
    for reader in READERS.values()
    for word, (code, value) in reader.codes.items()
    if code == "M" and word not in ("may", "mars")
}
YEAR = re.compile(r"(?<![\dA-Za-z])(?:19|20)\d\d(?![\dA-Za-z])")
DAY = re.compile(r"(?<!\d)([12]\d|3[01]|0?[1-9])(?:st|nd|rd|th|\.|日)?(?![\w:])")
ISO = re.compile(r"(?<!\d)((?:19|20)\d\d)[-/.年](\d\d?)(?:[-/.月](\d\d?)日?)?(?!\d)")
MONTH_OF_CJK = re.compile(r"(?<!\d)(1[0-2]|0?[1-9])月")
DIGIT = re.compile(r"\d")
WORD = re.compile(r"[^\W\d_]+")
ASKS_WHEN = re.compile(
    r"(?i)\b(?:when|what (?:date|day|month|year|time)|how (?:long|old|many (?:days|weeks|months|years))"
    r"|wann|wie lange|cuándo|cuánto tiempo)\b|什么时候|何时|哪天|いつ|何年|何月|متى"
)
FIRST_YEAR, MONTHS_OF_YEAR = 1970, 12
DAYS_OF_WEEK, MAX_DAYS_OF_MONTH = 7, 31
EPOCH_ORDINAL = date(FIRST_YEAR, 1, 1).toordinal()


@dataclass(frozen=True, slots=True)
class Dates:
    """The years, months and days of the month that a question names."""

    years: frozenset[int]
    months: frozenset[int]
    days: frozenset[int]

    def __bool__(self) -> bool:
        return bool(self.months or self.years)

    def fit(self, days: Days) -> NDArray[np.floating[Any]]:
        """Return 2 for the exact day, 1 for its month (or year, if no month is named), and 0 for any other time."""
        at = days.astype("datetime64[D]")
        months = at.astype("datetime64[M]").astype(np.int64)
        fits = np.ones(len(days), dtype=bool)
        if self.years:
            fits &= np.isin(months // MONTHS_OF_YEAR + FIRST_YEAR, [*self.years])
        if not self.months:
            return fits.astype(np.float32) / 2
        fits &= np.isin(months % MONTHS_OF_YEAR + 1, [*self.months])
        in_month = (at - at.astype("datetime64[M]").astype("datetime64[D]")).astype(np.int64) + 1
        return fits.astype(np.float32) + (fits & np.isin(in_month, [*self.days]))

    def fit_times(self, times: Iterable[RelativeTime]) -> float:
        """Return the score of the best of these times, on the scale of `fit`. A month never counts as an exact day,
        nor a year as an exact month.
        """
        fits = 0.0
        for time in times:
            days = (time.last - time.first).days + 1
            if time.is_span or (days > MAX_DAYS_OF_MONTH and self.months):
                continue
            first = time.first.toordinal() - EPOCH_ORDINAL
            best = float(self.fit(np.arange(first, first + min(days, DAYS_OF_WEEK), dtype=np.int32)).max())
            fits = max(fits, best if days <= DAYS_OF_WEEK else min(best, 1.0))
        return fits


NO_DATES = Dates(frozenset(), frozenset(), frozenset())


def find_dates(text: str) -> Dates:
    if not DIGIT.search(text) and not AMBIGUOUS.search(text) and MONTHS.keys().isdisjoint(WORD.findall(text.lower())):
        return NO_DATES
    iso = [tuple(int(part) if part else 0 for part in found) for found in ISO.findall(text)]
    rest = ISO.sub(" ", text)
    months = {MONTHS[word.lower()] for word in WORD.findall(rest) if word.lower() in MONTHS}
    months |= {5 if found == "May" else 3 for found in AMBIGUOUS.findall(rest)}
    months |= {int(found) for found in MONTH_OF_CJK.findall(rest)}
    days = {int(found) for found in DAY.findall(MONTH_OF_CJK.sub(" ", rest))} if months else set()
    years = {int(found) for found in YEAR.findall(rest)}
    return Dates(
        frozenset(years | {date[0] for date in iso}),
        frozenset(months | {date[1] for date in iso}),
        frozenset(days | {date[2] for date in iso if date[2]}),
    )


def asks_when(text: str) -> bool:
    return ASKS_WHEN.search(text) is not None
