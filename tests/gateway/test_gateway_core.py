"""The gateway's core with a platform in memory: order, joining, commands, refusals, shutdown."""

from __future__ import annotations

import asyncio
import gc
from pathlib import Path

import pytest

from hermes.clock import SystemClock
from hermes.db import lanes
from hermes.db.engine import Tx
from hermes.db.queue import MAX_CRASHES
from hermes.errors import GatewayRunningError
from hermes.gateway.platform import Chat
from hermes.hosting import open_gateway
from hermes.llm.events import Completed, Reply, TextPiece
from hermes.llm.model import ModelRequest
from hermes.store.people import mark
from tests.gateway.core import FakePlatform, Gate, QuickClock, echo, load_app, message, running_core
from tests.gateway.processes import appears, rows, said, sessions
from tests.llm.scripted import ScriptedAnswer, ScriptedModel


@pytest.mark.contract("2.4", "P1")
async def test_messages_during_a_turn_join_the_next_one_with_their_authors(tmp_path: Path) -> None:
    gate = Gate()
    async with running_core(tmp_path, gate) as core:
        await core.platform.deliver(message("wait", "g", kind="group", author="ann"))
        await gate.asked.wait()
        for text, author in (("one", "bob"), ("two", "ann"), ("three", "bob")):
            await core.platform.deliver(message(text, "g", kind="group", author=author))
        gate.opened.set()
        await core.platform.until(lambda: len(core.platform.sent) == 2)
        assert core.platform.texts("g")[1] == "echo: [Bob] one + [Ann] two + [Bob] three"
        assert len(core.model.requests) == 2
    stored = rows(tmp_path, "SELECT role, content FROM messages ORDER BY id")
    assert stored[2:5] == [("user", "one"), ("user", "two"), ("user", "three")]


@pytest.mark.contract("2.1")
async def test_nul_in_a_message_of_a_platform_is_replaced_and_the_rest_kept(tmp_path: Path) -> None:
    again = message("a\0b\0")
    async with running_core(tmp_path) as core:
        for _ in range(2):
            await core.platform.deliver(again)
        await core.platform.until(lambda: bool(core.platform.sent))
        assert core.platform.sent[0][1] == "echo: a\ufffdb\ufffd"
    assert rows(tmp_path, "SELECT content FROM messages WHERE role = 'user'") == [("a\ufffdb\ufffd",)]


@pytest.mark.contract("2.2", "P2")
async def test_the_same_message_delivered_again_has_one_effect(tmp_path: Path) -> None:
    again = message("once")
    async with running_core(tmp_path) as core:
        for _ in range(3):
            await core.platform.deliver(again)
        await core.platform.deliver(message("then"))
        await core.platform.until(lambda: bool(core.platform.sent) and core.platform.sent[-1][1].endswith("then"))
    assert rows(tmp_path, "SELECT content FROM messages WHERE role = 'user' ORDER BY id") == [("once",), ("then",)]


@pytest.mark.contract("2.2")
async def test_the_same_message_delivered_after_a_restart_has_no_effect(tmp_path: Path) -> None:
    again = message("once")
    for _ in range(2):
        async with running_core(tmp_path) as core:
            await core.platform.deliver(again)
            await core.platform.deliver(fresh := message("then"))
            await core.platform.until(lambda: bool(core.platform.sent) and "then" in core.platform.sent[-1][1])
            del fresh
    assert [row[0] for row in rows(tmp_path, "SELECT content FROM messages WHERE role = 'user'")].count("once") == 1


async def test_commands_run_in_order_and_new_moves_later_messages_to_a_new_session(tmp_path: Path) -> None:
    gate = Gate()
    async with running_core(tmp_path, gate) as core:
        await core.platform.deliver(message("wait"))
        await gate.asked.wait()
        for text in ("second", "/title Stamps", "third", "/new", "fourth", "fifth"):
            await core.platform.deliver(message(text))
        gate.opened.set()
        await core.platform.until(lambda: len(core.platform.sent) == 6)
        texts = core.platform.texts("7")
    old, new = sessions(tmp_path)
    assert texts[:4] == ["echo: wait", "echo: second", "Title: Stamps", "echo: third"]
    assert texts[4] == f"A new session begins: {new}. What was said before is kept."
    assert rows(tmp_path, "SELECT end_reason FROM sessions ORDER BY started_at, id") == [("session_reset",), (None,)]
    assert texts[5] == "echo: fourth + fifth"
    assert said(tmp_path, old) == ["wait", "second", "third"]
    assert said(tmp_path, new) == ["fourth", "fifth"]
    assert rows(tmp_path, "SELECT title FROM sessions WHERE id = ?", old) == [("Stamps",)]
    assert rows(tmp_path, "SELECT session_id FROM hermes_routes") == [(new,)]


@pytest.mark.contract("P2")
async def test_new_in_an_empty_session_creates_no_second_one(tmp_path: Path) -> None:
    async with running_core(tmp_path, echo) as core:
        for text in ("hello", "/new", "/new"):
            await core.platform.deliver(message(text))
        await core.platform.until(lambda: len(core.platform.sent) == 3)
    assert len(sessions(tmp_path)) == 2


@pytest.mark.contract("2.6")
@pytest.mark.parametrize("spelled", ["/stop", " /STOP ", "/stop@somebot", "/stop it, please"])
async def test_stop_overtakes_waiting_messages_and_keeps_the_partial_reply(tmp_path: Path, spelled: str) -> None:
    gate = Gate()
    async with running_core(tmp_path, gate) as core:
        await core.platform.deliver(message("wait"))
        await gate.asked.wait()
        await core.platform.deliver(message("after"))
        await core.platform.deliver(message(spelled))
        await core.platform.until(lambda: len(core.platform.sent) == 2)
        assert set(core.platform.texts("7")) == {"Stopped.", "echo: after"}
        await core.platform.deliver(message("/stop"))
        await core.platform.until(lambda: len(core.platform.sent) == 3)
        assert core.platform.texts("7")[2] == "Nothing is running."
    [session] = sessions(tmp_path)
    assert said(tmp_path, session, "assistant")[0] == "echo: "


@pytest.mark.contract("2.3")
async def test_a_slow_or_failing_chat_delays_no_other(tmp_path: Path) -> None:
    gate = Gate()

    def script(request: ModelRequest) -> ScriptedAnswer:
        if "defect" in str(request.messages[-1]["content"]):
            raise RuntimeError("a defect of the model's own")
        return gate(request)

    async with running_core(tmp_path, script) as core:
        await core.platform.deliver(message("wait", "slow"))
        await core.platform.deliver(message("defect", "failing"))
        await gate.asked.wait()
        for number in range(5):
            await core.platform.deliver(message(f"hi {number}", f"quick {number}"))
        await core.platform.until(lambda: len(core.platform.sent) == 5)
        assert {text for _, text in core.platform.sent} == {f"echo: hi {number}" for number in range(5)}
        gate.opened.set()
        await core.platform.until(lambda: core.platform.texts("slow") == ["echo: wait"])


@pytest.mark.contract("P1", "P5")
@pytest.mark.parametrize("is_owner", [True, False])
async def test_message_that_fails_repeatedly_becomes_a_dead_letter_and_is_reported(
    tmp_path: Path, is_owner: bool
) -> None:
    def script(request: ModelRequest) -> ScriptedAnswer:
        if "defect" in str(request.messages[-1]["content"]):
            raise RuntimeError("a defect of the model's own")
        return echo(request)

    async with running_core(tmp_path, script, clock=QuickClock(20)) as core:
        if is_owner:
            await core.store.write(lambda tx: mark(tx, "fake", "ann", is_owner=True, now=1.0))
        await core.platform.deliver(message("defect"))
        await core.platform.deliver(message("/title behind it"))
        await core.platform.until(lambda: len(core.platform.sent) == 2)
    assert ("could not be handled: RuntimeError" in core.platform.sent[0][1]) is is_owner
    assert core.platform.sent[0][1].startswith("I could not answer")
    assert core.platform.sent[1][1] == "Title: behind it"
    [(state, reason, attempts)] = rows(tmp_path, "SELECT state, reason, attempts FROM hermes_queue WHERE id = 1")
    assert (state, attempts) == ("dead", 5)
    assert "RuntimeError" in str(reason)
    assert rows(tmp_path, "SELECT content FROM messages") == [("defect",), (core.platform.sent[0][1],)]


async def test_message_joined_with_a_dead_letter_is_still_answered(tmp_path: Path) -> None:
    defects = iter(range(MAX_CRASHES))

    def script(request: ModelRequest) -> ScriptedAnswer:
        if next(defects, None) is not None:
            raise RuntimeError("a defect of the model's own")
        return echo(request)

    async with running_core(tmp_path, script, clock=QuickClock(20)) as core:
        await core.platform.deliver(message("spoilt"))
        await core.platform.deliver(message("honest"))
        await core.platform.until(lambda: len(core.platform.sent) == 2)
    assert core.platform.sent[0][1].startswith("I could not answer")
    assert "honest" in core.platform.sent[1][1]


@pytest.mark.contract("P1")
async def test_message_whose_turn_cannot_be_stored_stays_in_the_inbox(tmp_path: Path) -> None:
    async with running_core(tmp_path, clock=QuickClock(20)) as core:
        await core.store.write(
            lambda tx: tx.execute(
                "CREATE TRIGGER full BEFORE INSERT ON messages BEGIN SELECT RAISE(ABORT, 'no room'); END"
            )
        )
        await core.platform.deliver(message("hold on"))
        await appears(tmp_path, "SELECT 1 FROM hermes_queue WHERE reason LIKE '%no room%' AND attempts > 1")
        assert core.platform.sent == []
        await core.store.write(lambda tx: tx.execute("DROP TRIGGER full"))
        await core.platform.until(lambda: core.platform.texts("7") == ["echo: hold on"])
    assert rows(tmp_path, "SELECT content FROM messages WHERE role = 'user'") == [("hold on",)]


async def test_a_second_gateway_on_the_same_home_is_refused(tmp_path: Path) -> None:
    async with running_core(tmp_path) as core:
        await core.platform.deliver(message("hi"))
        app = load_app(tmp_path, SystemClock())
        async with await app.open_store() as store:
            second = open_gateway(app, store, ScriptedModel(echo))
            with pytest.raises(GatewayRunningError):
                await second.run([FakePlatform("other")], asyncio.Event())
        await core.platform.until(lambda: core.platform.texts("7") == ["echo: hi"])


async def test_replaced_gateway_does_not_change_the_status_of_its_successor(tmp_path: Path) -> None:
    async with running_core(tmp_path) as core:
        await core.platform.deliver(message("hi"))
        await core.store.write(_let_the_gateways_lease_end)
        async with running_core(tmp_path, platform=FakePlatform("other")) as successor:
            await successor.platform.deliver(message("hi", platform="other"))
            await core.end()
            assert rows(tmp_path, "SELECT part, state FROM hermes_gateway_status") == [("other", "ok")]


def _let_the_gateways_lease_end(tx: Tx) -> None:
    tx.execute("UPDATE hermes_leases SET expires_at = 1 WHERE name = 'gateway'")


@pytest.mark.contract("2.5", "P1")
async def test_shutdown_finishes_turns_and_sends_their_replies(tmp_path: Path) -> None:
    gate = Gate()
    async with running_core(tmp_path, gate) as core:
        await core.platform.deliver(message("wait"))
        await gate.asked.wait()
        core.stopping.set()
        gate.opened.set()
        await core.end()
        assert core.platform.texts("7") == ["echo: wait"]
    assert rows(tmp_path, "SELECT DISTINCT state FROM hermes_queue") == [("done",)]
    assert rows(tmp_path, "SELECT owner FROM hermes_leases WHERE owner IS NOT NULL") == []


async def test_turn_cancelled_by_a_lost_lane_logs_no_error(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    gate = Gate()
    async with running_core(tmp_path, gate, gateway__drain=0.1) as core:
        await core.platform.deliver(message("wait"))
        await gate.asked.wait()
        [(lane,)] = rows(tmp_path, "SELECT lane FROM hermes_queue WHERE queue = 'inbox'")
        await core.store.write(lambda tx: lanes.revoke_lane(tx, "inbox", str(lane)))
        await core.end()
    gc.collect()
    assert [record.name for record in caplog.records if record.levelname == "ERROR"] == []


@pytest.mark.contract("P1", "P2")
async def test_turn_cut_off_by_a_shutdown_is_answered_once_after_the_restart(tmp_path: Path) -> None:
    gate = Gate()
    async with running_core(tmp_path, gate, gateway__drain=0.1) as core:
        await core.platform.deliver(message("wait"))
        await gate.asked.wait()
        await core.platform.deliver(message("and this"))
        await core.end()
        assert core.platform.sent == []
    async with running_core(tmp_path) as core:
        await core.platform.until(lambda: bool(core.platform.sent))
    assert core.platform.texts("7") == ["echo: wait + and this"]
    assert rows(tmp_path, "SELECT content FROM messages WHERE role = 'user'") == [("wait",), ("and this",)]


@pytest.mark.contract("2.6")
async def test_tool_call_cut_off_by_a_crash_is_interrupted_and_not_repeated(tmp_path: Path) -> None:
    async with running_core(tmp_path) as core:
        await core.platform.deliver(message("first"))
        await core.platform.until(lambda: len(core.platform.sent) == 1)
        [session] = sessions(tmp_path)
    call = '[{"id": "c1", "type": "function", "function": {"name": "launch", "arguments": "{}"}}]'
    await _insert_call(tmp_path, session, call)
    async with running_core(tmp_path) as core:
        await core.platform.deliver(message("and now?"))
        await core.platform.until(lambda: len(core.platform.sent) == 1)
        [result] = [m for m in core.model.requests[-1].messages if m["role"] == "tool"]
    assert "interrupted" in result["content"]


async def _insert_call(home: Path, session: str, call: str) -> None:
    app = load_app(home, SystemClock())
    async with await app.open_store() as store:
        await store.write(
            lambda tx: tx.execute(
                "INSERT INTO messages (session_id, role, content, tool_calls, timestamp) VALUES (?, ?, '', ?, 1)",
                (session, "assistant", call),
            )
        )


async def test_failed_platform_is_reported_and_restarted(tmp_path: Path) -> None:
    class Shaky(FakePlatform):
        falls = 1

        async def run(self, intake: object) -> None:
            if self.falls:
                self.falls -= 1
                raise ConnectionError("the wire is cut")
            await super().run(intake)  # type: ignore[arg-type]

    async with running_core(tmp_path, platform=Shaky(), clock=QuickClock(20)) as core:
        await appears(tmp_path, "SELECT 1 FROM hermes_gateway_status WHERE state = 'failing'")
        await core.platform.deliver(message("hi"))
        await core.platform.until(lambda: core.platform.texts("7") == ["echo: hi"])
        assert rows(tmp_path, "SELECT state FROM hermes_gateway_status WHERE part = 'fake'") == [("ok",)]


async def test_preview_is_edited_until_it_is_the_reply(tmp_path: Path) -> None:
    long = "wait for a long story about stamps from Malta and from Gozo"
    gate = Gate()

    def script(request: ModelRequest) -> ScriptedAnswer:
        gate.asked.set()
        reply = f"echo: {long}"
        return [TextPiece(reply), gate.opened, Completed(Reply(reply + "."))]

    async with running_core(tmp_path, script, platform=FakePlatform(can_edit=True)) as core:
        await core.platform.deliver(message("tell me"))
        await core.platform.until(lambda: core.platform.texts("7") == [f"echo: {long}"])
        gate.opened.set()
        await core.platform.until(lambda: core.platform.texts("7") == [f"echo: {long}."])
        assert core.platform.edits == [("1", f"echo: {long}.")]


async def test_preview_in_flight_is_replaced_by_the_reply(tmp_path: Path) -> None:
    """Otherwise the person would see both."""
    preview = "a long story about stamps from Malta and from Gozo"

    class Slow(FakePlatform):
        async def send(self, chat: Chat, text: str, key: str = "") -> str:
            if text == preview:
                sending.set()
                await go_on.wait()
            return await super().send(chat, text)

    sending, go_on = asyncio.Event(), asyncio.Event()

    def script(request: ModelRequest) -> ScriptedAnswer:
        return [TextPiece(preview), sending, Completed(Reply(preview + "."))]

    async with running_core(tmp_path, script, platform=Slow(can_edit=True)) as core:
        await core.platform.deliver(message("tell me"))
        await sending.wait()
        asyncio.get_running_loop().call_later(0.3, go_on.set)  # by then the reply has come
        await core.platform.until(lambda: bool(core.platform.edits))
        assert core.platform.texts("7") == [f"{preview}."]
