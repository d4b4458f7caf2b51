"""Another process holds the session: the chat is informed, can end the wait, and is answered afterwards."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from itertools import count
from pathlib import Path

import pytest

from hermes.db.engine import Tx
from hermes.events import Failed, Replied, Stopped, Waiting
from hermes.gateway.platforms.api_door import follow
from hermes.slash.remembering import UNCHANGED
from hermes.store.held_lease import UNSAID, WAITING, LaneOptions
from hermes.store.store import Store
from hermes.types import Session
from tests.agent.lanes import hold_lane
from tests.db.processes import ROOT
from tests.gateway.asking import ask, in_session, leave, reply
from tests.gateway.bot_api import BotApi
from tests.gateway.core import TIMEOUT_SECONDS, Core, QuickClock, message, request, running_core, talk
from tests.gateway.processes import (
    BotGateway,
    GatewayProcess,
    api_settings,
    appears,
    clean_env,
    echo_model,
    rows,
    said,
    scripted_model,
    sessions,
    wait_until,
    write_config,
)

pytestmark = pytest.mark.contract("2.3", "2.6")
TOLD = f"{WAITING} /stop ends the wait."


@contextmanager
def terminal(home: Path, session: str, text: str) -> Iterator[subprocess.Popen[str]]:
    """Run `hermes chat -q` in a session of the gateway."""
    with subprocess.Popen(
        [sys.executable, "-m", "hermes", "chat", "-q", text, "-s", session],
        cwd=ROOT,
        env=clean_env(HERMES_HOME=str(home)),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.processes
def test_chat_gets_the_reason_of_a_wait_and_stop_ends_it(tmp_path: Path) -> None:
    answers = [{"says": {"text": "hello"}}, {"says": {"text": "at last", "delay": 60.0}}]
    with BotApi() as api, scripted_model(answers) as model:
        ann = api.person("Ann")
        with BotGateway(tmp_path / "home", api, model) as gateway:
            api.say(ann.dm, "hi", ann)
            api.until(lambda: api.texts(ann.dm.id) == ["hello"])
            [(session,)] = gateway.rows("SELECT id FROM sessions")
            with terminal(gateway.home, str(session), "something slow"):
                wait_until(lambda: len(model.asked()) == 2)
                api.say(ann.dm, "and I?", ann)
                api.until(lambda: api.texts(ann.dm.id)[1:] == [TOLD])
                api.until(lambda: api.called("sendchataction"))
                api.say(ann.dm, "/stop", ann)
                api.until(lambda: len(api.texts(ann.dm.id)) == 4)
                assert set(api.texts(ann.dm.id)[2:]) == {"Stopped.", UNSAID}
            api.say(ann.dm, "and now?", ann)
            api.until(lambda: api.texts(ann.dm.id)[4:] == ["and now?"])
            gateway.stop()
        assert gateway.said() == ["hi", "something slow", "and now?"]
        assert gateway.rows("SELECT DISTINCT state FROM hermes_queue") == [("done",)]


@pytest.mark.processes
def test_message_of_a_disconnected_waiting_client_is_answered(empty_home: Path) -> None:
    with echo_model() as model:
        write_config(empty_home, api_settings(model))
        with GatewayProcess(empty_home) as gateway:
            reply(ask(gateway.url, "hi", headers=in_session("s")))
            model.hold()
            with terminal(empty_home, "s", "something slow") as other:
                wait_until(lambda: said(empty_home, "s") == ["hi", "something slow"])
                kept = "SELECT 1 FROM hermes_queue WHERE key LIKE '%\"gone\"]'"
                leave(gateway.url, "and I?", lambda: gateway.rows(kept), headers=in_session("s", "gone"))
                model.go_on()
                assert other.communicate()[0] == "echo: something slow\n"
            assert reply(ask(gateway.url, "and I?", headers=in_session("s", "gone"))) == "echo: and I?"
            gateway.stop()
    assert said(empty_home, "s") == ["hi", "something slow", "and I?"]


@asynccontextmanager
async def busy(core: Core, session: str) -> AsyncIterator[None]:
    """Hold the lane of a session in another process."""
    async with await Store.open(core.store.db.path, clock=core.store.clock, lock_timeout=5.0) as store:
        async with hold_lane(store, session, "someone:else", LaneOptions(ttl=3600.0)):  # a busy machine loses none
            yield


async def test_waiting_chat_gets_one_explanation_and_then_its_reply(tmp_path: Path) -> None:
    async with running_core(tmp_path, clock=QuickClock(200)) as core:
        await core.platform.deliver(message("hi"))
        await core.platform.until(lambda: len(core.platform.sent) == 1)
        [session] = sessions(tmp_path)
        async with busy(core, session):
            await core.platform.deliver(message("and I?"))
            await appears(tmp_path, "SELECT 1 FROM hermes_queue WHERE queue = 'inbox' AND attempts > 2")
        await core.platform.until(lambda: len(core.platform.sent) == 3)
    assert core.platform.texts("7") == ["echo: hi", TOLD, "echo: and I?"]


async def test_request_that_waits_too_long_gets_an_error_and_one_reply_later(tmp_path: Path) -> None:
    async with running_core(tmp_path, clock=QuickClock(200)) as core, asyncio.timeout(TIMEOUT_SECONDS):
        await talk(core, request("hi", "1", session="s"))
        async with busy(core, "s"):
            _, events = await follow(core.gateway, request("and I?", "2", session="s"))
            heard = [event async for event in events]
            assert isinstance(heard[0], Waiting)
            end = heard[-1]
            assert isinstance(end, Failed)
            assert end.kind == "busy"
            assert "will be answered" in end.message
        assert await talk(core, request("and I?", "2", session="s")) == "echo: and I?"
    assert said(tmp_path, "s") == ["hi", "and I?"]


async def stop(core: Core) -> None:
    """Send `/stop` until there is something to stop: a claimed turn begins a moment later."""
    for number in count():
        if await talk(core, request("/stop", f"stop {number}", session="s")) == "Stopped.":
            return


async def test_stop_ends_the_wait_of_a_request(tmp_path: Path) -> None:
    async with running_core(tmp_path) as core, asyncio.timeout(TIMEOUT_SECONDS):
        await talk(core, request("hi", "1", session="s"))
        async with busy(core, "s"):
            waiting = asyncio.create_task(talk(core, request("and I?", "2", session="s")))
            await appears(tmp_path, "SELECT 1 FROM hermes_queue WHERE key LIKE '%\"2\"]' AND claimed = 1")
            await stop(core)
            assert await waiting == ""
    assert said(tmp_path, "s") == ["hi"]
    assert rows(tmp_path, "SELECT DISTINCT state FROM hermes_queue") == [("done",)]


async def test_waiting_messages_do_not_move_to_a_recreated_session(tmp_path: Path) -> None:
    def begin_again(tx: Tx) -> None:
        core.store.deletions.delete(tx, "s")
        core.store.sessions.create(tx, Session("s", "api", core.store.clock.now()))

    async with running_core(tmp_path) as core, asyncio.timeout(TIMEOUT_SECONDS):
        await talk(core, request("hi", "1", session="s"))
        async with busy(core, "s"):
            _, heard = await follow(core.gateway, request("secret", "2", session="s"))
            await appears(tmp_path, "SELECT 1 FROM hermes_queue WHERE key LIKE '%\"2\"]' AND claimed = 1")
            await core.store.write(begin_again)
            ends = [event async for event in heard if isinstance(event, Replied | Stopped | Failed)]
        assert [end.kind for end in ends if isinstance(end, Failed)] == ["gone"]
        assert await talk(core, request("who are you?", "3", session="s")) == "echo: who are you?"
    assert said(tmp_path, "s") == ["who are you?"]


async def test_stopped_waiting_command_changes_nothing(tmp_path: Path) -> None:
    async with running_core(tmp_path) as core, asyncio.timeout(TIMEOUT_SECONDS):
        await talk(core, request("hi", "1", session="s"))
        async with busy(core, "s"):
            waiting = asyncio.create_task(talk(core, request("/memory off", "2", session="s")))
            await appears(tmp_path, "SELECT 1 FROM hermes_queue WHERE key LIKE '%\"2\"]' AND claimed = 1")
            await stop(core)
            assert await waiting == UNCHANGED
    assert rows(tmp_path, "SELECT 1 FROM hermes_incognito_sessions") == []


async def test_command_that_waits_too_long_explains_what_to_do(tmp_path: Path) -> None:
    async with running_core(tmp_path, clock=QuickClock(200)) as core, asyncio.timeout(TIMEOUT_SECONDS):
        await talk(core, request("hi", "1", session="s"))
        async with busy(core, "s"):
            assert "another process" in await talk(core, request("/memory off", "2", session="s"))
