"""The Discord adapter against a Discord on loopback: translation, missed messages, and errors."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from hermes.clock import SystemClock
from hermes.gateway.platform import Chat, Inbound, MessageGone, SendLater, SendNever
from hermes.gateway.platforms import discord as adapter
from hermes.gateway.platforms import discord_client
from hermes.gateway.platforms.discord import Discord, DiscordOptions
from hermes.gateway.platforms.discord_messages import render
from hermes.types import Json
from tests.gateway.discord_server import BOT_ID, TOKEN, Channel, DiscordServer
from tests.gateway.intake import RecordingIntake, until

pytestmark = pytest.mark.timeout(120)
ME = f"<@{BOT_ID}>"


@pytest.fixture
def server() -> Iterator[DiscordServer]:
    with DiscordServer() as running:
        yield running


@asynccontextmanager
async def listening(
    server: DiscordServer, intake: RecordingIntake, *, ready: bool = True, **terms: Any
) -> AsyncIterator[Discord]:
    bot = Discord(DiscordOptions(TOKEN, server.base_url, **terms), SystemClock())
    task = asyncio.create_task(bot.run(intake))
    try:
        if ready:
            await until(lambda: any(state == "ok" for state, _ in intake.reports))
        yield bot
    finally:
        task.cancel()
        await asyncio.wait({task})
        await bot.close()


def chat(where: Channel) -> Chat:
    return Chat("discord", "dm" if where.kind == 1 else "group", str(where.parent_id or where.id), _thread(where))


def _thread(where: Channel) -> str | None:
    return str(where.id) if where.parent_id else None


REPLIED: dict[str, Json] = {
    "message_reference": {"message_id": "1", "channel_id": "2"},
    "type": 19,
}


async def test_direct_message_is_accepted_with_its_author(server: DiscordServer) -> None:
    ann, intake = server.person("Ann"), RecordingIntake()
    async with listening(server, intake):
        number = server.say(ann.dm, "hello", ann)
        await until(lambda: intake.taken)
    chat = Chat("discord", "dm", str(ann.dm.id))
    assert intake.taken == [Inbound(chat, str(number), "hello", str(ann.id), "Ann", "ann")]


async def test_only_messages_to_the_bot_are_accepted_in_a_server(server: DiscordServer) -> None:
    ann, hall, intake = server.person("Ann"), server.channel("hall"), RecordingIntake()
    topic = server.thread(hall, "topic")
    async with listening(server, intake):
        server.say(hall, "among us", ann)
        server.say(hall, f"{ME} to you", ann)
        server.say(topic, f"in a thread, {ME}", ann)
        await until(lambda: len(intake.taken) == 2)
    assert {(one.text, one.chat) for one in intake.taken} == {("to you", chat(hall)), ("in a thread", chat(topic))}


async def test_all_messages_of_a_server_are_accepted_without_mentions_only(server: DiscordServer) -> None:
    ann, hall, intake = server.person("Ann"), server.channel("hall"), RecordingIntake()
    async with listening(server, intake, mentions_only=False):
        server.say(hall, "among us", ann)
        await until(lambda: intake.taken)
    assert intake.texts == ["among us"]


async def test_messages_of_bots_and_the_system_are_ignored(server: DiscordServer) -> None:
    ann, robot, intake = server.person("Ann"), server.person("Robot", bot=True), RecordingIntake()
    async with listening(server, intake):
        server.say(robot.dm, "beep", robot)
        server.say(ann.dm, "joined", ann, type=7)
        server.say(ann.dm, "hook", ann, webhook_id="5")
        server.say(ann.dm, "a person", ann)
        await until(lambda: intake.taken)
    assert intake.texts == ["a person"]


@pytest.mark.parametrize(
    ("text", "more", "heard"),
    [
        ("/start", {}, "/help"),
        ("/new", {}, "/new"),
        ("look", {"attachments": [{"id": "1", "filename": "tax.pdf", "size": 1, "url": "x", "proxy_url": "x"}]},
         "[a file “tax.pdf”, which cannot be opened here]\n\nlook"),
        ("hi <@77>", {"mentions": [{"id": "77", "username": "bob", "global_name": "Bob", "discriminator": "0",
                                   "avatar": None}]}, "hi @Bob"),
    ],
)  # fmt: skip
async def test_messages_are_read_as_text(server: DiscordServer, text: str, more: dict[str, Json], heard: str) -> None:
    ann, intake = server.person("Ann"), RecordingIntake()
    async with listening(server, intake):
        server.say(ann.dm, text, ann, **more)
        await until(lambda: intake.taken)
    assert intake.texts == [heard]


POLL: Json = {
    "question": {"text": "Tea?"}, "answers": [{"answer_id": 1, "poll_media": {"text": "yes"}}],
    "expiry": "2100-01-01T00:00:00+00:00", "allow_multiselect": False, "layout_type": 1,
}  # fmt: skip
UNUSUAL: list[tuple[str, dict[str, Json], str]] = [
    ("half \ud83d of a pair", {}, "half \ufffd of a pair"),
    ("", {"sticker_items": [{"id": "1", "name": "W\udc00ave", "format_type": 99}]}, "[a sticker “W\ufffdave”]"),
    ("", {"poll": POLL}, "[a poll: Tea?]"),
    ("a poll without an end", {"poll": {**POLL, "expiry": None}}, "a poll without an end"),
    ("half a poll", {"poll": {"question": {"text": "Tea?"}}}, "half a poll"),
    ("", {"embeds": [{"type": "rich", "title": "news"}]}, ""),
    ("text, bad parts", {"embeds": [{"color": "red"}], "attachments": [{}], "sticker_items": [{"id": "x"}],
                         "components": [{"type": 77}], "reactions": [{"count": 1}], "message_snapshots": [{}]},
     "text, bad parts"),
    ("large numbers", {"nonce": "9" * 4000, "flags": 2**70}, "large numbers"),
    ("by an id alone", {"author": {"id": "7"}}, ""),
    ("by nobody", {"author": None}, ""),
    ("of no text", {"content": None}, ""),
    *[(f"of kind {kind}", {"type": kind}, "") for kind in (6, 999, None)],
    ("of no time", {"timestamp": "yesterday"}, "of no time"),
    ("to a message that is gone", {"type": 19, "message_reference": {"message_id": "1", "channel_id": "2"},
                                   "referenced_message": None}, "to a message that is gone"),
    ("to half a message", {"type": 19, "message_reference": {"message_id": "1"}, "referenced_message": {"id": "1"}},
     "to half a message"),
]  # fmt: skip


async def test_unusual_messages_do_not_block_later_ones(server: DiscordServer) -> None:
    ann, intake = server.person("Ann"), RecordingIntake()

    def say_all() -> None:
        for text, more, _ in UNUSUAL:
            server.say(ann.dm, text, ann, **more)
        server.say(ann.dm, "the last", ann)

    async with listening(server, intake):
        say_all()
        await until(lambda: intake.texts.count("the last") == 1)
    server.forget_sessions()
    say_all()
    async with listening(server, intake):
        await until(lambda: intake.texts.count("the last") == 2)
    heard = [text for _, _, text in UNUSUAL if text]
    assert intake.texts == [*heard, "the last"] * 2
    assert server.identified == 2, "the connection stood"


async def test_chat_of_a_voice_channel_is_a_channel(server: DiscordServer) -> None:
    ann, intake = server.person("Ann"), RecordingIntake()
    voice = server.channel("voice", 2)
    async with listening(server, intake):
        server.say(voice, f"{ME} one", ann)
        await until(lambda: intake.taken)
    server.forget_sessions()
    server.say(voice, "not for you", ann)
    server.say(voice, f"{ME} two", ann)
    async with listening(server, intake):
        await until(lambda: len(intake.taken) == 2)
    assert intake.texts == ["one", "two"]
    assert {one.chat for one in intake.taken} == {chat(voice)}


async def test_reply_brings_a_quote_and_counts_as_addressed(server: DiscordServer) -> None:
    ann, hall, intake = server.person("Ann"), server.channel("hall"), RecordingIntake()
    async with listening(server, intake) as bot:
        sent = await bot.send(chat(hall), "so and so")
        [said] = [one for one in server._messages[hall.id] if one["id"] == sent]
        reference = {"message_id": sent, "channel_id": str(hall.id), "type": 0}
        server.say(hall, "why?", ann, type=19, message_reference=reference, referenced_message=said)
        await until(lambda: intake.taken)
    assert intake.texts == ["> so and so\n\nwhy?"]


async def test_edit_by_a_person_is_a_message_but_a_link_preview_is_not(server: DiscordServer) -> None:
    ann, intake = server.person("Ann"), RecordingIntake()
    async with listening(server, intake):
        number = server.say(ann.dm, "helo", ann)
        server.emit("MESSAGE_UPDATE", server._messages[ann.dm.id][0])
        server.edit(ann.dm, number, "hello")
        await until(lambda: len(intake.taken) == 2)
    assert intake.texts == ["helo", "(edited) hello"]
    assert intake.taken[0].message_id != intake.taken[1].message_id


@pytest.mark.contract("10.2", "10.55")
async def test_missed_messages_are_read_once_and_in_order(server: DiscordServer) -> None:
    ann, hall, intake = server.person("Ann"), server.channel("hall"), RecordingIntake()
    async with listening(server, intake):
        server.say(ann.dm, "one", ann)
        server.say(hall, f"{ME} first", ann)
        await until(lambda: len(intake.taken) == 2)
    server.forget_sessions()
    for number in range(120):
        server.say(ann.dm, f"later {number}", ann)
    server.say(hall, "not for you", ann)
    server.say(hall, f"{ME} second", ann)
    born = server.thread(hall, "made meanwhile")
    server.say(born, f"{ME} third", ann)
    async with listening(server, intake):
        server.say(ann.dm, "live", ann)
        await until(lambda: len(intake.taken) == 125)
    mine = [one.text for one in intake.taken if one.chat.chat_type == "dm"]
    assert mine == ["one", *(f"later {number}" for number in range(120)), "live"]
    assert [one.text for one in intake.taken if one.chat == chat(hall)] == ["first", "second"]
    assert [one.text for one in intake.taken if one.chat == chat(born)] == ["third"]


@pytest.mark.parametrize("trouble", ["archived", "not available"])
async def test_unlisted_channel_is_not_taken_for_a_direct_chat(server: DiscordServer, trouble: str) -> None:
    ann, hall, intake = server.person("Ann"), server.channel("hall"), RecordingIntake()
    topic = server.thread(hall, "topic")
    async with listening(server, intake):
        server.say(ann.dm, "one", ann)
        server.say(topic, f"{ME} first", ann)
        await until(lambda: len(intake.taken) == 2)
    server.forget_sessions()
    server.say(topic, "not for you", ann)
    server.say(topic, f"{ME} second", ann)
    server.say(ann.dm, "two", ann)
    if trouble == "archived":
        server.archive(topic)
    server.is_available = trouble == "archived"
    async with listening(server, intake):
        server.say(topic, "not for you", ann)
        server.say(ann.dm, "live", ann)
        await until(lambda: "live" in intake.texts)
    assert [one.text for one in intake.taken if one.chat == chat(topic)] == ["first", "second"]
    assert [one.text for one in intake.taken if one.chat == chat(ann.dm)] == ["one", "two", "live"]
    assert len(intake.taken) == 5


async def test_old_archived_thread_is_forgotten(server: DiscordServer, monkeypatch: pytest.MonkeyPatch) -> None:
    ann, hall, intake = server.person("Ann"), server.channel("hall"), RecordingIntake()
    topic = server.thread(hall, "topic")
    async with listening(server, intake):
        server.say(topic, f"{ME} first", ann)
        await until(lambda: intake.taken)
    server.forget_sessions()
    server.archive(topic)
    monkeypatch.setattr(adapter, "THREAD_LIFE_SECONDS", 0.0)
    async with listening(server, intake):
        await until(lambda: str(topic.id) not in intake.positions)


async def test_new_channel_begins_with_the_next_message(server: DiscordServer) -> None:
    ann, hall, intake = server.person("Ann"), server.channel("hall"), RecordingIntake()
    server.say(hall, f"{ME} long ago", ann)
    async with listening(server, intake):
        server.say(hall, f"{ME} now", ann)
        await until(lambda: intake.taken)
    assert intake.texts == ["now"]


async def test_late_message_is_marked_if_configured(server: DiscordServer, monkeypatch: pytest.MonkeyPatch) -> None:
    ann, intake = server.person("Ann"), RecordingIntake()
    async with listening(server, intake):
        server.say(ann.dm, "one", ann)
        await until(lambda: intake.taken)
    server.forget_sessions()
    server.say(ann.dm, "two", ann)
    server.say(ann.dm, "/new", ann)
    now = SystemClock().now
    monkeypatch.setattr(SystemClock, "now", lambda _: now() + 3 * 3600)
    async with listening(server, intake, marks_late=True):
        await until(lambda: len(intake.taken) == 3)
    assert intake.texts == ["one", "(sent 3 h ago)\n\ntwo", "/new"]


async def test_lost_connection_is_resumed_without_missing_messages(server: DiscordServer) -> None:
    ann, intake = server.person("Ann"), RecordingIntake()
    async with listening(server, intake):
        for number in range(10):
            server.say(ann.dm, f"a{number}", ann)
        server.cut()
        for number in range(10):
            server.say(ann.dm, f"b{number}", ann)
        await until(lambda: len(intake.taken) == 20)
        assert server.resumed == 1
    assert intake.texts == [f"{run}{number}" for run in "ab" for number in range(10)]


async def test_new_session_after_a_failed_resume_misses_no_message(server: DiscordServer) -> None:
    ann, intake = server.person("Ann"), RecordingIntake()
    async with listening(server, intake):
        server.say(ann.dm, "one", ann)
        await until(lambda: intake.taken)
        server.forget_sessions()
        server.say(ann.dm, "two", ann)
        server.cut()
        await until(lambda: len(intake.taken) == 2)
    assert intake.texts == ["one", "two"]
    assert server.identified == 2


async def test_silently_dead_connection_is_detected(server: DiscordServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(discord_client, "HEARTBEAT_TIMEOUT_SECONDS", 1.0)
    ann, intake = server.person("Ann"), RecordingIntake()
    async with listening(server, intake):
        server.say(ann.dm, "one", ann)
        await until(lambda: intake.taken)
        server.answers_heartbeats = False
        await asyncio.to_thread(server.until, lambda: server.resumed == 1)
        server.answers_heartbeats = True
        server.say(ann.dm, "two", ann)
        await until(lambda: len(intake.taken) == 2)


async def test_connection_is_reopened_after_a_long_loss(server: DiscordServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adapter, "SILENT_LOSS_SECONDS", 0.2)
    monkeypatch.setattr(adapter, "LONG_LOSS_SECONDS", 5.0)  # a session begins within two
    monkeypatch.setattr("discord.client.ExponentialBackoff.delay", lambda _: 3600.0)
    ann, intake = server.person("Ann"), RecordingIntake()
    async with listening(server, intake):
        server.say(ann.dm, "one", ann)
        await until(lambda: intake.taken)
        server.accepts_websockets = False
        server.cut()
        server.say(ann.dm, "two", ann)
        await until(lambda: intake.reports[-1][0] == "failing")
        server.accepts_websockets = True
        await until(lambda: len(intake.taken) == 2)
        await until(lambda: intake.reports[-1][0] == "ok")
    assert intake.texts == ["one", "two"]


async def test_message_waits_while_the_store_is_busy(server: DiscordServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adapter, "MIN_RETRY_SECONDS", 0.01)
    ann, intake = server.person("Ann"), RecordingIntake(busy=2)
    async with listening(server, intake):
        server.say(ann.dm, "one", ann)
        server.say(ann.dm, "two", ann)
        await until(lambda: len(intake.taken) == 2)
    assert intake.texts == ["one", "two"]


async def test_messages_beyond_the_full_queue_are_read_again(
    server: DiscordServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(discord_client, "MAX_WAITING_MESSAGES", 5)
    ann, bob, intake = server.person("Ann"), server.person("Bob"), RecordingIntake()
    async with listening(server, intake) as bot:
        server.say(ann.dm, "first", ann)
        await until(lambda: intake.taken)
        go_on, receive = asyncio.Event(), intake.receive

        async def held(message: Inbound) -> None:
            await go_on.wait()
            await receive(message)

        intake.receive = held  # type: ignore[method-assign]
        for number in range(20):
            server.say(ann.dm, f"a{number}", ann)
        server.say(bob.dm, "bob's first", bob)
        await until(lambda: bot._client is not None and len(bot._client._missed_after) == 2)
        go_on.set()
        await until(lambda: len(intake.taken) == 22)
    assert [one.text for one in intake.taken if one.author_name == "Ann"] == ["first", *(f"a{n}" for n in range(20))]
    assert "bob's first" in intake.texts


@pytest.mark.contract("2.5")
async def test_reply_repeated_with_its_key_appears_once(server: DiscordServer) -> None:
    ann, intake = server.person("Ann"), RecordingIntake()
    async with listening(server, intake) as bot:
        first = await bot.send(chat(ann.dm), "hello", "reply:5:0")
        assert await bot.send(chat(ann.dm), "hello", "reply:5:0") == first
        assert await bot.send(chat(ann.dm), "hello", "reply:6:0") != first
    assert server.texts(ann.dm) == ["hello", "hello"]


async def test_reply_is_streamed_by_edits_and_its_deletion_is_detected(server: DiscordServer) -> None:
    ann, intake = server.person("Ann"), RecordingIntake()
    async with listening(server, intake) as bot:
        number = await bot.send(chat(ann.dm), "hel")
        await bot.edit(chat(ann.dm), number, "hello")
        assert server.texts(ann.dm) == ["hello"]
        server.delete_message(ann.dm, "hello")
        with pytest.raises(MessageGone):
            await bot.edit(chat(ann.dm), number, "hello!")


async def test_send_errors_are_classified(server: DiscordServer) -> None:
    ann, hall, intake = server.person("Ann"), server.channel("hall"), RecordingIntake()
    server.remove(hall)
    async with listening(server, intake) as bot:
        with pytest.raises(SendNever, match="Unknown Channel"):
            await bot.send(chat(hall), "hello")
        server.refuse("POST", 403, message="Cannot send messages to this user", code=50007)
        with pytest.raises(SendNever, match="Cannot send"):
            await bot.send(chat(ann.dm), "hello")
        server.refuse("POST", 429, message="slow", retry_after=90.0, **{"global": False})
        with pytest.raises(SendLater) as later:
            await bot.send(chat(ann.dm), "hello")
        assert later.value.wait == pytest.approx(90, abs=1)
    with pytest.raises(SendLater, match="not connected"):
        await bot.send(chat(ann.dm), "hello")


@pytest.mark.parametrize(
    ("intents", "token", "reason"),
    [(False, TOKEN, "Message Content Intent"), (True, "MTIz.wrong.token", "discord.token")],
)
async def test_wrong_configuration_is_reported_and_retried(
    intents: bool, token: str, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    intake = RecordingIntake()
    with DiscordServer(intents=intents) as server, caplog.at_level(logging.DEBUG):
        bot = Discord(DiscordOptions(token, server.base_url), SystemClock())
        task = asyncio.create_task(bot.run(intake))
        await until(lambda: intake.reports)
        task.cancel()
        await asyncio.wait({task})
        await bot.close()
    [(state, detail)] = intake.reports
    assert state == "failing"
    assert reason in detail
    assert token not in caplog.text + detail


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("# Title\n#### Deep\ntext", "# Title\n**Deep**\ntext"),
        ("a\n\n---\n\nb", "a\n\n———\n\nb"),
        ("| a | b |\n|---|---|\n| 1 | 2 |\nend", "```\n| a | b |\n|---|---|\n| 1 | 2 |\n```\nend"),
        ("![cat](https://x.y/z.png)", "[cat](https://x.y/z.png)"),
        ("```md\n#### not a heading\n```", "```md\n#### not a heading\n```"),
        ("**bold** _it_ ~~no~~ `x`", "**bold** _it_ ~~no~~ `x`"),
    ],
)
def test_markdown_is_adapted_to_discord(given: str, shown: str) -> None:
    assert render(given) == shown
