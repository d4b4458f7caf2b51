"""The Slack adapter against a Slack on loopback: translation, missed messages, and errors."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from hermes.clock import SystemClock
from hermes.errors import SettingsError
from hermes.gateway.platform import Chat, Inbound, MessageGone, SendLater, SendNever
from hermes.gateway.platforms import slack as adapter
from hermes.gateway.platforms.slack import Slack, SlackOptions
from hermes.gateway.platforms.slack_messages import to_mrkdwn, to_plain
from hermes.types import Json
from tests.gateway.intake import RecordingIntake, until
from tests.gateway.slack_server import APP_TOKEN, BOT_ID, BOT_TOKEN, BOT_USER, Channel, SlackServer

pytestmark = pytest.mark.timeout(120)
ME = f"<@{BOT_USER}>"


@pytest.fixture
def server() -> Iterator[SlackServer]:
    with SlackServer() as running:
        yield running


@asynccontextmanager
async def listening(server: SlackServer, intake: RecordingIntake, **terms: Any) -> AsyncIterator[Slack]:
    bot = Slack(SlackOptions(BOT_TOKEN, APP_TOKEN, server.base_url, **terms), SystemClock())
    before = server.connections
    task = asyncio.create_task(bot.run(intake))
    try:
        await until(lambda: server.connections > before and bot._waiting.empty() and intake.positions_read)
        yield bot
    finally:
        task.cancel()
        await asyncio.wait({task})
        await bot.close()


def chat(where: Channel, thread: str | None = None) -> Chat:
    return Chat("slack", "dm" if where.kind == "im" else "group", where.id, thread)


async def test_direct_message_is_accepted_with_its_author_and_acknowledged(server: SlackServer) -> None:
    ann, intake = server.person("Ann"), RecordingIntake()
    async with listening(server, intake):
        ts = server.say(ann.dm, "hello &amp; welcome", ann)
        await until(lambda: server.acknowledged)
    assert intake.taken == [Inbound(chat(ann.dm), f"{ann.dm.id}.{ts}", "hello & welcome", ann.id, "Ann")]


async def test_only_messages_to_the_bot_are_accepted_in_a_channel(server: SlackServer) -> None:
    ann, hall, intake = server.person("Ann"), server.channel(), RecordingIntake()
    async with listening(server, intake) as bot:
        server.say(hall, "among us", ann)
        first = server.say(hall, f"{ME} to you", ann)
        server.say(hall, f"in its thread, {ME}", ann, thread_ts=first)
        mine = await bot.send(chat(hall), "an answer")
        server.say(hall, "a reply to it", ann, thread_ts=mine, parent_user_id=BOT_USER)
        await until(lambda: len(intake.taken) == 3)
    assert set(intake.texts) == {"to you", "in its thread", "a reply to it"}
    assert {(one.text, one.chat.thread_id) for one in intake.taken} >= {("to you", None), ("in its thread", first)}


async def test_mention_in_two_events_is_one_message(server: SlackServer) -> None:
    ann, hall, intake = server.person("Ann"), server.channel(), RecordingIntake()
    async with listening(server, intake):
        ts = server.say(hall, f"{ME} hello", ann)
        server.emit({"type": "app_mention", "user": ann.id, "text": f"{ME} hello", "ts": ts, "channel": hall.id})
        await until(lambda: len(server.acknowledged) == 2)
    assert intake.texts == ["hello"]


@pytest.mark.parametrize(
    ("text", "more", "heard"),
    [
        ("/start", {}, "/help"),
        ("/new", {}, "/new"),
        ("see <https://a.b/c|the page> in <#C1|hall> <!here>", {}, "see the page (https://a.b/c) in #hall @here"),
        ("read it", {"subtype": "file_share", "files": [{"id": "F1", "name": "tax.pdf"}]},
         "[a file “tax.pdf”, which cannot be opened here]\n\nread it"),
        ("ask <@UNOBODY>", {}, "ask @UNOBODY"),
    ],
)  # fmt: skip
async def test_messages_are_read_as_text(server: SlackServer, text: str, more: dict[str, Json], heard: str) -> None:
    ann, intake = server.person("Ann"), RecordingIntake()
    async with listening(server, intake):
        server.say(ann.dm, text, ann, **more)
        await until(lambda: intake.taken)
    assert intake.texts == [heard]


async def test_messages_of_bots_and_the_system_are_ignored(server: SlackServer) -> None:
    ann, intake = server.person("Ann"), RecordingIntake()
    async with listening(server, intake):
        server.say(ann.dm, "beep", ann, bot_id="B2")
        server.say(ann.dm, "mine", ann, bot_id=BOT_ID, user=BOT_USER)
        server.say(ann.dm, "joined", ann, subtype="channel_join")
        server.say(ann.dm, "a person", ann)
        await until(lambda: len(server.acknowledged) == 4)
    assert intake.texts == ["a person"]


async def test_unusual_events_do_not_block_later_ones(server: SlackServer) -> None:
    ann, hall, intake = server.person("Ann"), server.channel(), RecordingIntake()
    long = "é" * 40_000
    async with listening(server, intake):
        first = server.say(hall, f"{ME} a topic", ann)
        server.say(hall, f"{ME} to all", ann, thread_ts=first, subtype="thread_broadcast")
        for subtype in ("tombstone", "channel_join", "message_deleted", "message_replied", "bot_add", "huddle_thread"):
            server.say(hall, f"{ME} {subtype}", ann, subtype=subtype)
        server.emit({"type": "message", "subtype": "message_deleted", "channel": hall.id, "deleted_ts": first})
        server.emit({"type": "message", "subtype": "message_changed", "channel": hall.id, "ts": "1.0"})
        server.emit({"type": "message", "channel": hall.id, "user": ann.id})
        server.emit({"type": "message", "text": "of nowhere", "user": ann.id, "ts": "2.0"})
        server.say(hall, f"{ME} hook", ann, subtype="bot_message", user=None, bot_id="B77")
        server.say(ann.dm, "", ann, subtype="file_share", files=[{"id": "F1", "mode": "tombstone"}, {"id": "F2"}])
        server.say(ann.dm, long, ann)
        server.emit(
            {"type": "message", "channel": "G1", "channel_type": "mpim", "user": ann.id, "text": "x", "ts": "3"}
        )
        server.say(ann.dm, "the last", ann)
        await until(lambda: len(intake.texts) >= 5)
    in_hall = ["a topic", "to all"]
    assert [text for text in intake.texts if text in in_hall] == in_hall
    private = [text for text in intake.texts if text not in in_hall]  # chats do not wait for each other
    assert private == ["[files “F1”, “F2”, which cannot be opened here]", long, "the last"]


async def test_edit_by_a_person_is_a_separate_message(server: SlackServer) -> None:
    ann, intake = server.person("Ann"), RecordingIntake()
    async with listening(server, intake):
        ts = server.say(ann.dm, "helo", ann)
        server.edit(ann.dm, ts, "hello")
        server.edit(ann.dm, ts, "hello")
        await until(lambda: len(server.acknowledged) == 3)
    assert intake.texts == ["helo", "(edited) hello"]


@pytest.mark.contract("10.2", "10.55")
async def test_missed_messages_are_read_once_and_in_order(server: SlackServer) -> None:
    ann, bob, hall, intake = server.person("Ann"), server.person("Bob"), server.channel(), RecordingIntake()
    server.say(hall, f"{ME} long ago", bob)
    async with listening(server, intake):
        first = server.say(hall, f"{ME} first", bob)
        server.say(hall, f"{ME} in a thread", bob, thread_ts=first)
        server.say(ann.dm, "one", ann)
        await until(lambda: len(server.acknowledged) == 3)
    for number in range(120):
        server.say(ann.dm, f"later {number}", ann)
    server.say(hall, "not for you", bob)
    server.say(hall, f"{ME} second", bob)
    server.say(hall, f"{ME} on with the thread", bob, thread_ts=first)
    async with listening(server, intake):
        server.say(ann.dm, "live", ann)
        await until(lambda: len(intake.taken) == 126)
    assert [one.text for one in intake.taken if one.author_id == ann.id] == [
        "one", *(f"later {number}" for number in range(120)), "live",
    ]  # fmt: skip
    said = [(one.text, one.chat.thread_id) for one in intake.taken if one.author_id == bob.id]
    assert [one for one in said if one[1] is None] == [("first", None), ("second", None)]
    assert [one for one in said if one[1]] == [("in a thread", first), ("on with the thread", first)]


async def test_first_messages_of_a_new_channel_keep_their_order(server: SlackServer) -> None:
    """The first is said before the channels are listed, the second while messages that were missed are read."""
    ann, intake = server.person("Ann"), RecordingIntake()
    said: list[str] = []

    def say_in_server(method: str) -> None:
        text = {"users.conversations": "one", "conversations.history": "two"}.get(method)
        if text is not None and text not in said:
            said.append(text)
            message = server._keep(ann.dm, {"user": ann.id, "text": text})
            emitted.append(asyncio.ensure_future(server._emit({**message, "channel": ann.dm.id})))

    emitted: list[asyncio.Future[None]] = []
    server.on_call = say_in_server
    async with listening(server, intake):
        await until(lambda: "one" in said and intake.positions)
        if "two" not in said:
            server.say(ann.dm, "two", ann)
        await until(lambda: len(intake.taken) == 2)
    assert intake.texts == ["one", "two"]
    assert float(intake.positions[ann.dm.id]) > 0


async def test_thread_that_began_while_stopped_is_read(server: SlackServer) -> None:
    ann, hall, intake = server.person("Ann"), server.channel(), RecordingIntake()
    async with listening(server, intake):
        server.say(hall, f"{ME} one", ann)
        await until(lambda: intake.taken)
    first = server.say(hall, "a topic", ann)
    server.say(hall, f"{ME} in its thread", ann, thread_ts=first)
    server.say(hall, "among us", ann, thread_ts=first)
    async with listening(server, intake):
        await until(lambda: len(intake.taken) == 2)
    assert intake.taken[1].text == "in its thread"
    assert intake.taken[1].chat == chat(hall, first)


@pytest.mark.contract("10.55")
async def test_missed_messages_are_read_despite_rate_limits_and_closed_channels(
    server: SlackServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adapter, "MIN_RETRY_SECONDS", 0.01)
    hall, ann, intake = server.channel(), server.person("Ann"), RecordingIntake()
    async with listening(server, intake):
        server.say(ann.dm, "one", ann)
        server.say(hall, f"{ME} hello", ann)
        await until(lambda: len(intake.taken) == 2)
    for number in range(120):
        server.say(ann.dm, f"later {number}", ann)
    pages = [0]

    def limit(method: str) -> None:
        pages[0] += method == "conversations.history"
        if method == "conversations.history" and pages[0] % 2:
            server.refuse(method, "ratelimited", status=429, retry_after=1)

    server.on_call = limit
    server.refuse("conversations.history", "team_access_not_granted")
    async with listening(server, intake):
        await until(lambda: len(intake.taken) == 122)
    assert intake.texts[2:] == [f"later {number}" for number in range(120)]
    assert pages[0] < 12, "no page is read twice"


@pytest.mark.contract("2.1")
async def test_event_is_acknowledged_only_after_it_is_stored(
    server: SlackServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adapter, "MIN_RETRY_SECONDS", 0.01)
    ann, intake = server.person("Ann"), RecordingIntake(busy=2)
    acknowledged_when_refused: list[int] = []
    receive = intake.receive

    async def watched(message: Inbound) -> None:
        acknowledged_when_refused.append(len(server.acknowledged))
        await receive(message)

    intake.receive = watched  # type: ignore[method-assign]
    async with listening(server, intake):
        server.say(ann.dm, "one", ann)
        server.redeliver()
        await until(lambda: len(server.acknowledged) == 2)
    assert acknowledged_when_refused[:3] == [0, 0, 0]
    assert intake.texts == ["one"]


async def test_renewed_and_cut_connections_are_reopened(server: SlackServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adapter, "PING_SECONDS", 0.2)
    ann, intake = server.person("Ann"), RecordingIntake()
    async with listening(server, intake):
        server.say(ann.dm, "one", ann)
        await until(lambda: intake.taken)
        server.ask_to_reconnect()
        await until(lambda: server.connections == 2 and server.is_connected())
        server.say(ann.dm, "two", ann)
        await until(lambda: len(intake.taken) == 2)
        server.cut()
        server.say(ann.dm, "three", ann)
        await until(lambda: len(intake.taken) == 3)
        server.answers_pings = False
        await until(lambda: server.connections >= 4)
        server.answers_pings = True
        server.say(ann.dm, "four", ann)
        await until(lambda: len(intake.taken) == 4)
    assert intake.texts == ["one", "two", "three", "four"]


async def test_expired_address_is_requested_again(server: SlackServer, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, seconds in (("PING_SECONDS", 0.1), ("WATCH_SECONDS", 0.1), ("LONG_LOSS_SECONDS", 0.5)):
        monkeypatch.setattr(adapter, name, seconds)
    ann, intake = server.person("Ann"), RecordingIntake()
    async with listening(server, intake):
        server.say(ann.dm, "one", ann)
        await until(lambda: intake.taken)
        server.accepts_address = False
        asked = server.calls.count(("POST", "apps.connections.open"))
        server.cut()
        await until(lambda: server.calls.count(("POST", "apps.connections.open")) > asked)
        server.accepts_address = True
        server.say(ann.dm, "two", ann)
        await until(lambda: len(intake.taken) == 2)
    assert intake.texts == ["one", "two"]


@pytest.mark.contract("2.5")
async def test_message_is_found_again_by_its_key(server: SlackServer) -> None:
    ann, hall, intake = server.person("Ann"), server.channel(), RecordingIntake()
    first = server.say(hall, "a topic", ann)
    async with listening(server, intake) as bot:
        since = SystemClock().now()
        for where in (chat(ann.dm), chat(hall), chat(hall, first)):
            await bot.send(where, "hello", "reply:5:0")
            await bot.send(where, "hello")
            assert await bot.was_sent(where, "reply:5:0", since)
            assert not await bot.was_sent(where, "reply:6:0", since)
            assert not await bot.was_sent(where, "reply:5:0", since + 3600)
        server.refuse("conversations.history", "missing_scope")
        assert not await bot.was_sent(chat(ann.dm), "reply:5:0", since)
        server.refuse("conversations.history", "fatal_error")
        with pytest.raises(SendLater, match="fatal_error"):
            await bot.was_sent(chat(ann.dm), "reply:5:0", since)


async def test_reply_goes_to_its_thread_and_is_streamed_by_edits(server: SlackServer) -> None:
    ann, hall, intake = server.person("Ann"), server.channel(), RecordingIntake()
    first = server.say(hall, "a thread", ann)
    async with listening(server, intake) as bot:
        ts = await bot.send(chat(hall, first), "**hel**")
        await bot.edit(chat(hall, first), ts, "**hello**")
        assert server.texts(hall, first) == ["*hello*"]
        server.delete_message(hall, "*hello*")
        with pytest.raises(MessageGone):
            await bot.edit(chat(hall, first), ts, "hello!")


async def test_send_errors_are_classified(server: SlackServer) -> None:
    ann, hall, intake = server.person("Ann"), server.channel(), RecordingIntake()
    async with listening(server, intake) as bot:
        server.remove(hall)
        with pytest.raises(SendNever, match="channel_not_found"):
            await bot.send(chat(hall), "hello")
        server.refuse("chat.postMessage", "ratelimited", status=429, retry_after=17)
        with pytest.raises(SendLater) as later:
            await bot.send(chat(ann.dm), "hello")
        assert later.value.wait == 17
        server.refuse("chat.postMessage", "token_revoked")
        with pytest.raises(SendLater, match=r"slack\.bot_token"):
            await bot.send(chat(ann.dm), "hello")
        server.refuse("chat.postMessage", "fatal_error")
        with pytest.raises(SendLater, match="fatal_error"):
            await bot.send(chat(ann.dm), "hello")
        for content_type in ("text/html", "text/plain", "application/json"):
            server.refuse("chat.postMessage", "", status=502, text="<h1>Bad Gateway", content_type=content_type)
            with pytest.raises(SendLater, match="HTTP 502"):
                await bot.send(chat(ann.dm), "hello")


@pytest.mark.parametrize(("bot_token", "app_token"), [("xoxb-wrong", APP_TOKEN), (BOT_TOKEN, "xapp-wrong")])
async def test_wrong_token_is_reported_and_retried(
    server: SlackServer, bot_token: str, app_token: str, caplog: pytest.LogCaptureFixture
) -> None:
    intake = RecordingIntake()
    bot = Slack(SlackOptions(bot_token, app_token, server.base_url), SystemClock())
    with caplog.at_level(logging.DEBUG):
        task = asyncio.create_task(bot.run(intake))
        await until(lambda: intake.reports)
        task.cancel()
        await asyncio.wait({task})
        await bot.close()
    [(state, detail)] = intake.reports
    assert state == "failing"
    assert "slack.app_token" in detail
    assert bot_token not in caplog.text + detail
    assert app_token not in caplog.text + detail


def test_app_token_is_required() -> None:
    with pytest.raises(SettingsError, match=r"slack\.app_token"):
        Slack(SlackOptions(BOT_TOKEN, "", "http://127.0.0.1:9"), SystemClock())


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("**bold** and *italic* ~~gone~~ `a<b`", "*bold* and _italic_ ~gone~ `a&lt;b`"),
        ("# Title\ntext", "*Title*\ntext"),
        ("[page](https://a.b/?x=1&y=2)", "<https://a.b/?x=1&amp;y=2|page>"),
        ("> so\n> and so", "> so\n> and so"),
        ("```py\nif a < b:\n    pass\n```", "```\nif a &lt; b:\n    pass\n```"),
        ("- one\n- **two**", "• one\n• *two*"),
        ("<!channel> <@U1>", "&lt;!channel&gt; &lt;@U1&gt;"),
        ("| a | b |\n|---|---|\n| 1 | 2 |", "```\n| a | b |\n|---|---|\n| 1 | 2 |\n```"),
    ],
)
def test_markdown_becomes_mrkdwn(given: str, shown: str) -> None:
    assert to_mrkdwn(given) == shown


def test_mrkdwn_of_people_becomes_plain_text() -> None:
    given = "&lt;b&gt; <@U1> <@U2|bob> <mailto:a@b.c|a@b.c> <!subteam^S1|@team> <!date^1^{date}|today>"
    assert to_plain(given, {"U1": "Ann"}) == "<b> @Ann @bob a@b.c @team today"
