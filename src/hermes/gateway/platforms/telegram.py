"""Telegram: messages come by polling or by webhook, and Telegram hears that they arrived only after the commit."""

from __future__ import annotations

import logging
import os
from collections.abc import Awaitable, Callable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from msgspec import Struct

from hermes.clock import Clock
from hermes.errors import HermesError, SettingsError
from hermes.gateway.outbound import count_units
from hermes.gateway.platform import Chat, Inbound, Intake, MessageGone, Moved
from hermes.gateway.platforms.telegram_errors import describe, is_about_markup, is_unchanged, seconds_of, translate
from hermes.gateway.platforms.telegram_updates import NAME, UpdateReader, group_of
from hermes.gateway.platforms.text_spans import render
from hermes.gateway.platforms.webhook import Webhook
from hermes.slash.table import OFFERED
from hermes.types import Json

if TYPE_CHECKING:
    from telegram import Bot, MessageEntity
    from telegram.request import BaseRequest

log = logging.getLogger("hermes.gateway.telegram")

LONGEST = 4096
POLL = 30
DRAIN = 5
"""Seconds that posts of Telegram get to be answered at the end."""
WANTED = ["message", "edited_message"]
SECRET_HEADER = "X-Telegram-Bot-Api-Secret-Token"  # noqa: S105 - the header's name
FIRST_WAIT, LONGEST_WAIT = 1.0, 30.0
ELSEWHERE = "/"
"""Between chat and number in the id of a message that went to another chat than it was sent to."""

T = TypeVar("T")
Write: TypeAlias = "Callable[[str, Sequence[MessageEntity]], Awaitable[str]]"


class TelegramTerms(Struct, frozen=True):
    """How the bot is reached. An empty `webhook_url` means polling."""

    token: str
    base_url: str
    mentions_only: bool = True
    webhook_url: str = ""
    webhook_secret: str = ""
    webhook_port: int = 0


class Telegram:
    """One bot."""

    name = NAME
    longest_message = LONGEST
    can_edit = True

    def __init__(self, terms: TelegramTerms, clock: Clock) -> None:
        if terms.webhook_url and not terms.webhook_secret:
            raise SettingsError(
                "telegram.webhook_url is set, but telegram.webhook_secret is not",
                hint="Choose a long random secret; without one anybody could speak in Telegram's name",
            )
        self._terms = terms
        self._clock = clock
        self._requests = _make_requests()
        self._bot = _make_bot(terms, self._requests)
        self._state = ""
        self._intake: Intake | None = None

    async def run(self, intake: Intake) -> None:
        """Receive until cancelled. Trouble is reported once when it begins and once when it is over."""
        self._intake = intake
        reader = await self._persist(intake, self._begin)
        if self._terms.webhook_url:
            await self._run_webhook(intake, reader)
        else:
            await self._run_polling(intake, reader)

    async def send(self, chat: Chat, text: str, key: str = "") -> str:  # noqa: ARG002 - Telegram knows no keys
        """Send one message. A formatting that Telegram does not take never loses the text; a group that became a
        supergroup is followed, and then the id tells where the message is."""
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
        """Return False: Telegram shows a bot nothing of what was sent."""
        return False

    async def edit(self, chat: Chat, message_id: str, text: str) -> None:
        """Replace the text of a message we sent. Nobody can edit what was said in a group before it moved."""
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
        """Show that a reply is coming; Telegram takes the sign away after five seconds."""
        from telegram.error import TelegramError

        try:
            await self._bot.send_chat_action(int(chat.chat_id), "typing", message_thread_id=_thread(chat))
        except TelegramError as error:
            raise translate(error, self._terms.token) from None

    async def close(self) -> None:
        for request in self._requests:  # the bot itself would not, as long as Telegram has not told it its name
            await request.shutdown()

    async def _write(self, text: str, write: Write) -> str:
        """Write formatted, or plain when that is refused."""
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
            raise translate(error, self._terms.token) from None

    async def _note_move(self, moved: Moved) -> None:
        """Must not raise: what is being sent comes first, and the next one to the old group tells it again."""
        try:
            if self._intake is not None:
                await self._intake.move(moved)
        except HermesError as error:
            log.error("the move of chat %s could not be stored: %s", moved.old.chat_id, error.line())

    async def _begin(self) -> UpdateReader:
        """Learn who we are, and tell Telegram how it shall reach us."""
        await self._bot.initialize()
        if self._terms.webhook_url:
            await self._bot.set_webhook(
                self._terms.webhook_url,
                secret_token=self._terms.webhook_secret,
                allowed_updates=WANTED,
                max_connections=1,  # more would let messages overtake each other
            )
        else:
            await self._bot.delete_webhook()
        await self._bot.set_my_commands([(name, command.help) for name, command in OFFERED["chat"].items()])
        return UpdateReader(self._bot.id, self._bot.username, self._terms.mentions_only)

    async def _run_webhook(self, intake: Intake, reader: UpdateReader) -> None:
        async def take(update: Json) -> None:
            await self._take(intake, reader, update)

        http = import_module("hermes.http_server")  # loaded by name: only who is posted to needs a web server
        webhook = Webhook(SECRET_HEADER, self._terms.webhook_secret, take)
        with http.listen("127.0.0.1", self._terms.webhook_port, "set `telegram.webhook_port`") as listener:
            host, port = listener.getsockname()
            await self._report(intake, "ok", f"@{reader.username}, webhook on {host}:{port}")
            await http.GuestServer(webhook, drain=DRAIN).serve_on(listener)

    async def _run_polling(self, intake: Intake, reader: UpdateReader) -> None:
        """Ask for updates for ever. The next call confirms those before `offset`, so it moves after the commit."""
        offset: int | None = None

        async def poll() -> int | None:
            # Until Telegram has answered, it is asked without waiting: so it is known at once that it is there.
            updates = await self._get_updates(offset, wait=POLL if self._state == "ok" else 0)
            await self._report(intake, "ok", f"@{reader.username}, polling")
            following = offset
            for update in updates:
                await self._take(intake, reader, update)
                following = max(following or 0, _number(update) + 1)
            # Once all are confirmed the offset has done its work: Telegram may begin to count anew after a quiet week.
            return following if updates else None

        while True:
            offset = await self._persist(intake, poll)

    async def _get_updates(self, offset: int | None, wait: int) -> list[Json]:
        """The next updates as they came: the library's own call would fail as a whole for one it cannot read."""
        asked: dict[str, Json] = {"timeout": wait, "allowed_updates": WANTED}
        if offset is not None:
            asked["offset"] = offset
        # Telegram does not mind the case of a method; the library would send us to its own call.
        found: Json = await self._bot.do_api_request("getupdates", asked, read_timeout=wait + 10)
        return [update for update in found if isinstance(update, dict) and "update_id" in update]

    async def _take(self, intake: Intake, reader: UpdateReader, raw: Json) -> None:
        """Hand in one update. One that cannot be read is said and left out: it would block all behind it."""
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
        """Try until it works: Telegram, the network or the store come back."""
        from telegram.error import RetryAfter, TelegramError

        wait = FIRST_WAIT
        while True:
            try:
                return await work()
            except TelegramError as error:
                reason, asked = describe(error, self._terms.token), 0.0
                if isinstance(error, RetryAfter):
                    asked = seconds_of(error)
            except HermesError as error:
                reason, asked = error.line(), 0.0
            await self._report(intake, "failing", reason)
            await self._clock.sleep(max(wait, asked))
            wait = min(wait * 2, LONGEST_WAIT)

    async def _report(self, intake: Intake, state: str, detail: str) -> None:
        """Say how it is when that changes; a store that cannot be written hears it next time."""
        if state == self._state:
            return
        try:
            await intake.report(NAME, state, detail)
        except HermesError as error:
            log.error("%s cannot be reported: %s", state, error.line())
            return
        self._state = state


def _make_requests() -> tuple[BaseRequest, BaseRequest]:
    """Connections for updates and for all else: waiting for updates holds up nothing."""
    # Without it the library warns of its own change from numbers to timedeltas whenever Telegram asks for patience.
    os.environ.setdefault("PTB_TIMEDELTA", "true")
    from telegram.request import HTTPXRequest

    for name in ("httpx", "httpcore", "telegram"):  # their chatter holds the URL, and the URL holds the token
        logging.getLogger(name).setLevel(logging.WARNING)

    def make() -> HTTPXRequest:
        return HTTPXRequest(connect_timeout=10.0, read_timeout=10.0, write_timeout=10.0, pool_timeout=5.0)

    return make(), make()


def _make_bot(terms: TelegramTerms, requests: tuple[BaseRequest, BaseRequest]) -> Bot:
    from telegram import Bot

    base_url = f"{terms.base_url.rstrip('/')}/bot"
    return Bot(terms.token, base_url=base_url, get_updates_request=requests[0], request=requests[1])


def _format(text: str) -> tuple[str, list[MessageEntity]]:
    """The text as Telegram shall show it; as it is when that would be blank or too long."""
    from telegram import MessageEntity

    made = render(text)
    if not made.text.strip() or count_units(made.text) > LONGEST:
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
    """An update's number; 0 when it has none that is one."""
    found = update.get("update_id") if isinstance(update, dict) else None
    return found if isinstance(found, int) else 0
