"""Nine agents of nine profiles in one channel, which read each other and compress at the same time."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from hermes.gateway.lanes import CHAIN_ENDED
from tests.gateway.chat_platforms import HallName, one_hall
from tests.gateway.processes import GatewayProcess, echo_model, model_settings, wait_until, write_config
from tests.scale import scale

pytestmark = pytest.mark.processes
AGENTS = scale(3, 9)
ROUNDS = scale(2, 6)
REPLIES = 2
PADDING = "stamps from Malta and from Gozo " * 30


@pytest.mark.stress
@pytest.mark.parametrize("name", ["discord", "slack", "telegram"])
@pytest.mark.timeout(600)
@pytest.mark.contract("3.10", "10.56")
def test_agents_in_one_channel_keep_ids_and_order_and_fall_silent(name: HallName, tmp_path: Path) -> None:
    profiles = [f"agent{number}" for number in range(AGENTS)]
    with one_hall(name) as platform, echo_model() as model, ExitStack() as stack:
        bots = {profile: platform.add_agent(profile) for profile in profiles}
        gateways = {}
        for profile, (_, settings) in bots.items():
            more = {
                f"{name}.mentions_only": False,
                "gateway.allow": "*",
                "gateway.agents": [f"{name}:{bot_id}" for bot_id, _ in bots.values()],
                "gateway.agent_replies": REPLIES,
                "model.context_length": 8000,
            }
            home = tmp_path / "profiles" / profile
            write_config(home, {**model_settings(model), **settings, **more})
            gateways[profile] = stack.enter_context(_Begun(home, profile=profile))
        wait_until(lambda: all(one.status().get(name, "").startswith("ok") for one in gateways.values()))
        said: list[str] = []

        def is_quiet() -> bool:
            heard = {profile: len(platform.heard_in_hall(bots[profile][0])) for profile in profiles}
            return all(_is_at_rest(gateways[profile], heard[profile]) for profile in profiles)

        for number in range(ROUNDS):
            for person in (0, 1):
                said.append(f"{person} in round {number}: {PADDING}".strip())
                platform.call_out(person, said[-1])
            platform.call_out(0, "/compress")
            wait_until(is_quiet)
        for profile, gateway in gateways.items():
            gateway.stop()
            _check(gateway, profile, name, said)
            texts = platform.texts_in_hall(bots[profile][0])
            replies = gateway.said("assistant")
            heard = platform.heard_in_hall(bots[profile][0])
            assert sorted(gateway.said()) == sorted(heard), "all that others said is kept, once"
            assert [text for text in texts if text in replies] == replies, "each reply is shown once, in order"
            assert texts.count(CHAIN_ENDED.format(replies=REPLIES)) <= len(said) + 1


class _Begun(GatewayProcess):
    """A gateway that is started without waiting for an API."""

    def __enter__(self) -> _Begun:
        self.begin()
        return self


def _is_at_rest(gateway: GatewayProcess, heard: int) -> bool:
    """Return True once all messages of others are stored and no item waits."""
    return len(gateway.said()) >= heard and not gateway.rows("SELECT 1 FROM hermes_queue WHERE state = 'waiting'")


def _check(gateway: GatewayProcess, profile: str, name: str, said: list[str]) -> None:
    """Check that the channel has one session for good, with people's messages once and in order, and each message of an
    agent once."""
    keys = gateway.rows("SELECT session_key FROM sessions WHERE chat_type = 'group'")
    assert len(keys) == 1, profile
    assert [text for text in gateway.said() if text in said] == said
    ids = gateway.rows("SELECT platform_message_id FROM messages WHERE platform_message_id IS NOT NULL")
    assert len(ids) == len(set(ids)), profile
    assert gateway.rows("SELECT 1 FROM hermes_queue WHERE state != 'done'") == []
    assert gateway.rows("SELECT 1 FROM hermes_compressions") != []
