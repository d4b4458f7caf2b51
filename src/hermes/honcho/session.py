"""One conversation's memory at Honcho: its recall, its tools, and the reach of both."""

from __future__ import annotations

from hermes.honcho import keys
from hermes.honcho.addresses import EntryTarget, peer_in
from hermes.honcho.configuration import HonchoConfiguration
from hermes.honcho.context_views import Whose
from hermes.honcho.injection_log import InjectionLog
from hermes.honcho.links import Links
from hermes.honcho.recall import Recaller
from hermes.honcho.recall_reader import RecallReader
from hermes.honcho.recall_source import RecallSource
from hermes.honcho.tools import Tools, tool_specs
from hermes.memory.provider import (
    Address,
    Conversation,
    Ending,
    Host,
    MemorySession,
    Question,
    Reach,
    Recalled,
    Speaker,
    ToolUse,
)

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
