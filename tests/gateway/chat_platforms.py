"""Discord and Slack on loopback with one interface, and a common channel on all platforms."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Literal

from tests.gateway import bot_api, discord_server, slack_server
from tests.gateway.bot_api import TOKEN, BotApi, Place
from tests.gateway.discord_server import DiscordServer
from tests.gateway.slack_server import SlackServer

PlatformName = Literal["discord", "slack"]
HallName = Literal["discord", "slack", "telegram"]


@dataclass
class ChatPlatform:
    """One platform, with two people who write to its bot."""

    name: PlatformName
    settings: dict[str, object]
    server: DiscordServer | SlackServer
    people: list[discord_server.Person | slack_server.Person]
    hall: discord_server.Channel | slack_server.Channel

    def say(self, number: int, text: str) -> None:
        """A person writes to the bot directly."""
        person = self.people[number]
        self.server.say(person.dm, text, person)  # type: ignore[arg-type]

    def say_in_hall(self, number: int, text: str) -> None:
        """A person speaks to the bot in the common channel."""
        self.server.say(self.hall, f"<@{self.bot_id}> {text}", self.people[number])  # type: ignore[arg-type]

    def call_out(self, number: int, text: str) -> None:
        """A person speaks in the common channel without naming anybody."""
        self.server.say(self.hall, text, self.people[number])  # type: ignore[arg-type]

    def replay(self) -> None:
        """Deliver all messages again, as after a lost connection."""
        for where in (self.hall, *(person.dm for person in self.people)):
            for message in list(self.server._messages.get(where.id, ())):  # type: ignore[arg-type]
                if isinstance(self.server, DiscordServer):
                    self.server.emit("MESSAGE_CREATE", message)
                else:
                    self.server.emit({**message, "channel": where.id, "channel_type": where.kind})

    def texts(self, number: int) -> list[str]:
        """Return the bot's messages to a person."""
        return self.server.texts(self.people[number].dm)  # type: ignore[arg-type]

    def key(self, number: int) -> str:
        """The session key of a person's direct chat."""
        return f"agent:main:{self.name}:dm:{self.people[number].dm.id}"

    def add_agent(self, name: str) -> tuple[str, dict[str, object]]:
        """Add a bot; return its id and the settings of its gateway."""
        if isinstance(self.server, DiscordServer):
            bot = self.server.add_bot(name)
            return str(bot.id), {**self.settings, "discord.token": bot.token}
        app = self.server.add_bot(name)
        return app.user_id, {**self.settings, "slack.bot_token": app.token, "slack.app_token": app.app_token}

    def texts_in_hall(self, bot_id: str) -> list[str]:
        """Return a bot's messages in the common channel."""
        if isinstance(self.server, DiscordServer):
            return self.server.texts(self.hall, int(bot_id))  # type: ignore[arg-type]
        return self.server.texts(self.hall, user_id=bot_id)  # type: ignore[arg-type]

    def heard_in_hall(self, bot_id: str) -> list[str]:
        """Return the messages in the common channel that are neither commands nor the bot's own."""
        with self.server.changed:
            said = list(self.server.messages_of(self.hall.id))  # type: ignore[arg-type]
        return [text for author, text in said if text[:1] != "/" and author != bot_id]

    def on_call(self, callback: Callable[[], None]) -> None:
        """Register a callback that runs before the effect of each HTTP request of the bot."""
        self.server.on_call = lambda *_: callback()

    def after_call(self, callback: Callable[[], None]) -> None:
        """Register a callback that runs after the effect of each HTTP request of the bot, before its response."""
        self.server.after_call = lambda *_: callback()

    @property
    def bot_id(self) -> str:
        return str(discord_server.BOT_ID) if self.name == "discord" else slack_server.BOT_USER


class TelegramGroup:
    """A Telegram group as its bots see it: bots do not see messages of other bots."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._bots: dict[str, tuple[BotApi, Place]] = {}
        self._said: list[str] = []

    def add_agent(self, name: str) -> tuple[str, dict[str, object]]:
        """Add a bot to the group; return its id and the settings of its gateway."""
        api = self._stack.enter_context(BotApi())
        self._bots[name] = api, api.group("hall")
        return name, {"telegram.token": TOKEN, "telegram.base_url": api.base_url}

    def call_out(self, number: int, text: str) -> None:
        """A person speaks without naming anybody."""
        self._said.append(text)
        for api, group in self._bots.values():
            api.say(group, text, bot_api.Person(number + 1, ("Ann", "Bob")[number]))

    def heard_in_hall(self, _: str) -> list[str]:
        """Return the messages of people, without commands."""
        return [text for text in self._said if text[:1] != "/"]

    def texts_in_hall(self, bot_id: str) -> list[str]:
        """Return a bot's messages in the group."""
        api, group = self._bots[bot_id]
        return api.texts(group.id)


@contextmanager
def one_hall(name: HallName) -> Iterator[ChatPlatform | TelegramGroup]:
    """Yield a common channel of people and bots."""
    with ExitStack() as stack:
        yield TelegramGroup(stack) if name == "telegram" else stack.enter_context(running(name))


@contextmanager
def running(name: PlatformName, *, ids: tuple[int | None, int | None] = (None, None)) -> Iterator[ChatPlatform]:
    """Yield a running platform."""
    if name == "discord":
        with DiscordServer() as discord:
            settings = {"discord.token": discord_server.TOKEN, "discord.base_url": discord.base_url}
            people = [discord.person(one, user_id=user_id) for one, user_id in zip(("Ann", "Bob"), ids, strict=True)]
            yield ChatPlatform(name, dict(settings), discord, list(people), discord.channel("hall"))
    else:
        with SlackServer() as slack:
            tokens = {"slack.bot_token": slack_server.BOT_TOKEN, "slack.app_token": slack_server.APP_TOKEN}
            named = [None if user_id is None else str(user_id) for user_id in ids]
            members = [slack.person(one, user_id=user_id) for one, user_id in zip(("Ann", "Bob"), named, strict=True)]
            yield ChatPlatform(
                name, {**tokens, "slack.base_url": slack.base_url}, slack, list(members), slack.channel()
            )
