"""Bursts of messages from several chats with a small window: each is answered, whatever is cancelled meanwhile."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator

import httpx
import pytest

from hermes.agent.titles import PROMPT as TITLE_PROMPT
from tests.gateway.asking import ask_async, body, in_session, reply
from tests.gateway.echo_model import EchoModel
from tests.gateway.processes import GatewayProcess, LoopbackModel, api_settings, write_config
from tests.llm.beside import beside
from tests.llm.loopback import Answer, Received, says
from tests.plain_http import PLAIN
from tests.scale import scale

pytestmark = [pytest.mark.contract("2.4", "10.34"), pytest.mark.stress, pytest.mark.timeout(3600)]

WINDOW_TOKENS = 8_000
CHATS = ("ann", "bob", "cleo")
PADDING = "stamps and coins " * 300
"""Text of a message: two such and their replies fill half of the window."""
MESSAGES_PER_SESSION = 3


class TitlingModel(EchoModel):
    """An echo model that streams a title letter by letter, so that the next message may cancel it at any moment."""

    titles = 0

    def _choose(self, received: Received) -> Answer:
        messages = (received.body or {}).get("messages") or [{}]
        if str(messages[0].get("content")).startswith(TITLE_PROMPT):
            self.titles += 1
            return says("Stamps and coins", piece=1)
        return super()._choose(received)


@pytest.fixture(scope="module")
def titling() -> Iterator[TitlingModel]:
    with beside(TitlingModel(summary=0.0, delay=0.0, pause=0.0)) as server:
        yield server


@pytest.fixture(scope="module")
def small_window(
    titling: TitlingModel, tmp_path_factory: pytest.TempPathFactory, processes: None
) -> Iterator[GatewayProcess]:
    home = tmp_path_factory.mktemp("burst") / "home"
    more = {"model__context_length": WINDOW_TOKENS, "model__timeout": 20.0}
    write_config(home, api_settings(LoopbackModel(titling), **more))
    with GatewayProcess(home, env={"HERMES_AUTO_TITLE": "true"}) as running:
        yield running


async def test_every_message_of_a_burst_is_answered(small_window: GatewayProcess, titling: TitlingModel) -> None:
    bursts, messages = scale(1, 50), scale(14, 100)

    async def talk(client: httpx.AsyncClient, chat: str) -> None:
        for number in range(messages):
            text = f"{chat} {number}: {PADDING}".strip()
            answer = await ask_async(
                client, small_window.url, text, headers=in_session(f"{chat}-{number // MESSAGES_PER_SESSION}")
            )
            assert reply(answer) == f"echo: {text}"

    async with httpx.AsyncClient(verify=PLAIN) as client:
        for burst in range(bursts):
            await asyncio.gather(*(talk(client, f"{chat}-{burst}") for chat in CHATS))
    assert titling.titles >= bursts * len(CHATS) * (messages // MESSAGES_PER_SESSION)
    [(compressions,)] = small_window.rows("SELECT count(*) FROM hermes_compressions")
    assert int(str(compressions)) >= bursts * len(CHATS)


async def test_messages_after_disconnects_and_stopped_turns_are_answered(small_window: GatewayProcess) -> None:
    chance = random.Random(73)
    url = f"{small_window.url}/chat/completions"

    async def leave(client: httpx.AsyncClient, text: str, headers: dict[str, str]) -> None:
        """Request a stream and disconnect after a few chunks, or before the first."""
        given = body(text, stream=True)
        async with client.stream("POST", url, json=given, headers=headers, timeout=120.0) as answer:
            pieces, wanted = answer.aiter_raw(), chance.randrange(4)
            for _ in range(wanted):
                await anext(pieces, None)

    async with httpx.AsyncClient(verify=PLAIN) as client:
        for number in range(scale(12, 1_000)):
            session = in_session(f"left-{number // 20}")
            text = f"{number}: {PADDING}".strip()
            if number % 3 == 0:
                await leave(client, text, {})  # nothing is stored: the model's reply is cancelled
            elif number % 3 == 1:
                await leave(client, text, session)  # the turn goes on
            else:
                running = asyncio.create_task(ask_async(client, small_window.url, text, headers=session))
                await ask_async(client, small_window.url, "/stop", headers=session)
                await running
            assert reply(await ask_async(client, small_window.url, text, headers=session)) == f"echo: {text}"
