"""One conversation's memory at Honcho: its recall, its tools, and the reach of both.

The five tools of a conversation: their descriptions for the model, and their implementation.

Their reach is the conversation's, regardless of the speaker and of the model's arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, cast

from hermes.errors import ProviderError
from hermes.fence import strip_fences
from hermes.honcho import keys
from hermes.honcho.addresses import EntryTarget, peer_in
from hermes.honcho.conclusions import Act, Conclude, Remove, Whom, encode_act
from hermes.honcho.configuration import HonchoConfiguration
from hermes.honcho.context_views import Whose
from hermes.honcho.injection import (
    CHARS_PER_TOKEN,
    DEFAULT_TOKENS,
    InjectionLog,
    Section,
    budget_chars,
    compose,
    cut_at_word,
)
from hermes.honcho.keys import LEVELS
from hermes.honcho.links import Links
from hermes.honcho.recall import Recaller
from hermes.honcho.recall_reader import RecalledConclusion, RecalledMessage, RecallReader
from hermes.honcho.recall_source import RecallSource
from hermes.memory.provider import (
    Address,
    Conversation,
    DeadLetter,
    Delivered,
    Ending,
    Host,
    MemorySession,
    Question,
    Reach,
    Recalled,
    Speaker,
    ToolUse,
)
from hermes.types import Json, ToolSpec

MIN_SEARCH_TOKENS, DEFAULT_SEARCH_TOKENS, MAX_SEARCH_TOKENS = 50, 800, 2000
MAX_SEARCH_HITS = 20
"""Conclusions, and messages, that a search requests."""
MAX_CONCLUSION_CHARS = 8000
DELIVERY_WAIT_SECONDS = 2.0
"""How long a call waits for a conclusion's delivery; the conclusion is saved either way."""
QUEUED = "Saved. {} is queued and will reach the memory server as soon as it answers."
MAX_NEWEST_MESSAGES = 10
"""Messages of the session at the end of a `honcho_context` result."""
NOT_HERE = (
    "cards say nothing of where they come from, so they are not shown here; honcho_context has what was said in this "
    "conversation"
)


def tool_specs(config: HonchoConfiguration) -> tuple[ToolSpec, ...]:
    level = {
        "level": {
            "type": "string",
            "enum": list(LEVELS),
            "description": "How hard to think: minimal is fastest. Leave it out for the usual level.",
        }
    }
    return (
        _spec("honcho_profile", "Read the short card of key facts about a person. Fast. Use it to see who they are."),
        _spec(
            "honcho_search",
            "Search all earlier conversations, and everything remembered about a person, for words or a topic. Fast. "
            "Returns facts, each with its id, and what was said.",
            {
                "query": {"type": "string", "description": "What to look for, for example: birthday."},
                "max_tokens": {
                    "type": "integer",
                    "description": f"Length of the result, {DEFAULT_SEARCH_TOKENS} unless given, at most "
                    f"{MAX_SEARCH_TOKENS}.",
                },
            },
            ("query",),
        ),
        _spec(
            "honcho_context",
            "Get all that is known for this conversation: its summary, what is known about the person, their card, and "
            "the newest messages.",
        ),
        _spec(
            "honcho_reasoning",
            "Ask a question about a person that needs thinking over what is remembered, such as why or what they would "
            "prefer. Slow: use honcho_search for plain facts.",
            {
                "query": {"type": "string", "description": "The question, as a whole sentence."},
                **(level if config.get(keys.DIALECTIC_DYNAMIC) else {}),
            },
            ("query",),
        ),
        _spec(
            "honcho_conclude",
            "Remember a fact for good: call it whenever the person asks you to remember, note or keep something in "
            "mind, or tells a lasting fact. It also finds, lists and deletes facts by their ids. Give exactly one of "
            "conclusion, delete_id, query and list.",
            {
                "conclusion": {
                    "type": "string",
                    "description": "The fact, as one sentence that stands alone, for example: Prefers tea to coffee.",
                },
                "delete_id": {"type": "string", "description": "The id of a fact to delete."},
                "query": {"type": "string", "description": "Find facts, each with its id, for example: tea."},
                "list": {"type": "boolean", "description": "true lists the newest facts, each with its id."},
            },
        ),
    )


def _spec(
    name: str, description: str, properties: Mapping[str, Json] | None = None, required: Sequence[str] = ()
) -> ToolSpec:
    peer = {
        "type": "string",
        "enum": ["user", "ai"],
        "description": "About whom: user (the person, the default) or ai (yourself).",
    }
    parameters = {"type": "object", "properties": {**(properties or {}), "peer": peer}, "required": list(required)}
    return ToolSpec(name, description, parameters)


class Tools:
    """Runs the tools of one conversation. Failures raise ProviderError with a readable message."""

    def __init__(
        self, host: Host, source: RecallSource, config: HonchoConfiguration, conversation: Conversation
    ) -> None:
        self._host = host
        self._source = source
        self._config = config
        self._conversation = conversation
        self._runs: dict[str, Callable[[ToolUse, Speaker, Whom], Coroutine[Any, Any, str]]] = {
            "honcho_profile": self._profile,
            "honcho_search": self._search,
            "honcho_context": self._context,
            "honcho_reasoning": self._reason,
            "honcho_conclude": self._conclude,
        }

    async def call(self, use: ToolUse, speaker: Speaker) -> str:
        """Run a tool and return its result for the model."""
        about = use.arguments.get("peer") or "user"
        if about not in ("user", "ai"):
            raise ProviderError(f"peer is {about!r}; it can be user or ai", hint="")
        return await self._runs[use.name](use, speaker, cast(Whom, about))

    async def _profile(self, use: ToolUse, speaker: Speaker, about: Whom) -> str:  # noqa: ARG002
        whose = self._source.whose
        if whose.reach == "here" or (about == "ai" and whose.reach != "everything"):
            raise ProviderError(NOT_HERE, hint="")
        peer = self._peer(speaker, about)
        return "\n".join(await self._source.card(peer)) or f"There is no card of {peer} yet."

    async def _search(self, use: ToolUse, speaker: Speaker, about: Whom) -> str:
        query, peer = _needed(use, "query"), self._peer(speaker, about)
        limit = _tokens(use.arguments.get("max_tokens")) * CHARS_PER_TOKEN
        facts = _name_facts(await self._source.find_conclusions(query, peer, MAX_SEARCH_HITS))
        said = [_quote(message) for message in await self._source.find_messages(query, peer, MAX_SEARCH_HITS)]
        lines = [*(["Facts:", *facts] if facts else []), *(["Said:", *said] if said else [])]
        return cut_at_word("\n".join(lines), limit) or f"Nothing about {peer} fits {query!r}."

    async def _context(self, use: ToolUse, speaker: Speaker, about: Whom) -> str:  # noqa: ARG002
        tokens = self._config.get(keys.CONTEXT_TOKENS) or DEFAULT_TOKENS
        peer, source = self._peer(speaker, about), self._source
        found = await (source.about_agent() if about == "ai" else source.about(peer, tokens))
        newest = "\n".join(map(_quote, await source.newest_messages(MAX_NEWEST_MESSAGES)))
        messages = [Section("messages", "Newest messages", newest, source.reader.now())] if newest else []
        parts = compose([*found, *messages], budget_chars(tokens))
        return "\n\n".join(part.text for part in parts if part.text) or f"Nothing is known about {peer} yet."

    async def _reason(self, use: ToolUse, speaker: Speaker, about: Whom) -> str:
        query = _needed(use, "query")
        level = use.arguments.get("level")
        if level is None or not self._config.get(keys.DIALECTIC_DYNAMIC):
            level = self._config.get(keys.DIALECTIC_REASONING_LEVEL)
        if level not in LEVELS:
            raise ProviderError(f"level is {level!r}; it can be {', '.join(LEVELS)}", hint="")
        asked = cut_at_word(query, self._config.get(keys.DIALECTIC_MAX_INPUT_CHARS))
        peer = self._peer(speaker, about)
        answer = await self._source.answer(asked, level, peer, in_session=False)
        if answer is None and self._source.whose.has_own_view(peer):
            answer = await self._source.answer(asked, level, peer, in_session=False, own="alone")
        return answer or f"Memory holds nothing about {peer} that answers this."

    async def _conclude(self, use: ToolUse, speaker: Speaker, about: Whom) -> str:
        fact, old = use.arguments.get("conclusion"), use.arguments.get("delete_id")
        query, lists = use.arguments.get("query"), use.arguments.get("list") is True
        fact = strip_fences(fact).strip() if isinstance(fact, str) else fact
        if sum(map(bool, (fact, old, query, lists))) != 1 or not isinstance(fact or old or query or "", str):
            raise ProviderError("give one of conclusion, delete_id and query, as text, or list", hint="")
        if query or lists:
            return await self._list_facts(str(query or ""), self._peer(speaker, about))
        if fact and len(fact) > MAX_CONCLUSION_CHARS:
            raise ProviderError(f"a conclusion has at most {MAX_CONCLUSION_CHARS:,} characters", hint="")
        peer = self._peer(speaker, about)
        same = await self._source.find_same(str(old), peer) if old else []
        if old and not same:
            raise ProviderError(f"there is no fact {old!r} about {peer} that can be deleted here", hint="")
        acts = [Conclude(fact, about)] if fact else [Remove(one) for one in same]
        match await self._put(use, acts, self._conversation.person or speaker):
            case Delivered(note):
                return "Deleted." if old else f"Saved, and in memory now (id {note})." if note else "Saved."
            case DeadLetter(reason):
                raise ProviderError(f"the server refused it: {reason}", hint="")
            case _:
                return QUEUED.format("The deletion" if old else "It")

    async def _list_facts(self, query: str, peer: str) -> str:
        source = self._source
        find = (
            source.find_conclusions(query, peer, MAX_SEARCH_HITS)
            if query
            else source.list_conclusions(peer, MAX_SEARCH_HITS)
        )
        facts = "\n".join(_name_facts(await find))
        fits = f" that fits {query!r}" if query else ""
        return cut_at_word(facts, MAX_SEARCH_TOKENS * CHARS_PER_TOKEN) or f"There is no fact about {peer}{fits}."

    async def _put(self, use: ToolUse, acts: Sequence[Act], person: Speaker) -> Delivered | DeadLetter | None:
        """Queue the acts, then wait for their delivery; return the first outcome that is not Delivered, else the
        last."""
        names = [use.key, *(f"{use.key}-{number}" for number in range(1, len(acts)))]
        session = self._conversation.session_id
        tickets = [
            await self._host.put(session, key, encode_act(act), person) for key, act in zip(names, acts, strict=True)
        ]
        until = min(use.until - 1.0, self._host.clock.now() + DELIVERY_WAIT_SECONDS)
        done: Delivered | DeadLetter | None = None
        for ticket in tickets:
            done = await self._host.outcome(ticket, until)
            if not isinstance(done, Delivered):
                break
        return done

    def _peer(self, speaker: Speaker, about: Whom) -> str:
        """Return the peer that a call is about: in a direct chat its person, in a group the speaker."""
        return self._source.whose.ai if about == "ai" else peer_in(self._config, self._conversation, speaker).name


def _name_facts(found: Sequence[RecalledConclusion]) -> list[str]:
    return [f"- {one.content} (id {one.id})" for one in found]


def _quote(message: RecalledMessage) -> str:
    return f"- [{message.created_at[:10]}] {message.peer_id}: {' '.join(message.content.split())}"


def _needed(use: ToolUse, name: str) -> str:
    value = use.arguments.get(name)
    if not isinstance(value, str) or not value.strip():
        raise ProviderError(f"{use.name} needs {name}, as text", hint="")
    return value.strip()


def _tokens(given: object) -> int:
    """Return the length of a search's result: the given number within bounds, or the default."""
    if isinstance(given, str) and given.strip().isdecimal():
        given = int(given[:9])
    return max(MIN_SEARCH_TOKENS, min(given, MAX_SEARCH_TOKENS)) if type(given) is int else DEFAULT_SEARCH_TOKENS


INJECTED = (
    "What you remember of earlier conversations is put before you with the person's message, as background data. Use "
    "it when it helps; do not recite it. Where it says different things, the latest holds, and what the person says "
    "now holds over it. What nobody told you about the person you do not know: say so, and guess nothing."
)
WHO = " In it, {person} is the person who talks to you, and {agent} is you."
BY_TOOLS = "You remember earlier conversations. Nothing of it is put before you unasked."
WITH_TOOLS = (
    "Look things up with `honcho_profile`, `honcho_search`, `honcho_context` and `honcho_reasoning`; keep a lasting "
    "fact with `honcho_conclude`."
)
BLOCKS = {
    "hybrid": f"## Memory\n{INJECTED} {WITH_TOOLS}",
    "context": f"## Memory\n{INJECTED}",
    "tools": f"## Memory\n{BY_TOOLS} {WITH_TOOLS}",
}


class HonchoSession(MemorySession):
    """See `hermes.memory.provider.MemorySession`. Settings are fixed when it is opened."""

    def __init__(
        self,
        host: Host,
        links: Links,
        config: HonchoConfiguration,
        conversation: Conversation,
        address: Address,
    ) -> None:
        self._clock = host.clock
        self._config = config
        self._conversation = conversation
        target = EntryTarget.from_json(address.data)
        reader = RecallReader(links, host.clock.now, target.workspace)
        source = RecallSource(reader, find_whose(config, conversation, target, host.owner_name))
        mode = config.get(keys.RECALL_MODE) if config.get(keys.ENABLED) is not False else None
        person = peer_in(config, conversation).name
        is_owner = conversation.person is not None and conversation.person.is_owner
        called = f"{person} ({host.owner_name})" if is_owner and host.owner_name else person
        who = "" if conversation.person is None else WHO.format(person=called, agent=target.ai_peer)
        self.prompt_block = "" if mode is None else BLOCKS[mode] + who
        self.block_without_tools = BLOCKS["context"] + who if mode == "hybrid" else None
        self.tools = tool_specs(config) if mode in ("hybrid", "tools") else ()
        self._tools = Tools(host, source, config, conversation)
        self._recaller = (
            Recaller(source, config, host.ask_model, is_new=conversation.bound is None)
            if mode in ("hybrid", "context")
            else None
        )
        self._log = InjectionLog.at(host, target, conversation.session_id) if config.get(keys.LOGGING) else None

    async def prepare(self, question: Question | None) -> None:
        if self._recaller is not None:
            await self._recaller.prepare(question, None if question is None else self._about(question))

    async def recall(self, question: Question) -> Recalled:
        if self._recaller is None:
            return Recalled()
        recalled = await self._recaller.recall(question, self._about(question), question.until - self._clock.now())
        if self._log is not None:
            self._log.write(question.turn, recalled)
        return recalled

    async def call_tool(self, use: ToolUse, speaker: Speaker) -> str:
        return await self._tools.call(use, speaker)

    async def close(self, why: Ending, until: float) -> None:  # noqa: ARG002
        if self._recaller is not None:
            await self._recaller.close()

    def _about(self, question: Question) -> str | None:
        """Return the person that a question is about: of a direct chat its person, of a group the last speaker."""
        return peer_in(self._config, self._conversation, question.said[-1].speaker if question.said else None).name


def find_whose(
    config: HonchoConfiguration, conversation: Conversation, target: EntryTarget, owner_name: str = ""
) -> Whose:
    """Return a conversation's participants and its reach. A person with a shared peer reads only the conversation
    itself."""
    person = peer_in(config, conversation)
    reach: Reach = "here" if person.is_shared else conversation.reach
    return Whose(
        target.session or "",
        target.ai_peer,
        reach,
        None if reach == "here" else person.name,
        config.observation["ai"]["observeOthers"],
        config.observation["ai"]["observeMe"],
        person.name if conversation.reach == "own" else None,
        config.agents,
        owner_name if conversation.person is not None and conversation.person.is_owner else "",
    )
