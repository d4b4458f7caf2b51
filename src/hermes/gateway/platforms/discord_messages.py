"""Translates Discord messages into messages for the gateway.

Markdown for Discord: rewrites tables, deep headings, rules and images.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from msgspec import Struct

from hermes.gateway.platform import Chat, Inbound
from hermes.gateway.platforms.text import FENCE, RULE, TABLE_RULE, as_quote, first_name_of, shorten, well_formed

if TYPE_CHECKING:
    import discord

NAME = "discord"
MAX_ATTACHMENTS_NAMED = 5
COMMAND = re.compile(r"/\w+(?=\s|$)")


class MessageReader(Struct, frozen=True):
    """Translates messages for one bot. With `mentions_only`, only messages to the bot are accepted in servers."""

    bot_id: int
    mentions_only: bool
    agents: frozenset[str] = frozenset()
    """Ids of other bots whose messages in channels are accepted."""

    def read(self, message: discord.Message, *, edited: bool = False) -> Inbound | None:
        """Return the message for the gateway; None for messages of bots, of the system, or to somebody else."""
        if message.webhook_id is not None or message.is_system() or not self._accepts(message):
            return None
        if edited and message.author.bot:  # a streamed reply
            return None
        text = self._agent_text(message, edited=edited)
        if text is None:
            return None
        version = f".{message.edited_at.timestamp():.3f}" if edited and message.edited_at is not None else ""
        author = message.author
        return Inbound(
            chat=chat_of(message),
            message_id=f"{message.id}{version}",
            text=text,
            author_id=f"{author.id}",
            author_name=first_name_of(author.display_name, author.name, default=str(author.id)),
            author_alt=well_formed(author.name) or None,
            author_is_agent=author.bot,
        )

    def _accepts(self, message: discord.Message) -> bool:
        """Return True for people, and for the accepted agents in channels."""
        author = message.author
        is_heard = str(author.id) in self.agents and author.id != self.bot_id and not is_direct(message)
        return is_heard or not author.bot

    def _agent_text(self, message: discord.Message, *, edited: bool) -> str | None:
        """Return the text for the agent; None if it is not addressed to the bot."""
        if not is_direct(message) and self.mentions_only and not self._is_addressed(message):
            return None
        text = self._readable(message)
        if COMMAND.match(text) and not edited:
            return "/help" if re.fullmatch(r"/start(\s.*)?", text, re.DOTALL) else text
        attached = "" if edited else _describe_attachments(message)
        if not text and not attached and not message.message_snapshots:
            return None
        said = f"(edited) {text}" if edited else text
        parts = [_quote_replied(message), *_forwarded(message), attached, said]
        return "\n\n".join(part for part in parts if part)

    def _is_addressed(self, message: discord.Message) -> bool:
        replied = _replied_to(message)
        to_us = replied is not None and replied.author.id == self.bot_id
        return to_us or self._mention.search(message.content) is not None

    def _readable(self, message: discord.Message) -> str:
        """Return the text without the bot's mention, and with names in place of ids."""
        bare = self._mention.sub("", message.content).strip() or message.content
        names = {f"<@{one.id}>": f"@{one.display_name}" for one in message.mentions}
        names |= {f"<@!{one.id}>": f"@{one.display_name}" for one in message.mentions}
        names |= {f"<#{one.id}>": f"#{one.name}" for one in message.channel_mentions}
        names |= {f"<@&{one.id}>": f"@{one.name}" for one in message.role_mentions}
        return well_formed(re.sub(r"<(?:@[!&]?|#)\d+>", lambda found: names.get(found[0], found[0]), bare))

    @property
    def _mention(self) -> re.Pattern[str]:
        return re.compile(rf"(?:,?[ \t]+)?<@!?{self.bot_id}>[,:]?")


def chat_of(message: discord.Message) -> Chat:
    """Return the chat of a message. A thread belongs to its channel."""
    channel = message.channel
    if is_direct(message):
        return Chat(NAME, "dm", f"{channel.id}")
    parent = getattr(channel, "parent_id", None)
    return Chat(NAME, "group", f"{parent or channel.id}", f"{channel.id}" if parent else None)


def is_direct(message: discord.Message) -> bool:
    """Return True for a direct chat. A channel of a server that is not known yet has only the server's id."""
    return message.guild is None and getattr(message.channel, "guild_id", None) is None


def _replied_to(message: discord.Message) -> discord.Message | None:
    from discord import Message

    resolved = message.reference.resolved if message.reference is not None else None
    return resolved if isinstance(resolved, Message) else None


def _quote_replied(message: discord.Message) -> str:
    replied = _replied_to(message)
    if replied is None:
        return ""
    text = well_formed(replied.clean_content)
    return as_quote(shorten(text)) if text else as_quote(_describe_attachments(replied))


def _forwarded(message: discord.Message) -> list[str]:
    """Return forwarded text as a quote, because others wrote it."""
    return [f"(forwarded)\n\n{as_quote(well_formed(one.content))}" for one in message.message_snapshots if one.content]


def _describe_attachments(message: discord.Message) -> str:
    """Return a description of attachments, because only text can be read here."""
    names = [f"“{one.filename}”" for one in message.attachments[:MAX_ATTACHMENTS_NAMED]]
    more = len(message.attachments) - len(names)
    listed = ", ".join(names) + (f" and {more} more" if more > 0 else "")
    what = "a file" if len(message.attachments) == 1 else "files"
    files = [f"[{what} {well_formed(listed)}, which cannot be opened here]"] if names else []
    stickers = [f"[a sticker “{well_formed(one.name)}”]" for one in message.stickers[:1]]
    polls = [f"[a poll: {well_formed(str(message.poll.question))}]"] if message.poll is not None else []
    return "\n".join(files + stickers + polls)


DEEP_HEADING = re.compile(r"\s{0,3}#{4,6}\s+(?P<text>.*?)\s*#*\s*")
IMAGE = re.compile(r"!\[(?P<shown>[^\]\n]{0,200})\]\((?P<address>[^)\s]{1,2000})\)")


def render(markdown: str) -> str:
    """Return the text with elements that Discord cannot show rewritten. Never fails."""
    lines, made, number = markdown.split("\n"), [], 0
    while number < len(lines):
        end = _end_of_block(lines, number)
        block = lines[number:end]
        if _begins_table(lines, number):
            block = ["```", *block, "```"]
        elif end == number + 1:
            block = [_render_line(lines[number])]
        made += block
        number = end
    return "\n".join(made)


def _end_of_block(lines: list[str], number: int) -> int:
    """Return the number of the line after the block of code, the table or the line that begins here."""
    if (fence := FENCE.fullmatch(lines[number])) is not None:
        closing = re.compile(rf"\s*{re.escape(fence['mark'][0])}{{{len(fence['mark'])},}}\s*")
        return next((n + 1 for n in range(number + 1, len(lines)) if closing.fullmatch(lines[n])), len(lines))
    if _begins_table(lines, number):
        return next((n for n in range(number + 2, len(lines)) if "|" not in lines[n]), len(lines))
    return number + 1


def _begins_table(lines: list[str], number: int) -> bool:
    return "|" in lines[number] and number + 1 < len(lines) and TABLE_RULE.fullmatch(lines[number + 1]) is not None


def _render_line(line: str) -> str:
    if (heading := DEEP_HEADING.fullmatch(line)) is not None:
        return f"**{heading['text']}**" if heading["text"] else ""
    if RULE.fullmatch(line) is not None:
        return "———"
    return IMAGE.sub(lambda found: f"[{found['shown'] or found['address']}]({found['address']})", line)
