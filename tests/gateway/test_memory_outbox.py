"""A provider that blocks, fails and hangs, and a gateway that ends in every way: each turn takes effect once."""

from __future__ import annotations

import asyncio
import json
import os
import random
from pathlib import Path

import httpx
import pytest

from tests.db.processes import ROOT
from tests.gateway.asking import ask, ask_async, in_session, reply
from tests.gateway.processes import GatewayProcess, LoopbackModel, api_settings, rows, wait_until, write_config
from tests.memory.spy import install_spy, lines, set_trouble, told
from tests.plain_http import PLAIN
from tests.scale import scale

pytestmark = [pytest.mark.processes, pytest.mark.stress]
RECALL, DELIVER = scale(2, 8), scale(1, 4)
KILLS = scale(6, 200)
CONVERSATIONS = scale(80, 400)
SEED = 20260102
LIMITED = (
    "import resource, runpy, sys; resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256)); "
    "sys.argv = ['hermes', 'gateway', 'run']; runpy.run_module('hermes', run_name='__main__')"
)


def begin(home: Path, model: LoopbackModel, **trouble: object) -> GatewayProcess:
    """Start a gateway with the spy as provider; a turn waits 0.3 s for it."""
    settings = api_settings(
        model, memory__provider="spy", memory__deadline=0.3, memory__first_deadline=0.3, gateway__drain=4.0
    )
    write_config(home, settings)
    install_spy(home, **trouble)
    return GatewayProcess(home, env={"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])})


def talk(gateway: GatewayProcess, count: int, session: str = "s") -> list[str]:
    """Run turns in one session; return their messages."""
    said = [f"{session} message {number}" for number in range(count)]
    for text in said:
        assert reply(ask(gateway.url, text, headers=in_session(session))) == f"echo: {text}"
    return said


def check_once(home: Path) -> None:
    """Check that no entry took effect twice."""
    keys = [key for _, _, key in lines(home, "told.jsonl")]
    assert len(keys) == len(set(keys))


def empty(home: Path) -> bool:
    return not rows(home, "SELECT 1 FROM hermes_queue WHERE queue = 'memory:spy' AND state <> 'done' LIMIT 1")


@pytest.mark.timeout(300)
@pytest.mark.contract("4.13", "P1", "P2", "P4")
@pytest.mark.parametrize(
    "trouble",
    [{"recall": RECALL}, {"deliver": DELIVER}, {"fail": 2}],
    ids=["recall blocks", "delivery blocks", "delivery fails"],
)
def test_every_turn_reaches_a_failing_provider_in_order(
    model: LoopbackModel, empty_home: Path, trouble: dict[str, int]
) -> None:
    with begin(empty_home, model, **trouble) as gateway:
        said = talk(gateway, 7)
        wait_until(lambda: empty(empty_home), seconds=120)
        assert told(empty_home) == said
        assert told(empty_home, "reply") == [f"echo: {text}" for text in said]
        check_once(empty_home)


@pytest.mark.timeout(300)
@pytest.mark.contract("4.13", "P1", "P2")
@pytest.mark.parametrize("how", ["stop", "kill"])
@pytest.mark.parametrize("trouble", [{"deliver": 1.5}, {"hang": True}], ids=["delivery is slow", "delivery hangs"])
def test_gateway_that_ends_after_its_replies_delivers_every_turn(
    model: LoopbackModel, empty_home: Path, how: str, trouble: dict[str, object]
) -> None:
    with begin(empty_home, model, **trouble) as gateway:
        said = talk(gateway, 6)
        (gateway.stop if how == "stop" else gateway.kill)()
        set_trouble(empty_home)
        gateway.start()
        wait_until(lambda: empty(empty_home), seconds=120)
        assert told(empty_home) == said
        check_once(empty_home)


@pytest.mark.timeout(120)
@pytest.mark.contract("4.17", "4.13")
def test_entries_of_a_single_question_are_delivered_by_another_process(model: LoopbackModel, empty_home: Path) -> None:
    gateway = begin(empty_home, model, deliver=3)
    out = gateway.hermes("chat", "-q", "hello")
    assert out == "echo: hello\n"
    wait_until(lambda: told(empty_home, "said", "reply") == ["hello", "echo: hello"], seconds=60)
    wait_until(lambda: empty(empty_home), seconds=60)
    check_once(empty_home)


@pytest.mark.timeout(120)
@pytest.mark.contract("4.17", "4.3")
def test_entries_of_a_disabled_provider_are_delivered_when_it_is_enabled_again(
    model: LoopbackModel, empty_home: Path
) -> None:
    with begin(empty_home, model, hang=True) as gateway:
        said = talk(gateway, 2)
        gateway.kill()
    write_config(empty_home, api_settings(model))
    set_trouble(empty_home)
    with GatewayProcess(empty_home) as gateway:
        talk(gateway, 1, "other")
        [listed] = json.loads(gateway.hermes("memory", "outbox", "list", "--json"))
        assert (listed["provider"], listed["waiting"]) == ("spy", 4)
        gateway.stop()
    assert told(empty_home) == []
    with begin(empty_home, model) as gateway:
        wait_until(lambda: empty(empty_home), seconds=60)
        assert told(empty_home) == said
        assert "other message 0" not in str(lines(empty_home, "tries.jsonl"))


@pytest.mark.timeout(3000)
@pytest.mark.contract("4.13", "P1", "P2")
async def test_killed_gateway_delivers_every_entry_once_and_in_order(model: LoopbackModel, empty_home: Path) -> None:
    chance = random.Random(SEED)
    gateway = begin(empty_home, model, deliver=0.05)
    said: dict[str, list[str]] = {f"s{number}": [] for number in range(3)}
    with gateway:
        for kill in range(KILLS):
            async with httpx.AsyncClient(verify=PLAIN) as client:
                texts = {f"k{kill}-{session}": session for session in said}
                asking = [
                    asyncio.create_task(ask_async(client, gateway.url, text, headers=in_session(session, text)))
                    for text, session in texts.items()
                ]
                await asyncio.sleep(chance.uniform(0.0, 0.6))
                gateway.kill()
                await asyncio.gather(*asking, return_exceptions=True)
            gateway.start()
            for text, session in texts.items():  # what was not accepted is said again, by the same key
                assert reply(ask(gateway.url, text, headers=in_session(session, text))) == f"echo: {text}"
                said[session].append(text)
        wait_until(lambda: empty(empty_home), seconds=300)
    heard = told(empty_home)
    for session, texts_of in said.items():
        assert [text for text in heard if text.endswith(session)] == texts_of
    check_once(empty_home)
    dead = rows(empty_home, "SELECT reason FROM hermes_queue WHERE state = 'dead'")
    assert dead == []


@pytest.mark.timeout(600)
@pytest.mark.contract("4.1", "4.13")
async def test_open_files_and_threads_do_not_grow_with_conversations(model: LoopbackModel, empty_home: Path) -> None:
    gateway = begin(empty_home, model)
    gateway.wrap(LIMITED)
    most = asyncio.Semaphore(64)
    threads: list[int] = []

    async def converse(client: httpx.AsyncClient, number: int) -> None:
        async with most:
            answer = await ask_async(client, gateway.url, f"message {number}", headers=in_session(f"c{number}"))
            assert reply(answer) == f"echo: message {number}"
            threads.append(len(list(Path(f"/proc/{gateway.pid}/task").iterdir())))

    with gateway:
        async with httpx.AsyncClient(limits=httpx.Limits(max_connections=64), verify=PLAIN) as client:
            await asyncio.gather(*(converse(client, number) for number in range(CONVERSATIONS)))
        wait_until(lambda: empty(empty_home), seconds=120)
        assert rows(empty_home, "SELECT reason FROM hermes_queue WHERE state = 'dead'") == []
        assert sorted(told(empty_home)) == sorted(f"message {number}" for number in range(CONVERSATIONS))
    assert max(threads) < 40
