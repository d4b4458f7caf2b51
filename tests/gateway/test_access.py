"""Access to the agent: allow-list, pairing and refusals."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.gateway.core import message, running_core
from tests.gateway.processes import rows


@pytest.mark.parametrize(
    ("allow", "author", "alt", "welcome"),
    [
        ("*", "ann", None, True),
        ("fake:*", "ann", None, True),
        ("fake:ann", "ann", None, True),
        ("fake:@ann", "17", "@ann", True),
        ("other:*", "ann", None, False),
        ("fake:bob,fake:eve", "ann", "@ann", False),
        ("", "ann", None, False),
    ],
)
async def test_the_allow_list_decides(tmp_path: Path, allow: str, author: str, alt: str | None, welcome: bool) -> None:
    async with running_core(tmp_path, gateway__allow=allow) as core:
        await core.platform.deliver(message("hello", author=author, alt=alt))
        await core.platform.until(lambda: len(core.platform.sent) == 1)
        assert (core.platform.sent[0][1] == "echo: hello") == welcome
    stored = rows(tmp_path, "SELECT content FROM messages WHERE role = 'user'")
    assert stored == ([("hello",)] if welcome else [])


async def test_a_stranger_is_refused_once_and_welcome_when_paired(tmp_path: Path) -> None:
    async with running_core(tmp_path, gateway__allow="") as core:
        await core.platform.deliver(message("let me in", author="eve"))
        await core.platform.until(lambda: len(core.platform.sent) == 1)
        for text in ("please", "please!"):
            await core.platform.deliver(message(text, author="eve"))
        [(code,)] = rows(tmp_path, "SELECT code FROM hermes_pairings")
        assert f"hermes gateway pair {code}" in core.platform.sent[0][1]
        await core.store.write(lambda tx: tx.execute("UPDATE hermes_pairings SET state = 'allowed'"))
        await core.platform.deliver(message("thanks", author="eve"))
        await core.platform.until(lambda: len(core.platform.sent) == 2)
        assert core.platform.sent[1][1] == "echo: thanks"
    assert rows(tmp_path, "SELECT content FROM messages WHERE role = 'user'") == [("thanks",)]


async def test_a_stranger_in_a_group_is_ignored(tmp_path: Path) -> None:
    async with running_core(tmp_path, gateway__allow="fake:ann") as core:
        await core.platform.deliver(message("hey", "g", kind="group", author="eve"))
        await core.platform.deliver(message("hello", "g", kind="group", author="ann"))
        await core.platform.until(lambda: len(core.platform.sent) == 1)
    assert core.platform.sent == [("g", "echo: [Ann] hello")]
    assert rows(tmp_path, "SELECT count(*) FROM hermes_pairings") == [(0,)]


async def test_someone_paired_may_talk_in_groups_too(tmp_path: Path) -> None:
    async with running_core(tmp_path, gateway__allow="") as core:
        await core.platform.deliver(message("hi", author="eve"))
        await core.platform.until(lambda: len(core.platform.sent) == 1)
        await core.store.write(lambda tx: tx.execute("UPDATE hermes_pairings SET state = 'allowed'"))
        await core.platform.deliver(message("hello", "g", kind="group", author="eve"))
        await core.platform.until(lambda: core.platform.texts("g") == ["echo: [Eve] hello"])
    assert rows(tmp_path, "SELECT content FROM messages WHERE role = 'user'") == [("hello",)]
