"""Renders pages from templates, with the headers of every response.

Markdown of models and memories as safe HTML, without raw HTML, images or links.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

import jinja2
from markdown_it import MarkdownIt
from markupsafe import Markup, escape
from starlette.requests import Request
from starlette.responses import HTMLResponse

from hermes.redaction import hide_passwords
from hermes.store.injections import lines_of

MAX_MARKDOWN_CHARS = 200_000
"""A longer text is shown as it is: parsing would block other requests."""
DISABLED_RULES = ("autolink", "entity", "html_block", "html_inline", "image", "link", "reference")


@cache
def _parser() -> MarkdownIt:
    made = MarkdownIt("commonmark", {"html": False, "breaks": True}).enable(["table", "strikethrough"])
    return made.disable(list(DISABLED_RULES))


def to_html(text: str) -> Markup:
    """Return the HTML of a Markdown text. Links stay text, so that a person sees their address."""
    if len(text) > MAX_MARKDOWN_CHARS:
        return Markup('<pre class="plain">{}</pre>').format(text)
    return Markup(_parser().render(text))  # the parser escapes: `html` is off


def to_plain(text: str) -> Markup:
    """Return the HTML of a text as it was typed: escaped, with its line breaks."""
    return escape(text)


HERE = Path(__file__).parent
HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",  # with `no-referrer` browsers send a form's origin as null
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
LAYERS: Mapping[str, str] = {
    "standing": "Always kept in mind",
    "user card": "Your card",
    "evidence": "Found for this message",
    "nearest": "Nearest to this message",
    "summary": "This session so far",
    "user representation": "What is known of you",
    "ai card": "The agent's card",
    "ai representation": "What the agent knows of itself",
    "dialectic": "Thought over beforehand",
}
IDS = re.compile(r",? ?(?:in )?(?:Honcho )?\b(?:session|message|conclusion) [\w-]{8,}|, \d+ of \d+ characters")
SCORE = re.compile(r"\bscore [\d.]+")
ALONE = ("error.html", "refused.html")
IN_PLACE: Mapping[str, str] = {"HX-Retarget": "#problem", "HX-Reselect": "#problem", "HX-Reswap": "outerHTML"}
"""Makes htmx show an error inside the open page, which keeps what was typed there."""
MINUTE, HOUR, DAY, MONTH = 60, 3600, 86_400, 30 * 86_400
MAX_TIME_SECONDS = 32_503_680_000.0  # the year 3000: a clock or an import may bring any number


@cache
def templates() -> jinja2.Environment:
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.filters |= {
        "ago": describe_age,
        "clock": show_clock,
        "day": show_day,
        "iso": show_iso,
        "layer": name_layer,
        "plain": without_ids,
        "markdown": to_html,
        "moment": show_moment,
        "safe_words": hide_passwords,
        "short": shorten,
    }
    made.globals["lines_of"] = lines_of
    return made


def draw(template: str, **values: Any) -> str:
    return templates().get_template(template).render(**values)


def page(request: Request, template: str, status: int = 200, **values: Any) -> HTMLResponse:
    """Render a whole page. htmx picks the part that an element asks for."""
    values = {"path": request.url.path, "csrf": request.app.state.door.csrf, "problem": "", **values}
    headers = IN_PLACE if template in ALONE and "hx-request" in request.headers else None
    return HTMLResponse(draw(template, **values), status, headers)


def describe_age(at: float | None, now: float | None = None) -> str:
    """Return the age of a time in words; "" for None."""
    if at is None:
        return ""
    seconds = (time.time() if now is None else now) - at
    for unit, name in ((MONTH, "month"), (DAY, "day"), (HOUR, "hour"), (MINUTE, "minute")):
        if (count := int(seconds // unit)) >= 1:
            return show_day(at) if unit == MONTH and count > 10 else f"{count} {name}{'' if count == 1 else 's'} ago"
    return "just now"


def name_layer(layer: str) -> str:
    """Return the title of a part of a recall; for a layer of another provider its name."""
    return LAYERS.get(layer, layer[:1].upper() + layer[1:])


def without_ids(text: str) -> str:
    """Return a source without ids; the details show them."""
    return SCORE.sub("fits what you said", IDS.sub("", text)).strip(", ")


def _local(at: float) -> datetime:
    return datetime.fromtimestamp(min(max(at, 0.0), MAX_TIME_SECONDS)).astimezone()


def show_day(at: float | None) -> str:
    return "" if at is None else f"{_local(at).day} {_local(at):%B %Y}"


def show_moment(at: float | None) -> str:
    return "" if at is None else f"{_local(at).day} {_local(at):%b %Y, %H:%M}"


def show_clock(at: float) -> str:
    return f"{_local(at):%H:%M:%S}"


def show_iso(at: float) -> str:
    return _local(at).isoformat(timespec="seconds")


def shorten(text: str, chars: int = 160) -> str:
    """Return the beginning of a text on one line."""
    flat = " ".join(text.split())
    return flat if len(flat) <= chars else f"{flat[: chars - 1]}…"
