"""The owner's files are sent to the owner's own sessions, once, and to no other session."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from hermes.honcho.plugin import HonchoPlugin
from hermes.memory.provider import Conversation, Delivered
from tests.honcho.configuring import Machine
from tests.honcho.misbehaving import Misbehaving, on
from tests.honcho.writing import ANN, GROUP, HERE, Arrived, KeepingHost, Lane, Writer
from tests.memory_server.serving import Served

pytestmark = pytest.mark.processes
GUEST = Conversation("s2", "telegram", "own", ANN, "dm", "agent:main:telegram:dm:17")
FILES = {
    "memories/USER.md": "likes figs\n",
    "memories/MEMORY.md": "the build needs make\n",
    "SOUL.md": "You are kind.\n",
}


@pytest.fixture(autouse=True)
def _files(machine: Machine) -> None:
    """Create the owner's files."""
    for name, text in FILES.items():
        path = machine.home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def put_by(plugin: HonchoPlugin) -> dict[str, object]:
    assert isinstance(plugin.host, KeepingHost)
    return plugin.host.entries


@pytest.mark.contract("5.12")
async def test_owners_session_gets_the_files_once(writer: Writer, server: Served, workspace: str) -> None:
    async with Misbehaving(server.url).served() as proxy:
        plugin = writer(proxy.url, workspace=workspace)
        lane = Lane(plugin)
        lane.put("hello")
        await lane.drain()
        [(key, act)] = put_by(plugin).items()
        assert key == f"files:{workspace}/app"
        lane.put("", "own", None, act)
        proxy.choose = on("/messages", "reset after")
        outcomes = dict(await lane.drain())
        again = Lane(writer(proxy.url, workspace=workspace), name="again")
        assert isinstance(again.plugin.host, KeepingHost)
        assert isinstance(plugin.host, KeepingHost)
        again.plugin.host.values.update(plugin.host.values)  # what is kept is there after a restart
        again.put("hello again")
        await again.drain()
        assert put_by(again.plugin) == {}
    assert [type(outcome) for outcome in outcomes.values()] == [Delivered, Delivered]
    assert Arrived(server, workspace).said() == [
        ("ann", "hello"),
        ("ann", "USER.md:\n\nlikes figs"),
        ("ann", "MEMORY.md:\n\nthe build needs make"),
        ("bot", "SOUL.md:\n\nYou are kind."),
        ("ann", "hello again"),
    ]


@pytest.mark.contract("5.12")
@pytest.mark.parametrize("place", [GUEST, GROUP], ids=["guest", "group"])
async def test_guests_and_groups_never_get_the_owners_files(
    writer: Writer, server: Served, workspace: str, place: Conversation
) -> None:
    plugin = writer(server.url, workspace=workspace)
    lane = Lane(plugin, place)
    lane.put("hello", speaker=ANN)
    await lane.drain()
    assert put_by(plugin) == {}


@pytest.mark.contract("5.12")
@pytest.mark.parametrize(
    ("place", "strategy"),
    [
        (replace(HERE, session_id="s9"), "per-session"),
        (replace(HERE, gateway_session_key="agent:main:telegram:dm:42"), "per-session"),
        (replace(HERE, directory=None), "per-directory"),
    ],
    ids=["terminal", "chat", "no directory"],
)
async def test_sessions_per_conversation_do_not_get_the_files(
    writer: Writer, server: Served, workspace: str, place: Conversation, strategy: str
) -> None:
    plugin = writer(server.url, workspace=workspace, sessionStrategy=strategy)
    lane = Lane(plugin, place)
    lane.put("hello")
    await lane.drain()
    assert put_by(plugin) == {}


@pytest.mark.contract("5.12", "6.6")
async def test_files_are_not_sent_if_messages_are_not_saved(writer: Writer, server: Served, workspace: str) -> None:
    plugin = writer(server.url, workspace=workspace, saveMessages=False)
    lane = Lane(plugin)
    lane.put("what was said before it was switched off")
    await lane.drain()
    assert put_by(plugin) == {}
