"""`honcho_conclude` from many threads and tasks at once, during turns and changes of notes: no loss, no duplicate,
and true answers to the model."""

from __future__ import annotations

import asyncio
import re
import uuid
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from hermes.clock import SystemClock
from hermes.db.leases import new_owner
from hermes.honcho.plugin import HonchoPlugin
from hermes.memory.active import ActiveProvider, Surroundings
from hermes.memory.caller import Memory
from hermes.memory.deliveries import Deliveries
from hermes.memory.plugin_thread import Returned
from hermes.memory.values import Conversation, Speaker
from hermes.store.store import Store
from tests.honcho.configuring import Machine
from tests.honcho.recalling import PATIENT
from tests.honcho.writing import Arrived
from tests.memory.remembering import begin, notes_of, turn
from tests.memory_server.serving import Served
from tests.scale import scale

pytestmark = pytest.mark.processes
THREADS, TASKS = 4, 4
FACTS_PER_TASK = scale(6, 1_000)
TOLD = re.compile(r"Saved, and in memory now \(id (\S+)\)\.|Saved\. It is queued and will reach the memory server .*")


async def conclude(memory: Memory, about: Conversation) -> dict[str, str]:
    """Conclude facts, and return the model's answer for each."""
    told: dict[str, str] = {}
    for number in range(FACTS_PER_TASK):
        fact = f"{about.session_id} fact {number}"
        answer = await memory.call_tool("honcho_conclude", {"conclusion": fact}, uuid.uuid4().hex)
        assert isinstance(answer, Returned), answer
        told[fact] = answer.value
        if number % 5 == 0:
            await turn(memory, f"{about.session_id} turn {number}", about.session_id)
    return told


async def host(machine: Machine, thread: int) -> dict[str, str]:
    """Run one host with conversations that share their Honcho sessions with other hosts."""
    env = {"HOME": str(machine.folder), "LOGNAME": "ann"}
    async with await Store.open(machine.home / "state.db", clock=SystemClock(), lock_timeout=60.0) as store:
        provider = ActiveProvider("honcho", HonchoPlugin, store, Surroundings(machine.home, None, env), PATIENT)
        deliveries = Deliveries(provider, new_owner(), TASKS)
        deliveries.start()
        abouts = [
            Conversation(
                f"s{thread}-{task}", "cli", "everything", Speaker(is_owner=True), directory=Path(f"/at/{task}")
            )
            for task in range(TASKS)
        ]
        memories = [await begin(provider, about) for about in abouts]
        for memory, about in zip(memories, abouts, strict=True):
            await turn(memory, f"{about.session_id} begins", about.session_id)
        if thread == 0:
            for number in range(5):
                notes_of(provider).add("user", f"note {number}")
                memories[0].note_written("user", "add", f"note {number}")
        told = await asyncio.gather(*map(conclude, memories, abouts))
        while (await deliveries.left()).entries:  # noqa: ASYNC110 - what is left is in the store
            await asyncio.sleep(0.05)
        await deliveries.finish(1.0)
        for memory in memories:
            await memory.close()
        await provider.close()
    return {fact: answer for one in told for fact, answer in one.items()}


@pytest.mark.stress
@pytest.mark.contract("6.2", "6.1", "P1", "P2")
def test_concurrent_conclusions_are_stored_once_each_as_answered(machine: Machine, server: Served) -> None:
    workspace = f"concluding-{uuid.uuid4().hex[:8]}"
    machine.write({"baseUrl": server.url, "workspace": workspace, "peerName": "ann", "aiPeer": "bot"})
    with ThreadPoolExecutor(THREADS) as threads:
        hosts = list(threads.map(lambda thread: asyncio.run(host(machine, thread)), range(THREADS)))
    told: Mapping[str, str] = {fact: answer for one in hosts for fact, answer in one.items()}
    arrived = Arrived(server, workspace)
    found = {one["id"]: one["content"] for one in arrived.conclusions()}
    facts = Counter(content for content in found.values() if " fact " in content)
    assert set(facts) == set(told)
    assert len(told) == THREADS * TASKS * FACTS_PER_TASK
    assert set(facts.values()) == {1}
    for fact, answer in told.items():
        matched = TOLD.fullmatch(answer)
        assert matched, answer
        assert matched[1] is None or found[matched[1]] == fact
    assert sorted(content for content in found.values() if " fact " not in content) == [f"note {n}" for n in range(5)]
    for task in range(TASKS):
        said = [content for _, content in arrived.said(str(task))]
        for name in (f"s{thread}-{task} " for thread in range(THREADS)):
            texts = [f"{name}begins", *(f"{name}turn {number}" for number in range(0, FACTS_PER_TASK, 5))]
            expected = [one for text in texts for one in (text, f"reply to {text}")]
            assert [text for text in said if text.removeprefix("reply to ").startswith(name)] == expected
