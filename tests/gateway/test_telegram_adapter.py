"""The Telegram adapter against the Bot API on loopback: translation and errors."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest
import pytest_asyncio
from telegram.error import BadRequest, NetworkError, TelegramError, TimedOut

from hermes.clock import SystemClock
from hermes.errors import SettingsError
from hermes.gateway.platform import Chat, Inbound, MessageGone, Moved, SendLater, SendNever
from hermes.gateway.platforms.telegram import Telegram, TelegramOptions
from hermes.gateway.platforms.telegram_updates import describe
from hermes.types import Json
from tests.gateway.bot_api import BOT_ID, TOKEN, USERNAME, BotApi, Person, Place
from tests.gateway.intake import RecordingIntake


@pytest.fixture
def api() -> Iterator[BotApi]:
    with BotApi() as running:
        yield running


@pytest_asyncio.fixture
async def bot(api: BotApi) -> AsyncIterator[Telegram]:
    made = Telegram(TelegramOptions(TOKEN, api.base_url), SystemClock())
    yield made
    await made.close()


@asynccontextmanager
async def polling(bot: Telegram, intake: RecordingIntake) -> AsyncIterator[None]:
    task = asyncio.create_task(bot.run(intake))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait({task})


async def hear(api: BotApi, bot: Telegram, *, updates: int, intake: RecordingIntake | None = None) -> list[Inbound]:
    """Poll until `updates` updates are confirmed; return the accepted messages."""
    intake = intake or RecordingIntake()
    async with polling(bot, intake):
        await asyncio.to_thread(api.until, lambda: len(api.confirmed) >= updates)
    return intake.taken


def chat(place: Place) -> Chat:
    return Chat("telegram", "dm" if place.type == "private" else "group", str(place.id))


REPLIED: dict[str, Json] = {"message_id": 1, "date": 1, "from": {"id": BOT_ID, "is_bot": True, "first_name": "Hermes"}}


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ({"text": "plain"}, "plain"),
        ({"text": "half a \ud83d pair"}, "half a \ufffd pair"),
        ({"text": "/start deep-link"}, "/help"),
        ({"text": f"/new@{USERNAME.upper()} now"}, "/new now"),
        ({"text": "/new@another_bot"}, None),
        ({"text": "why?", "reply_to_message": {**REPLIED, "text": "so\nand so"}}, "> so\n> and so\n\nwhy?"),
        ({"text": "why?", "reply_to_message": {**REPLIED, "text": "x" * 900}}, f"> {'x' * 200} …\n\nwhy?"),
        (
            {"text": "why?", "reply_to_message": {**REPLIED, "text": "so"}, "quote": {"text": "s", "position": 0}},
            "> s\n\nwhy?",
        ),
        (
            {"text": "x\ny", "forward_origin": {"type": "hidden_user", "date": 1, "sender_user_name": "Eve"}},
            "(forwarded from Eve)\n\n> x\n> y",
        ),
        (
            {"text": "/undo 5", "forward_origin": {"type": "hidden_user", "date": 1, "sender_user_name": "Eve"}},
            "(forwarded from Eve)\n\n> /undo 5",
        ),
        ({"photo": [], "caption": "look"}, "look"),
        (
            {"voice": {"file_id": "a", "file_unique_id": "b", "duration": 1}},
            "[a voice message, which cannot be seen or heard here]",
        ),
        (
            {"document": {"file_id": "a", "file_unique_id": "b", "file_name": "tax.pdf"}, "caption": "read it"},
            "[a file “tax.pdf”, which cannot be opened here]\n\nread it",
        ),
        ({"location": {"longitude": 2.5, "latitude": 1.5}}, "[a location at 1.5, 2.5]"),
        ({"new_chat_members": [{"id": 1, "is_bot": False, "first_name": "x"}]}, None),
        ({}, None),
    ],
)
async def test_message_text_is_translated(api: BotApi, bot: Telegram, more: dict[str, Json], text: str | None) -> None:
    ann = api.person("Ann")
    number = api.push({"message": api.message(ann.dm, ann, **more)})
    assert number
    taken = await hear(api, bot, updates=1)
    assert [message.text for message in taken] == ([] if text is None else [text])


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ({"text": "hi all"}, None),
        ({"text": "mail me at x@hermes_test_bot.example"}, None),
        ({"text": f"@{USERNAME}_other hi"}, None),
        ({"text": f"@{USERNAME.title()}: hi"}, "hi"),
        ({"text": f"so, @{USERNAME}, hi"}, "so hi"),
        ({"text": f"@{USERNAME}"}, f"@{USERNAME}"),
        ({"caption": f"@{USERNAME} look", "photo": [{"file_id": "a", "file_unique_id": "b", "width": 1, "height": 1}]},
         "[a photo, which cannot be seen or heard here]\n\nlook"),
        ({"text": "yes", "reply_to_message": {**REPLIED, "text": "really?"}}, "> really?\n\nyes"),
        ({"text": "/status"}, "/status"),
        ({"text": "hi", "reply_to_message": {**REPLIED, "forum_topic_created": {"name": "t", "icon_color": 1}}}, None),
    ],
)  # fmt: skip
async def test_only_messages_to_the_bot_are_accepted_in_a_group(
    api: BotApi, bot: Telegram, more: dict[str, Json], text: str | None
) -> None:
    ann = api.person("Ann")
    api.push({"message": api.message(api.group("Garden"), ann, **_chatted(more))})
    taken = await hear(api, bot, updates=1)
    assert [message.text for message in taken] == ([] if text is None else [text])
    assert [message.author_name for message in taken] == ["Ann"] * len(taken)


def _chatted(more: dict[str, Json]) -> dict[str, Json]:
    """Return the fields of a message with a chat in its `reply_to_message`."""
    replied = more.get("reply_to_message")
    return {**more, "reply_to_message": {**replied, "chat": {"id": 1, "type": "group"}}} if replied else more


async def test_all_messages_of_a_group_are_accepted_without_mentions_only(api: BotApi) -> None:
    ann = api.person("Ann")
    api.say(api.group("Garden"), "hi all", ann)
    bot = Telegram(TelegramOptions(TOKEN, api.base_url, mentions_only=False), SystemClock())
    taken = await hear(api, bot, updates=1)
    await bot.close()
    assert [message.text for message in taken] == ["hi all"]


async def test_edited_message_is_a_new_one_marked_as_edited(api: BotApi, bot: Telegram) -> None:
    ann = api.person("Ann")
    message = api.message(ann.dm, ann, text="first")
    api.push({"message": message})
    first = api.push({"edited_message": {**message, "text": "second", "edit_date": 2}})
    second = api.push({"edited_message": {**message, "text": "third", "edit_date": 2}})
    moved = {**message, "location": {"longitude": 2.5, "latitude": 1.5}, "edit_date": 2}
    api.push({"edited_message": {name: value for name, value in moved.items() if name != "text"}})
    taken = await hear(api, bot, updates=4)
    number = f"{BOT_ID}.{message['message_id']}"  # another bot would count from the beginning again
    assert [(one.text, one.message_id) for one in taken] == [
        ("first", f"{number}"),
        ("(edited) second", f"{number}.{first}"),
        ("(edited) third", f"{number}.{second}"),
    ]


async def test_unreadable_updates_block_nothing(api: BotApi, bot: Telegram) -> None:
    ann = api.person("Ann")
    good = api.message(ann.dm, ann, text="x")
    channel = Place(-100, "channel", "News")
    strange: list[Json] = [
        {"message": {"text": "no chat"}},
        {"message": {**good, "text": 7}},
        {"message": {**good, "chat": {**ann.dm.to_json(), "id": "a"}}},
        {"message": "nonsense"},
        {"message": None},
        {"channel_post": api.message(channel, ann, text="news")},
        {"message": {**good, "from": {**ann.to_json(), "is_bot": True}}},
        {"message": {name: value for name, value in good.items() if name != "from"}},
        {"poll_answer": {"poll_id": "1", "option_ids": []}},
        {"a_new_invention": {"deep": [[[]]]}},
        {},
    ]
    for update in strange:
        api.push(update)
    api.say(ann.dm, "still there?", ann)
    taken = await hear(api, bot, updates=len(strange) + 1)
    assert [message.text for message in taken] == ["still there?"]


async def test_topic_is_a_thread_and_a_chain_of_replies_is_not(api: BotApi, bot: Telegram) -> None:
    ann, topic, group = api.person("Ann"), api.group("Forum", topic=7), api.group("Garden")
    api.say(topic, "/status", ann)
    api.say(group, "/status", ann, message_thread_id=99)
    taken = await hear(api, bot, updates=2)
    assert [message.chat.thread_id for message in taken] == ["7", None]


async def test_message_of_an_anonymous_admin_is_the_groups(api: BotApi, bot: Telegram) -> None:
    group = api.group("Garden")
    anonymous = {"id": 1087968824, "is_bot": True, "first_name": "Group", "username": "GroupAnonymousBot"}
    message = api.message(group, Person(1, "x"), text="/status", sender_chat=group.to_json())
    api.push({"message": {**message, "from": anonymous}})
    [heard] = await hear(api, bot, updates=1)
    assert (heard.author_id, heard.author_name) == (str(group.id), "Garden")


@pytest.mark.contract("2.1")
async def test_only_stored_updates_are_confirmed(api: BotApi, bot: Telegram) -> None:
    ann, intake = api.person("Ann"), RecordingIntake(busy=1)
    seen: list[tuple[str, int]] = []
    api.on_call = lambda call: seen.append((call.given.get("offset", ""), len(intake.taken)))
    first = api.push({"message": api.message(ann.dm, ann, text="one")})
    second = api.push({"message": api.message(ann.dm, ann, text="two")})
    await hear(api, bot, updates=2, intake=intake)
    assert [message.text for message in intake.taken] == ["one", "two"]
    assert api.confirmed == {first, second}
    assert all(taken == 2 for offset, taken in seen if offset)
    assert [state for state, _ in intake.reports] == ["ok", "failing", "ok"]


async def test_failure_and_recovery_are_reported_once_each(api: BotApi, bot: Telegram) -> None:
    intake, ann = RecordingIntake(), api.person("Ann")
    api.refuse("getMe", 502, "Bad Gateway")
    api.refuse("getUpdates", 409, "Conflict: terminated by other getUpdates request")
    api.lose("getUpdates")
    api.say(ann.dm, "hello", ann)
    await hear(api, bot, updates=1, intake=intake)
    assert [message.text for message in intake.taken] == ["hello"]
    assert [state for state, _ in intake.reports] == ["failing", "ok"]


async def test_polling_removes_a_webhook_and_confirms_updates(api: BotApi, bot: Telegram) -> None:
    ann = api.person("Ann")
    api.webhook = {"url": "https://gone.example"}
    api.say(ann.dm, "hello", ann)
    async with polling(bot, RecordingIntake()):
        await asyncio.to_thread(api.until, lambda: api.confirmed)
    assert api.webhook == {}


@pytest.mark.parametrize(
    ("status", "description", "parameters", "expected", "wait"),
    [
        (429, "Too Many Requests: retry after 7", {"retry_after": 7}, SendLater, 7.0),
        (500, "Internal Server Error", {}, SendLater, None),
        (502, "Bad Gateway", {}, SendLater, None),
        (401, "Unauthorized", {}, SendLater, 60.0),
        (403, "Forbidden: bot was blocked by the user", {}, SendNever, None),
        (400, "Bad Request: chat not found", {}, SendNever, None),
        (400, "Bad Request: message thread not found", {}, SendNever, None),
    ],
)
async def test_refusals_are_classified_as_later_or_never(
    api: BotApi,
    bot: Telegram,
    status: int,
    description: str,
    parameters: dict[str, Json],
    expected: type[Exception],
    wait: float | None,
) -> None:
    ann = api.person("Ann")
    api.refuse("sendMessage", status, description, **parameters)
    with pytest.raises(expected) as refused:
        await bot.send(chat(ann.dm), "hello")
    assert getattr(refused.value, "wait", None) == wait
    assert TOKEN not in str(refused.value)
    assert api.texts(ann.dm.id) == []


async def test_lost_connection_means_send_later(api: BotApi, bot: Telegram) -> None:
    ann = api.person("Ann")
    api.lose("sendMessage")
    with pytest.raises(SendLater):
        await bot.send(chat(ann.dm), "hello")
    api.lose("sendChatAction")
    with pytest.raises(SendLater):
        await bot.show_typing(chat(ann.dm))


async def test_sending_follows_a_group_to_its_supergroup(api: BotApi, bot: Telegram) -> None:
    group, intake = api.small_group("Garden"), RecordingIntake()
    wide = api.upgrade(group)
    async with polling(bot, intake):
        await asyncio.to_thread(api.until, lambda: api.called("getupdates"))
        sent = await bot.send(chat(group), "hello")
        await bot.edit(chat(group), sent, "hello all")
    assert api.texts(wide.id) == ["hello all"]
    assert intake.moves == [Moved(chat(group), chat(wide))]


async def test_preview_of_a_group_is_not_edited_in_its_supergroup(api: BotApi, bot: Telegram) -> None:
    group = api.small_group("Garden")
    preview = await bot.send(chat(group), "a preview")
    wide = api.upgrade(group)
    await bot.send(chat(wide), "something else")
    api.sent[-1].id = int(preview)  # a supergroup counts its messages from the beginning
    with pytest.raises(MessageGone):
        await bot.edit(chat(group), preview, "the reply")
    assert api.texts(wide.id) == ["something else"]


async def test_both_service_messages_of_a_move_have_the_same_effect(api: BotApi, bot: Telegram) -> None:
    group, intake = api.small_group("Garden"), RecordingIntake()
    wide = api.upgrade(group)
    for update in api.move_updates(group, wide):
        api.push(update)
    await hear(api, bot, updates=2, intake=intake)
    assert intake.moves == [Moved(chat(group), chat(wide))] * 2
    assert intake.taken == []


async def test_refused_formatting_does_not_lose_the_text(api: BotApi, bot: Telegram) -> None:
    ann = api.person("Ann")
    api.refuse("sendMessage", 400, "Bad Request: can't parse entities: unexpected end")
    sent = await bot.send(chat(ann.dm), "**bold** and _so_")
    assert api.texts(ann.dm.id) == ["**bold** and _so_"]
    await bot.edit(chat(ann.dm), sent, "**bold** and _so_")
    assert api.texts(ann.dm.id) == ["bold and so"]
    assert [entity["type"] for entity in api.sent[0].entities] == ["bold", "italic"]


async def test_edit_without_a_change_succeeds_and_of_a_deleted_message_fails(api: BotApi, bot: Telegram) -> None:
    ann = api.person("Ann")
    sent = await bot.send(chat(ann.dm), "hello")
    await bot.edit(chat(ann.dm), sent, "hello")
    api.sent.clear()
    with pytest.raises(MessageGone):
        await bot.edit(chat(ann.dm), sent, "hello again")


def test_webhook_without_a_secret_is_refused() -> None:
    with pytest.raises(SettingsError, match="webhook_secret"):
        Telegram(TelegramOptions(TOKEN, "http://x", webhook_url="https://example.org/hook"), SystemClock())


async def test_token_is_in_no_log_line_and_no_report(api: BotApi, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    wrong = f"{TOKEN}-wrong"
    bot, intake = Telegram(TelegramOptions(wrong, api.base_url), SystemClock()), RecordingIntake()
    async with polling(bot, intake):
        await asyncio.to_thread(api.until, lambda: intake.reports)
    with pytest.raises(SendLater) as refused:
        await bot.send(Chat("telegram", "dm", "1"), "hello")
    await bot.close()
    shown = f"{caplog.text} {intake.reports} {refused.value!r} {refused.value.__cause__!r}"
    assert wrong not in shown
    assert intake.reports[0][0] == "failing"


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (
            NetworkError("httpx.ConnectError: All connection attempts failed"),
            "cannot reach api.example.org (ConnectError: All",
        ),
        (TimedOut(), "cannot reach api.example.org (Timed out"),
        (BadRequest("Chat not found"), "BadRequest: Chat not found"),
    ],
)
def test_a_network_that_fails_is_told_as_the_host_that_cannot_be_reached(error: TelegramError, told: str) -> None:
    assert describe(error, TOKEN, "api.example.org").startswith(told)
