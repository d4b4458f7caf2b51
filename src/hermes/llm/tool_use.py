"""Tool ability of models: a short self-test, run once per endpoint and model, and its stored verdicts.

A small model that is offered tools answers worse than without them: it invents arguments, or writes calls as text. So
a model is offered tools only after it has looked something up and used the result. If the endpoint fails, there is no
verdict, and the test is run again.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from contextlib import aclosing, suppress
from typing import Literal, Protocol, TypeAlias

from msgspec import Struct

from hermes.clock import Clock
from hermes.errors import ModelError
from hermes.llm.assemble import mapping, string
from hermes.llm.events import Completed, ModelFailed, Reply
from hermes.llm.model import Model, ModelRequest
from hermes.types import Json, ToolCall, ToolSpec

ToolSwitch: TypeAlias = Literal["auto", "on", "off"]
SELF_TEST_TIMEOUT_SECONDS = 120.0
"""Limits the whole test; a test that takes longer gives no verdict."""
TURN_WAIT_SECONDS = 8.0
"""How long a turn waits for the test that it started; then it continues without tools."""
MAX_SELF_TEST_REQUESTS = 3
MAX_REPLY_TOKENS = 400
PHONE_NUMBER = "555-0142"
NO_TOOLS_NOTICE = (
    "{name} is offered no tools: {why}. It answers from what is recalled for it, and notes are kept for it. "
    "`hermes model --test` tests it again; `hermes config set model.tools on` offers them all the same."
)


def _spec(name: str, description: str, *arguments: str) -> ToolSpec:
    properties = {argument: {"type": "string"} for argument in arguments}
    return ToolSpec(name, description, {"type": "object", "properties": properties, "required": list(arguments)})


LOOK_UP = _spec("find_contact", "Look up a person's phone number by their name.", "name")
SEND = _spec("send_text", "Send a text message to a phone number.", "number", "text")
TASK: Sequence[dict[str, Json]] = (
    {"role": "system", "content": "You are a helpful assistant. Use the tools for what you are asked to do."},
    {"role": "user", "content": "Look up Ada's phone number, then send her this text: home at six."},
)


class ToolVerdict(Struct, frozen=True):
    """The result of a test: whether the model is offered tools, when it was tested, and why not."""

    can_use: bool
    tested_at: float
    why: str = ""


class Listing(Protocol):
    """Looks up the model of an endpoint for which none is configured."""

    @property
    def answering(self) -> str:
        """The default model; "" while that is unknown."""

    async def list(self) -> object:
        """Fetch the endpoint's list. Raises ModelError."""


class Verdicts(Protocol):
    """A store of verdicts."""

    def get(self, endpoint: str, name: str) -> ToolVerdict | None:
        """Return the last verdict on a model, or None."""

    def last(self, endpoint: str) -> str:
        """Return the model of this endpoint that was tested last, or ""."""

    def put(self, endpoint: str, name: str, verdict: ToolVerdict) -> None:
        """Save the verdict durably."""


async def run_self_test(model: Model, now: Callable[[], float]) -> ToolVerdict | None:
    """Ask for two tool calls, the second of which needs the result of the first. Return None if the endpoint
    failed."""
    messages = list(TASK)
    for _ in range(MAX_SELF_TEST_REQUESTS):
        end = await _ask(model, messages)
        if not isinstance(end, Completed):
            refused = end is not None and end.kind == "bad_request" and "tool" in end.message.lower()
            return ToolVerdict(False, now(), "its endpoint takes no tools for it") if refused else None
        reply = end.reply
        if not reply.tool_calls:
            return ToolVerdict(False, now(), "it answered in words where a tool call was due")
        sent = [_arguments(call).get("number") for call in reply.tool_calls if call.name == SEND.name]
        if sent:
            knows = all(_digits(number).endswith(_digits(PHONE_NUMBER)) for number in sent)
            return ToolVerdict(knows, now(), "" if knows else "it invented what it should have looked up")
        messages = [*messages, *_answered(reply)]
    return ToolVerdict(False, now(), "it did not come to its second call")


async def _ask(model: Model, messages: Sequence[dict[str, Json]]) -> Completed | ModelFailed | None:
    request = ModelRequest(messages, (LOOK_UP, SEND), max_tokens=MAX_REPLY_TOKENS)
    async with aclosing(model.stream(request)) as events:
        last = [event async for event in events][-1:]
    return last[0] if last and isinstance(last[0], Completed | ModelFailed) else None


def _arguments(call: ToolCall) -> dict[str, Json]:
    try:
        return mapping(json.loads(call.arguments or "{}"))
    except (ValueError, RecursionError):
        return {}


def _digits(number: Json) -> str:
    return "".join(letter for letter in str(number) if letter.isdigit())


def _answered(reply: Reply) -> list[dict[str, Json]]:
    """Return the calls of a reply with their results. Looking up any name but Ada's finds nobody."""
    calls: list[dict[str, Json]] = [call.to_wire() for call in reply.tool_calls]
    said: dict[str, Json] = {"role": "assistant", "content": reply.text, "tool_calls": calls}
    results: list[dict[str, Json]] = []
    for call in reply.tool_calls:
        is_ada = "ada" in string(_arguments(call).get("name")).lower()
        found = json.dumps({"number": PHONE_NUMBER}) if is_ada else "nobody found"
        results.append({"role": "tool", "tool_call_id": call.id, "content": found})
    return [said, *results]


class ToolAbility:
    """Decides which of an endpoint's models are offered tools: by the setting, else by the verdict of a test."""

    def __init__(self, endpoint: str, setting: Callable[[str], ToolSwitch], verdicts: Verdicts, clock: Clock) -> None:
        self.setting = setting
        """Returns the setting for a model."""
        self._endpoint = endpoint
        self._verdicts = verdicts
        self._clock = clock
        self._tests: dict[str, asyncio.Task[None]] = {}
        self._wait_until: dict[str, float] = {}
        self._notices: list[str] = []

    def verdict(self, name: str) -> ToolVerdict | None:
        """Return the verdict of the last test of this model, or None."""
        return self._verdicts.get(self._endpoint, name)

    def last_tested(self) -> str:
        """Return the model that was tested last, or ""."""
        return self._verdicts.last(self._endpoint)

    def is_offered(self, name: str) -> bool | None:
        """Return whether this model is offered tools; None while that is unknown."""
        if (switch := self.setting(name)) != "auto":
            return switch == "on"
        verdict = self.verdict(name)
        return None if verdict is None else verdict.can_use

    def describe(self, name: str) -> str:
        """Describe for a person whether this model is offered tools."""
        if (switch := self.setting(name)) != "auto":
            return f"{'offered' if switch == 'on' else 'none'}, by `model.tools`"
        verdict = self.verdict(name)
        if verdict is None:
            return "none until it has passed a test, which its first turn begins"
        return "offered: it passed the test" if verdict.can_use else f"none: {verdict.why}"

    def begin(self, model: Model, listing: Listing) -> None:
        """Start a background test of the model unless its verdict is known."""
        name = model.name or listing.answering
        running = self._tests.get(name)
        if self.is_offered(name) is None and (running is None or running.done()):
            self._tests[name] = asyncio.create_task(self._settle(model, listing))
            self._wait_until.setdefault(name, asyncio.get_running_loop().time() + TURN_WAIT_SECONDS)

    async def settled(self, model: Model, listing: Listing) -> bool:
        """Return whether the model is offered tools. Only turns in the first seconds of the first test wait for it."""
        name = model.name or listing.answering
        test = self._tests.get(name) or self._tests.get("")
        left = self._wait_until.get(name, self._wait_until.get("", 0.0)) - asyncio.get_running_loop().time()
        if self.is_offered(name) is None and test is not None and left > 0:
            await asyncio.wait({test}, timeout=left)
        return self.is_offered(model.name or listing.answering) is True

    async def test(self, model: Model) -> ToolVerdict | None:
        """Test the model now, even if a verdict exists, and save the new one. Return None if the test gave no
        verdict."""
        try:
            async with asyncio.timeout(SELF_TEST_TIMEOUT_SECONDS):
                verdict = await run_self_test(model, self._clock.now)
        except TimeoutError:
            return None
        if verdict is not None:
            self._verdicts.put(self._endpoint, model.name, verdict)
        return verdict

    def take_notices(self) -> list[str]:
        """Return and clear the notices about models that failed the test."""
        taken, self._notices = self._notices, []
        return taken

    async def _settle(self, model: Model, listing: Listing) -> None:
        if not (model.name or listing.answering):
            with suppress(ModelError):  # the turn reports it
                await listing.list()
        if self.is_offered(model.name or listing.answering) is not None:
            return
        verdict = await self.test(model)
        if verdict is not None and not verdict.can_use:
            self._notices.append(NO_TOOLS_NOTICE.format(name=model.name, why=verdict.why))
