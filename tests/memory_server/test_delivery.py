"""Addresses to which webhooks may be sent: the address that is checked is the one that is used."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from ipaddress import ip_address

import pytest

from hermes.memory_server.engine.webhooks import DeliveryError, WebhookDelivery, is_public
from tests.memory_server.inside import inward


def leading_to(*addresses: str) -> Callable[[str, int], Awaitable[Sequence[str]]]:
    async def resolve(_host: str, _port: int) -> Sequence[str]:
        return addresses

    return resolve


@asynccontextmanager
async def answering(answer: bytes) -> AsyncIterator[tuple[int, list[bytes]]]:
    """Run an endpoint with this answer; yield its port and the requests it received."""
    sent: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        sent.append(await reader.read(10_000))
        writer.write(answer)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1], sent


@pytest.mark.parametrize(
    "address", ["127.0.0.1", "10.1.2.3", "169.254.169.254", "::1", "fe80::1%eth0", "::ffff:10.0.0.1"]
)
async def test_name_that_leads_to_an_inner_address_is_not_connected_to(address: str) -> None:
    async with answering(b"HTTP/1.1 204 No Content\r\n\r\n") as (port, sent):
        for found in ((address,), ("93.184.215.14", address)):
            with pytest.raises(DeliveryError, match="not a public address"):
                await WebhookDelivery(resolve=leading_to(*found)).post(f"http://hook.example:{port}/x", {})
        assert sent == []


@pytest.mark.parametrize("host", ["127.0.0.1", "127。0。0。1", "2130706433", "[::ffff:127.0.0.1]"])
async def test_inner_address_in_the_url_itself_is_not_connected_to(host: str) -> None:
    async with answering(b"HTTP/1.1 204 No Content\r\n\r\n") as (port, sent):
        with pytest.raises(DeliveryError, match="not a public address"):
            await WebhookDelivery().post(f"http://{host}:{port}/x", {})
        assert sent == []


async def test_own_name_of_this_machine_is_resolved_and_refused() -> None:
    with pytest.raises(DeliveryError, match="not a public address"):
        await WebhookDelivery().post("http://localhost:1/x", {})


async def test_event_is_posted_to_the_address_that_was_looked_at() -> None:
    async with answering(b"HTTP/1.1 204 No Content\r\n\r\n") as (port, sent):
        await inward().post(f"http://me:pass@hook.example:{port}/x?y=1", {"b": 1, "a": "ä"})
    [head, body] = sent[0].split(b"\r\n\r\n")
    assert head.split(b"\r\n")[:2] == [b"POST /x?y=1 HTTP/1.1", f"Host: hook.example:{port}".encode()]
    assert body == '{"a":"ä","b":1}'.encode()


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"HTTP/1.1 500 Oh\r\nno\r\n\r\n", "answered 500"),
        (b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1/\r\n\r\n", "answered 302"),
        (b"SSH-2.0-OpenSSH\r\n", "did not answer in HTTP"),
        (b"", "did not answer in HTTP"),
        (b"x" * 100_000, "did not answer in HTTP"),
    ],
)
async def test_endpoint_that_does_not_take_the_event_is_an_error_without_its_words(answer: bytes, reason: str) -> None:
    async with answering(answer) as (port, _):
        with pytest.raises(DeliveryError, match=reason) as caught:
            await inward().post(f"http://hook.example:{port}/", {})
    assert "\n" not in str(caught.value)


async def test_certificate_of_another_is_refused() -> None:
    async with answering(b"HTTP/1.1 204 No Content\r\n\r\n") as (port, _):
        with pytest.raises(DeliveryError, match="cannot connect"):
            await inward().post(f"https://hook.example:{port}/", {})
    assert ssl.create_default_context().check_hostname


@pytest.mark.parametrize(
    ("address", "public"),
    [
        ("93.184.215.14", True),
        ("2606:2800:21f:cb07:6820:80da:af6b:8b2c", True),
        ("::ffff:93.184.215.14", True),
        ("100.64.0.1", False),
        ("192.168.1.1", False),
        ("0.0.0.1", False),
        ("64:ff9b::5db8:d70e", True),
        ("64:ff9b::7f00:1", False),
        ("64:ff9b::a00:1", False),
        ("64:ff9b:1::7f00:1", False),
        ("2002:5db8:d70e::1", True),
        ("2002:7f00:0001::", False),
        ("::127.0.0.1", False),
        ("::93.184.215.14", False),
        ("::ffff:0:7f00:1", False),
        ("2001:0:5db8:d70e:0:0:80ff:fffe", False),
        ("2606:2800::5efe:7f00:1", False),
        ("2606:2800::200:5efe:a00:1", False),
        ("2606:2800::5efe:5db8:d70e", True),
        ("ff0e::1", False),
        ("fec0::1", False),
        ("fc00::1", False),
        ("239.1.1.1", False),
    ],
)
def test_only_addresses_of_the_public_network_are_public(address: str, public: bool) -> None:
    assert is_public(ip_address(address)) is public
