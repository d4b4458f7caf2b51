"""Telegram: messages come by polling or by webhook, and are acknowledged after the commit."""

from __future__ import annotations

import hmac
import json
import logging
import os
from collections.abc import Awaitable, Callable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar
from urllib.parse import urlsplit

from msgspec import Struct

from hermes.clock import Clock
from hermes.errors import HermesError, SettingsError
from hermes.gateway.outbound import count_units
from hermes.gateway.platform import Chat, Inbound, Intake, MessageGone, Moved
from hermes.gateway.platforms.telegram_updates import (
    NAME,
    UpdateReader,
    describe,
    group_of,
    is_about_markup,
    is_unchanged,
    seconds_of,
    translate,
)
from hermes.gateway.platforms.text import render
from hermes.slash.table import OFFERED
from hermes.types import Json

if TYPE_CHECKING:
    from telegram import Bot, MessageEntity
    from telegram.request import BaseRequest

log = logging.getLogger("hermes.gateway.telegram")

MAX_MESSAGE_UNITS = 4096
UPDATES_POLL_SECONDS = 30
WEBHOOK_DRAIN_SECONDS = 5
"""Seconds that open webhook requests have to finish at the end."""
ALLOWED_UPDATES = ["message", "edited_message"]
SECRET_HEADER = "X-Telegram-Bot-Api-Secret-Token"  # noqa: S105 - the header's name
MIN_RETRY_SECONDS, MAX_RETRY_SECONDS = 1.0, 30.0
ELSEWHERE = "/"
"""Separates chat and number in the id of a message that was sent to another chat than requested."""

T = TypeVar("T")
Write: TypeAlias = "Callable[[str, Sequence[MessageEntity]], Awaitable[str]]"


class TelegramOptions(Struct, frozen=True):
    """Options of the bot. An empty `webhook_url` means polling."""

    token: str
    base_url: str
    mentions_only: bool = True
    webhook_url: str = ""
    webhook_secret: str = ""
    webhook_port: int = 0

    @property
    def host(self) -> str:
        """Return the host of the API, for error messages."""
        return urlsplit(self.base_url).netloc


class Telegram:
    """The Telegram adapter of one bot."""

    name = NAME
    longest_message = MAX_MESSAGE_UNITS
    can_edit = True

    def __init__(self, options: TelegramOptions, clock: Clock) -> None:
        if options.webhook_url and not options.webhook_secret:
            raise SettingsError(
                "telegram.webhook_url is set, but telegram.webhook_secret is not",
                hint="Choose a long random secret; without one anybody could speak in Telegram's name",
            )
        self._options = options
        self._clock = clock
        self._requests = _make_requests()
        self._bot = _make_bot(options, self._requests)
        self._state = ""
        self._intake: Intake | None = None

    async def run(self, intake: Intake) -> None:
        """Receive until cancelled. A failure is reported when it begins and when it is over."""
        self._intake = intake
        reader = await self._persist(intake, self._begin)
        if self._options.webhook_url:
            await self._run_webhook(intake, reader)
        else:
            await self._run_polling(intake, reader)

    async def send(self, chat: Chat, text: str, key: str = "") -> str:  # noqa: ARG002 - Telegram knows no keys
        """Send one message. Refused formatting is dropped, never the text. Follows a group that became a supergroup;
        the returned id then names the new chat."""
        from telegram.error import ChatMigrated

        async def send(text: str, entities: Sequence[MessageEntity]) -> str:
            try:
                return str(await put(int(chat.chat_id), text, entities))
            except ChatMigrated as moved:
                await self._note_move(Moved(group_of(int(chat.chat_id)), group_of(moved.new_chat_id)))
                return f"{moved.new_chat_id}{ELSEWHERE}{await put(moved.new_chat_id, text, entities)}"

        async def put(chat_id: int, text: str, entities: Sequence[MessageEntity]) -> int:
            sent = await self._bot.send_message(chat_id, text, entities=entities, message_thread_id=_thread(chat))
            return sent.message_id

        return await self._write(text, send)

    async def was_sent(self, chat: Chat, key: str, since: float) -> bool:  # noqa: ARG002
        """Return False: Telegram does not show a bot the messages that it sent."""
        return False

    async def edit(self, chat: Chat, message_id: str, text: str) -> None:
        """Replace the text of a sent message. Messages of a group from before it became a supergroup cannot be
        edited."""
        from telegram.error import ChatMigrated

        elsewhere, _, number = message_id.rpartition(ELSEWHERE)

        async def edit(text: str, entities: Sequence[MessageEntity]) -> str:
            try:
                await self._bot.edit_message_text(text, int(elsewhere or chat.chat_id), int(number), entities=entities)
            except ChatMigrated as moved:  # the supergroup has a message of that number too, but another one
                await self._note_move(Moved(group_of(int(chat.chat_id)), group_of(moved.new_chat_id)))
                raise MessageGone("the group became a supergroup") from None
            return message_id

        await self._write(text, edit)

    async def show_typing(self, chat: Chat) -> None:
        """Show that a reply is coming; Telegram hides the sign after five seconds."""
        from telegram.error import TelegramError

        try:
            await self._bot.send_chat_action(int(chat.chat_id), "typing", message_thread_id=_thread(chat))
        except TelegramError as error:
            raise translate(error, self._options.token, self._options.host) from None

    async def close(self) -> None:
        for request in self._requests:  # an uninitialised bot would not
            await request.shutdown()

    async def _write(self, text: str, write: Write) -> str:
        """Write formatted text, or plain text if the formatting is refused."""
        from telegram.error import BadRequest, TelegramError

        shown, entities = _format(text)
        try:
            try:
                return await write(shown, entities)
            except BadRequest as error:
                if is_unchanged(error):
                    return ""
                if not is_about_markup(error):
                    raise
                return await write(text, [])
        except TelegramError as error:
            raise translate(error, self._options.token, self._options.host) from None

    async def _note_move(self, moved: Moved) -> None:
        """Record a move. Must not raise: the message being sent comes first, and the next one to the old group reports
        the move again."""
        try:
            if self._intake is not None:
                await self._intake.move(moved)
        except HermesError as error:
            log.error("the move of chat %s could not be stored: %s", moved.old.chat_id, error.line())

    async def _begin(self) -> UpdateReader:
        """Ask Telegram for the bot's name, and register the webhook or polling."""
        await self._bot.initialize()
        if self._options.webhook_url:
            await self._bot.set_webhook(
                self._options.webhook_url,
                secret_token=self._options.webhook_secret,
                allowed_updates=ALLOWED_UPDATES,
                max_connections=1,  # more would let messages overtake each other
            )
        else:
            await self._bot.delete_webhook()
        await self._bot.set_my_commands([(name, command.help) for name, command in OFFERED["chat"].items()])
        return UpdateReader(self._bot.id, self._bot.username, self._options.mentions_only)

    async def _run_webhook(self, intake: Intake, reader: UpdateReader) -> None:
        async def take(update: Json) -> None:
            await self._take(intake, reader, update)

        http = import_module("hermes.http_server")  # loaded by name: only who is posted to needs a web server
        webhook = Webhook(SECRET_HEADER, self._options.webhook_secret, take)
        with http.listen("127.0.0.1", self._options.webhook_port, "set `telegram.webhook_port`") as listener:
            host, port = listener.getsockname()
            await self._report(intake, "ok", f"@{reader.username}, webhook on {host}:{port}")
            await http.GuestServer(webhook, drain=WEBHOOK_DRAIN_SECONDS).serve_on(listener)

    async def _run_polling(self, intake: Intake, reader: UpdateReader) -> None:
        """Poll for updates until cancelled. The next call confirms those before `offset`, so it moves after the
        commit."""
        offset: int | None = None

        async def poll() -> int | None:
            # Until Telegram has answered once, poll without waiting, so that a recovery is noticed at once.
            updates = await self._get_updates(offset, wait=UPDATES_POLL_SECONDS if self._state == "ok" else 0)
            await self._report(intake, "ok", f"@{reader.username}, polling")
            following = offset
            for update in updates:
                await self._take(intake, reader, update)
                following = max(following or 0, _number(update) + 1)
            # Once all are confirmed, drop the offset: Telegram may restart its count after a quiet week.
            return following if updates else None

        while True:
            offset = await self._persist(intake, poll)

    async def _get_updates(self, offset: int | None, wait: int) -> list[Json]:
        """Return the next updates as raw JSON: the library's own call would fail for all if it cannot read one."""
        asked: dict[str, Json] = {"timeout": wait, "allowed_updates": ALLOWED_UPDATES}
        if offset is not None:
            asked["offset"] = offset
        # Telegram ignores the case of a method; the library maps the usual spelling to its own call.
        found: Json = await self._bot.do_api_request("getupdates", asked, read_timeout=wait + 10)
        return [update for update in found if isinstance(update, dict) and "update_id" in update]

    async def _take(self, intake: Intake, reader: UpdateReader, raw: Json) -> None:
        """Hand in one update. An unreadable update is logged and skipped: it would block all later ones."""
        from telegram import Update

        try:
            update = Update.de_json(raw, self._bot)
            found = reader.read(update)
        except Exception as error:  # noqa: BLE001 - whatever Telegram sends, the next update must be reached
            log.warning("an update (%s) cannot be read: %s", _number(raw), type(error).__name__)
            return
        match found:
            case Inbound():
                await intake.receive(found)
            case Moved():
                await intake.move(found)

    async def _persist(self, intake: Intake, work: Callable[[], Awaitable[T]]) -> T:
        """Retry until `work` succeeds: Telegram, the network and the store come back."""
        from telegram.error import RetryAfter, TelegramError

        wait = MIN_RETRY_SECONDS
        while True:
            try:
                return await work()
            except TelegramError as error:
                reason, asked = describe(error, self._options.token, self._options.host), 0.0
                if isinstance(error, RetryAfter):
                    asked = seconds_of(error)
            except HermesError as error:
                reason, asked = error.line(), 0.0
            await self._report(intake, "failing", reason)
            await self._clock.sleep(max(wait, asked))
            wait = min(wait * 2, MAX_RETRY_SECONDS)

    async def _report(self, intake: Intake, state: str, detail: str) -> None:
        """Report a changed state. If the store cannot be written, it is reported at the next change."""
        if state == self._state:
            return
        try:
            await intake.report(NAME, state, detail)
        except HermesError as error:
            log.error("%s cannot be reported: %s", state, error.line())
            return
        self._state = state


def _make_requests() -> tuple[BaseRequest, BaseRequest]:
    """Return separate connections for polling and for other calls, so that polling blocks none."""
    # Without it the library warns of its change from numbers to timedeltas at each rate limit.
    os.environ.setdefault("PTB_TIMEDELTA", "true")
    from telegram.request import HTTPXRequest

    for name in ("httpx", "httpcore", "telegram"):  # they log URLs, which contain the token
        logging.getLogger(name).setLevel(logging.WARNING)

    def make() -> HTTPXRequest:
        return HTTPXRequest(connect_timeout=10.0, read_timeout=10.0, write_timeout=10.0, pool_timeout=5.0)

    return make(), make()


def _make_bot(options: TelegramOptions, requests: tuple[BaseRequest, BaseRequest]) -> Bot:
    from telegram import Bot

    base_url = f"{options.base_url.rstrip('/')}/bot"
    return Bot(options.token, base_url=base_url, get_updates_request=requests[0], request=requests[1])


def _format(text: str) -> tuple[str, list[MessageEntity]]:
    """Return the text and its formatting, or the plain text if the result would be blank or too long."""
    from telegram import MessageEntity

    made = render(text)
    if not made.text.strip() or count_units(made.text) > MAX_MESSAGE_UNITS:
        return text, []
    spans = [
        MessageEntity(
            span.kind,
            span.start,
            span.end - span.start,
            url=span.detail if span.kind == "text_link" else None,
            language=span.detail or None if span.kind == "pre" else None,
        )
        for span in sorted(made.spans, key=lambda span: (span.start, -span.end))
    ]
    return made.text, list(MessageEntity.adjust_message_entities_to_utf_16(made.text, spans))


def _thread(chat: Chat) -> int | None:
    return int(chat.thread_id) if chat.thread_id is not None else None


def _number(update: Json) -> int:
    """Return an update's number; 0 if it has no valid one."""
    found = update.get("update_id") if isinstance(update, dict) else None
    return found if isinstance(found, int) else 0


MAX_POST_BYTES = 1024 * 1024
AsgiScope: TypeAlias = Any
Receive: TypeAlias = Callable[[], Awaitable[Any]]
Send: TypeAlias = Callable[[Any], Awaitable[None]]


class Webhook(Struct, frozen=True):
    """A webhook. `take` commits the posted update; if it raises, the response asks the platform to post it again."""

    secret_header: str
    secret: str
    take: Callable[[Json], Awaitable[None]]

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        status = await self._answer(scope, receive)
        await send({"type": "http.response.start", "status": status, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})

    async def _answer(self, scope: AsgiScope, receive: Receive) -> int:
        if scope["method"] != "POST":
            return 405
        wanted = self.secret_header.lower().encode()
        given = next((value for name, value in scope["headers"] if name == wanted), b"")
        if not hmac.compare_digest(given, self.secret.encode()):
            log.warning("refused a webhook request without the secret")
            return 401
        body = await _read(receive)
        if body is None:
            return 413
        try:
            posted = json.loads(body)
        except (ValueError, RecursionError):
            return 400
        try:
            await self.take(posted)
        except HermesError as error:
            log.error("could not store a webhook request: %s", error.line())
            return 503
        except Exception:
            log.exception("could not handle a webhook request")
            return 500
        return 200


async def _read(receive: Receive) -> bytes | None:
    """Return the whole body, or None if it is too large or incomplete."""
    body: bytes = b""
    while True:
        event = await receive()
        if event["type"] != "http.request":
            return None
        body += event.get("body", b"")
        if len(body) > MAX_POST_BYTES:
            return None
        if not event.get("more_body", False):
            return body
