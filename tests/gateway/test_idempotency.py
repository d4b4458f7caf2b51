"""Idempotency-Keys: a repeated one has no second effect, and it never identifies another message."""

from __future__ import annotations

import pytest

from tests.gateway.asking import ask, chunks, in_session, reply, streamed_text
from tests.gateway.processes import GatewayProcess, said

pytestmark = pytest.mark.contract("2.2", "P2", "10.2")


def by_key(key: str, idempotency: str) -> dict[str, str]:
    return {"X-Hermes-Session-Key": key, "Idempotency-Key": idempotency}


def test_message_repeated_after_new_gets_its_reply_and_session(gateway: GatewayProcess) -> None:
    first = ask(gateway.url, "hi", headers=by_key("after-new", "1"))
    old = first.headers["x-hermes-session-id"]
    assert "idempotent-replayed" not in first.headers
    begun = reply(ask(gateway.url, "/new", headers=by_key("after-new", "2")))
    ask(gateway.url, "hello", headers=by_key("after-new", "3"))
    again = ask(gateway.url, "hi", headers=by_key("after-new", "1"))
    streamed = ask(gateway.url, "hi", headers=by_key("after-new", "1"), stream=True)
    assert reply(again) == streamed_text(chunks(streamed.text)) == "echo: hi"
    for answer in (again, streamed):
        assert answer.headers["x-hermes-session-id"] == old
        assert answer.headers["idempotent-replayed"] == "true"
    assert reply(ask(gateway.url, "/new", headers=by_key("after-new", "2"))) == begun
    assert said(gateway.home, old) == ["hi"]
    [new] = [word.rstrip(".") for word in begun.split() if word.startswith("20")]
    assert said(gateway.home, new) == ["hello"]


@pytest.mark.parametrize("stream", [False, True])
def test_another_text_with_the_same_key_is_refused_also_after_new(gateway: GatewayProcess, stream: bool) -> None:
    key = f"reused-{stream}"
    ask(gateway.url, "hi", headers=by_key(key, "1"))
    for _ in range(2):
        refused = ask(gateway.url, "bye", headers=by_key(key, "1"), stream=stream)
        assert refused.status_code == 422
        assert refused.json()["error"]["code"] == "idempotency_key_reused"
        ask(gateway.url, "/new", headers=by_key(key, "2"))
    fresh = ask(gateway.url, "bye", headers=by_key(key, "3"))
    assert reply(fresh) == "echo: bye"
    assert said(gateway.home, fresh.headers["x-hermes-session-id"]) == ["bye"]


def test_another_text_with_the_same_key_is_refused_under_every_session_name(gateway: GatewayProcess) -> None:
    both = {**in_session("two-names", "1"), "X-Hermes-Session-Key": "its-key"}
    assert reply(ask(gateway.url, "hi", headers=both)) == "echo: hi"
    for headers in (both, in_session("two-names", "1"), by_key("its-key", "1")):
        assert ask(gateway.url, "bye", headers=headers).status_code == 422
        assert reply(ask(gateway.url, "hi", headers=headers)) == "echo: hi"
    assert said(gateway.home, "two-names") == ["hi"]
