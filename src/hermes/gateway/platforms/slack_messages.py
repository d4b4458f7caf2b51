"""Translates Slack's events into messages for the gateway.

Converts text: Markdown to Slack's mrkdwn, and people's mrkdwn to plain text.

Classifies Slack's errors: retry later, never, or never in that place. No error contains a token.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from hermes.gateway.platform import Chat, Inbound, MessageGone, SendLater, SendNever
from hermes.gateway.platforms.text import Span, one_name, render, well_formed
from hermes.types import Json

if TYPE_CHECKING:
    from slack_sdk.errors import SlackApiError

MARKS = {"bold": "*", "italic": "_", "strikethrough": "~", "code": "`"}
ESCAPES = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
REFERENCE = re.compile(r"<(?P<kind>[@#!]?)(?P<target>[^<>|\n]{1,3000})(?:\|(?P<label>[^<>\n]{0,3000}))?>")


def to_mrkdwn(markdown: str) -> str:
    """Return Markdown as mrkdwn. Never fails, and never produces a mention."""
    made = render(markdown)
    opening: dict[int, list[Span]] = {}
    closing: dict[int, list[Span]] = {}
    for span in made.spans:
        start, end = _trim(made.text, span)
        opening.setdefault(start, []).append(span)
        closing.setdefault(end, []).append(span)
    quoted = [(span.start, span.end) for span in made.spans if span.kind == "blockquote"]
    parts: list[str] = []
    for place, character in enumerate(made.text + "\0"):
        parts += [_close(span) for span in closing.get(place, ())]
        if any(start <= place < end for start, end in quoted) and (place == 0 or made.text[place - 1] == "\n"):
            parts.append("> ")
        parts += [_open(span) for span in sorted(opening.get(place, ()), key=lambda span: -span.end)]
        parts.append(ESCAPES.get(character, character))
    return "".join(parts[:-1])


def _trim(text: str, span: Span) -> tuple[int, int]:
    """Return the ends of a span without blanks: Slack formats no text with blanks next to the marks."""
    start, end = span.start, span.end
    while start < end and text[start].isspace():
        start += 1
    while end > start and text[end - 1].isspace():
        end -= 1
    return start, end


def _open(span: Span) -> str:
    match span.kind:
        case "pre":
            return "```\n"
        case "text_link":
            return f"<{_escape_link(span.detail)}|"
        case kind:
            return MARKS.get(kind, "")


def _close(span: Span) -> str:
    match span.kind:
        case "pre":
            return "\n```"
        case "text_link":
            return ">"
        case kind:
            return MARKS.get(kind, "")


def _escape_link(address: str) -> str:
    return address.replace("&", "&amp;").replace("|", "%7C").replace(">", "%3E").replace("<", "%3C")


def to_plain(text: str, names: Mapping[str, str]) -> str:
    """Return mrkdwn as plain text; `names` has the names of mentioned people, by id."""

    def read(found: re.Match[str]) -> str:
        target, label = found["target"], found["label"]
        match found["kind"]:
            case "@":
                return f"@{names.get(target) or label or target}"
            case "#":
                return f"#{label or target}"
            case "!":
                return label or f"@{target.partition('^')[0]}"
            case _:
                bare = target.removeprefix("mailto:")
                return f"{label} ({bare})" if label and label not in bare else bare

    plain = REFERENCE.sub(read, text)
    return well_formed(plain.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&"))


def mentioned(text: str) -> set[str]:
    """Return the ids of the people that a text mentions."""
    return {found["target"] for found in REFERENCE.finditer(text) if found["kind"] == "@"}


NAME = "slack"
MAX_MENTIONS_NAMED = 10
MAX_FILES_NAMED = 5
HEARD_SUBTYPES = {None, "bot_message", "file_share", "me_message", "thread_broadcast"}
DIRECT_CHAT = "im"
KEY_ENTRY = "hermes_message"
"""The type of our metadata entry on messages."""


class EventReader(Struct, frozen=True):
    """Translates events for one bot. With `mentions_only`, only messages to the bot are accepted in channels.

    `name_of` returns the name of a person by id.
    """

    bot_user_id: str
    mentions_only: bool
    name_of: Callable[[str], Awaitable[str]]
    agents: frozenset[str] = frozenset()
    """Ids of other apps, or of their users, whose messages in channels are accepted."""

    async def read(self, event: Json) -> Inbound | None:
        """Return the message for the gateway; None for messages of bots, of Slack itself, or to somebody else."""
        said, edited = _said_in(event)
        author = None if said is None else self._author_of(said)
        if said is None or author is None:
            return None
        direct = event.get("channel_type") == DIRECT_CHAT or str(event["channel"]).startswith("D")
        raw = str(said.get("text") or "")
        if not direct and self.mentions_only and not self._is_addressed(said, raw):
            return None
        text = await self._readable(raw)
        if edited:
            text = f"(edited) {text}" if text else ""
        elif re.fullmatch(r"/?start(\s.*)?", text, re.DOTALL) and text.startswith("/"):
            text = "/help"
        files = "" if edited else _describe_files(said.get("files") or [])
        if not text and not files:
            return None
        user, is_agent = author, bool(said.get("bot_id"))
        if is_agent and (direct or edited):  # an edit is a streamed reply
            return None
        return Inbound(
            chat=chat_of(event, said, direct=direct),
            message_id=message_id_of(event["channel"], said, edited=edited),
            text=f"{files}\n\n{text}" if files and text else files or text,
            author_id=user,
            author_name=one_name(str(said.get("username") or "") or await self.name_of(user)) or user,
            author_is_agent=is_agent,
        )

    def _author_of(self, said: Json) -> str | None:
        """Return the id of an accepted author: a person, or an app among the agents."""
        user, app = said.get("user"), said.get("bot_id")
        if user in (self.bot_user_id, "USLACKBOT"):
            return None
        if app:
            return next((str(one) for one in (user, app) if one in self.agents), None)
        return None if user is None else str(user)

    def _is_addressed(self, said: Json, raw: str) -> bool:
        return said.get("parent_user_id") == self.bot_user_id or self.bot_user_id in mentioned(raw)

    async def _readable(self, raw: str) -> str:
        """Return the text without the bot's mention, and with names in place of ids."""
        own = rf"<@{re.escape(self.bot_user_id)}(?:\|[^<>]*)?>"
        bare = re.sub(rf"(?:,?[ \t]+)?{own}[,:]?", "", raw).strip() or raw
        others = sorted(mentioned(bare))[:MAX_MENTIONS_NAMED]
        return to_plain(bare, {one: one_name(await self.name_of(one)) for one in others}).strip()


def _said_in(event: Json) -> tuple[Json | None, bool]:
    """Return the message of an event, and whether a person edited it. A loaded link preview does not count as an
    edit."""
    if event.get("type") not in ("message", "app_mention"):
        return None, False
    if event.get("subtype") == "message_changed":
        now, before = event.get("message") or {}, event.get("previous_message") or {}
        changed = now.get("edited") and now.get("text") != before.get("text")
        return (now if changed and now.get("subtype") in HEARD_SUBTYPES else None), True
    return (event if event.get("subtype") in HEARD_SUBTYPES else None), False


def message_id_of(channel: str, said: Json, *, edited: bool) -> str:
    """Return the id of a message. Time stamps are unique only within a channel."""
    version = f".{(said.get('edited') or {}).get('ts', '')}" if edited else ""
    return f"{channel}.{said['ts']}{version}"


def chat_of(event: Json, said: Json, *, direct: bool) -> Chat:
    """Return the chat of a message. A message with replies is not a thread itself."""
    thread = said.get("thread_ts")
    in_thread = thread is not None and thread != said["ts"]
    return Chat(NAME, "dm" if direct else "group", str(event["channel"]), str(thread) if in_thread else None)


def _describe_files(files: list[Json]) -> str:
    """Return a description of files, because only text can be read here."""
    names = [f"“{well_formed(str(one.get('name') or one.get('id')))}”" for one in files[:MAX_FILES_NAMED]]
    if not names:
        return ""
    more = f" and {len(files) - len(names)} more" if len(files) > len(names) else ""
    return f"[{'a file' if len(files) == 1 else 'files'} {', '.join(names)}{more}, which cannot be opened here]"


def key_entry(key: str) -> Json:
    """Return the metadata entry for a message that is sent with a key."""
    return {"event_type": KEY_ENTRY, "event_payload": {"key": key}}


def key_of(message: Json) -> str | None:
    """Return the key of a sent message, if it is visible."""
    entry = message.get("metadata") or {}
    return (entry.get("event_payload") or {}).get("key") if entry.get("event_type") == KEY_ENTRY else None


REFUSED_TOKEN_WAIT_SECONDS = 60.0
REFUSED_TOKEN: Final = frozenset(
    ("account_inactive", "invalid_auth", "missing_scope", "not_allowed_token_type", "not_authed", "token_expired",
     "token_revoked")
)  # fmt: skip
UNREADABLE: Final = frozenset(
    ("access_denied", "channel_not_found", "ekm_access_denied", "enterprise_is_restricted", "is_archived",
     "is_inactive", "method_not_supported_for_channel_type", "missing_scope", "no_permission", "not_in_channel",
     "team_access_not_granted", "thread_not_found")
)  # fmt: skip
"""Errors of a single channel that may not be read; other channels are read all the same."""
GONE: Final = frozenset(("cant_update_message", "edit_window_closed", "message_not_found"))
NEVER: Final = frozenset(
    ("cannot_dm_bot", "channel_not_found", "invalid_blocks", "is_archived", "messages_tab_disabled", "msg_too_long",
     "no_permission", "no_text", "not_in_channel", "restricted_action", "thread_not_found", "user_not_found")
)  # fmt: skip


def translate(error: SlackApiError, reason: str) -> SendLater | SendNever:
    """Return the gateway's exception for a refused call. Unknown errors are retried."""
    code = code_of(error)
    if (wait_seconds := retry_after(error)) is not None:
        return SendLater(reason, wait_seconds)
    if code in REFUSED_TOKEN:  # the owner may mend it: no fault of the message
        return SendLater(reason, REFUSED_TOKEN_WAIT_SECONDS)
    if code in GONE:
        return MessageGone(reason)
    return SendNever(reason) if code in NEVER else SendLater(reason)


def describe(error: Exception, tokens: Sequence[str]) -> str:
    """Return an error as one line without the tokens."""
    code = code_of(error)
    if code in REFUSED_TOKEN:
        scope = _body_of(error).get("needed")
        lacks = f", which lacks {scope}" if scope else "'s scopes"
        return f"Slack refuses a token ({code}): check `slack.bot_token`, `slack.app_token` and the app{lacks}"
    line = f"Slack answers {code}" if code else f"{type(error).__name__}: {error}".replace("\n", " ")
    for token in tokens:
        line = line.replace(token, "(hidden)")
    return line


def code_of(error: Exception) -> str:
    """Return Slack's error code; "" for another kind of error."""
    status = _status_of(error)
    return "" if status is None else str(_body_of(error).get("error") or f"HTTP {status}")


def retry_after(error: SlackApiError) -> float | None:
    """Return the seconds that Slack asks to wait, or None."""
    if _status_of(error) != 429:
        return None
    return float(error.response.headers.get("Retry-After", 1))


def _body_of(error: Exception) -> Json:
    """Return the body of Slack's response; {} for other errors, and for responses of a proxy."""
    data = getattr(getattr(error, "response", None), "data", None)
    return data if isinstance(data, dict) else {}


def _status_of(error: Exception) -> int | None:
    """Return the HTTP status. The library puts it elsewhere for a response that is not JSON."""
    response = getattr(error, "response", None)
    return getattr(response, "status_code", None) or getattr(response, "status", None)
