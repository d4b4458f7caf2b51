"""Addresses and their secrets."""

from __future__ import annotations

import pytest

from hermes.llm.model import Endpoint


@pytest.mark.parametrize(
    ("base", "url"),
    [
        ("http://127.0.0.1:11434/v1", "http://127.0.0.1:11434/v1/chat/completions"),
        (" https://api.example.com/v1/ ", "https://api.example.com/v1/chat/completions"),
        ("https://api.example.com", "https://api.example.com/chat/completions"),
        ("HTTP://api.example.com/v1/chat/completions", "http://api.example.com/v1/chat/completions"),
        ("https://x.example.com/a/b?api-version=2", "https://x.example.com/a/b/chat/completions?api-version=2"),
        ("http://[::1]:8080/v1", "http://[::1]:8080/v1/chat/completions"),
        ("https://me:secret@x.example.com/v1", "https://x.example.com/v1/chat/completions"),
    ],
)
def test_the_path_is_put_below_the_base(base: str, url: str) -> None:
    assert Endpoint.parse(base).url("/chat/completions") == url


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("127.0.0.1:1", True),
        ("127.9.9.9", True),
        ("localhost:8080", True),
        ("LOCALHOST", True),
        ("models.localhost", True),
        ("[::1]:8080", True),
        ("0.0.0.0:11434", True),
        ("192.168.0.7", False),
        ("localhost.example.com", False),
        ("api.example.com", False),
    ],
)
def test_loopback_hosts_are_recognised(host: str, loopback: bool) -> None:
    assert Endpoint.parse(f"http://{host}/v1").is_loopback is loopback


def test_secrets_are_in_no_repr() -> None:
    shown = repr(Endpoint.parse("https://me:hunter22@x.example.com/v1", "sk-12345678"))
    assert "x.example.com" in shown
    assert not any(secret in shown for secret in ("hunter22", "sk-12345678", "bWU6"))


def test_secrets_are_hidden_wherever_they_stand() -> None:
    endpoint = Endpoint.parse("https://me:hunter22@x.example.com", "sk-12345678")
    assert endpoint.hide("(sk-12345678), asksk-12345678! hunter22") == "(***), ask***! ***"


def test_a_short_key_is_hidden_only_where_it_stands_alone() -> None:
    assert Endpoint.parse("http://x.example.com", "no").hide("no: nothing, 'no'") == "***: nothing, '***'"
