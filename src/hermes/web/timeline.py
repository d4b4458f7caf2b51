"""A timeline of facts as bars, rendered here so that it needs no script."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup
from msgspec import Struct

from hermes.web.drawing import draw, shorten, show_day, show_moment

WIDTH = 1000
MIN_BAR = 12.0
DAY_SECONDS = 86_400.0


class HeldSpan(Struct, frozen=True):
    """A text and the time when it held; None for an open or unknown end."""

    text: str
    since: float | None
    until: float | None
    is_shown: bool = False


class Bar(Struct, frozen=True):
    """A rendered span."""

    x: float
    width: float
    text: str
    when: str
    is_shown: bool


def draw_timeline(spans: Sequence[HeldSpan], now: float) -> Markup:
    """Return spans as bars, the oldest above; "" if there is nothing to compare."""
    moments = [moment for one in spans for moment in (one.since, one.until) if moment is not None]
    if not moments or (len(spans) < 2 and spans[0].until is None):
        return Markup("")
    start, end = min(moments), max(*moments, now)
    scale = WIDTH / max(end - start, 1.0)
    show = show_day if end - start > 2 * DAY_SECONDS else show_moment
    bars = []
    for one in spans:
        x = min(0.0 if one.since is None else (one.since - start) * scale, WIDTH - MIN_BAR)
        last = end if one.until is None else one.until
        width = max(MIN_BAR, (last - start) * scale - x)
        when = f"{show(one.since) or 'before'} – {show(one.until) or 'today'}"
        bars.append(Bar(x, width, shorten(one.text, 120), when, one.is_shown))
    return Markup(draw("timeline.html", bars=bars, width=WIDTH))
