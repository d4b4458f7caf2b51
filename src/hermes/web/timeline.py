"""When facts held, as a line that is drawn here: no script is needed to see it."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup
from msgspec import Struct

from hermes.web.drawing import draw, shorten, show_day

WIDTH, ROW, LEFT, RIGHT = 640, 44, 8, 8
MIN_BAR = 6.0


class HeldSpan(Struct, frozen=True):
    """A text and when it held; None where that is open or not known."""

    text: str
    since: float | None
    until: float | None
    is_shown: bool = False


class Bar(Struct, frozen=True):
    """A span as it is drawn."""

    x: float
    y: int
    width: float
    text: str
    when: str
    is_shown: bool
    is_open: bool


def draw_timeline(spans: Sequence[HeldSpan], now: float) -> Markup:
    """Return the SVG of some spans, the oldest above; "" for fewer than two moments to show."""
    moments = [moment for one in spans for moment in (one.since, one.until) if moment is not None]
    if len(spans) < 2 and (not spans or spans[0].until is None):
        return Markup("")
    start, end = min(moments), max(*moments, now)
    scale = (WIDTH - LEFT - RIGHT) / max(end - start, 1.0)

    def place(moment: float) -> float:
        return LEFT + (moment - start) * scale

    bars = []
    for number, one in enumerate(spans):
        x = place(one.since) if one.since is not None else float(LEFT)
        width = max(MIN_BAR, place(end if one.until is None else one.until) - x)
        when = f"{show_day(one.since) or 'before'} – {show_day(one.until) or 'today'}"
        bar = Bar(x, number * ROW, width, shorten(one.text, 90), when, one.is_shown, one.until is None)
        bars.append(bar)
    return Markup(draw("timeline.svg", bars=bars, width=WIDTH, height=len(bars) * ROW))
