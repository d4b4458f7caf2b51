"""Webhook delivery: post an event to an address in the public network, and to no other.

The name is resolved here, each of its addresses is checked, and the connection goes to a checked address. Redirects
are not followed, and only the status line of the response is read.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import ipaddress
import json
import socket
import ssl
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Any
from urllib.parse import SplitResult, urlsplit

IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
GLOBAL_UNICAST, NAT64 = ipaddress.IPv6Network("2000::/3"), ipaddress.IPv6Network("64:ff9b::/96")
MAX_STATUS_LINE_BYTES = 1000
"""The number of bytes of the response that are read to find its status line."""


class DeliveryError(Exception):
    """An endpoint that cannot be reached or did not accept the event."""


def is_public(address: IpAddress) -> bool:
    """Return True if the address is in the public network, and the IPv4 address embedded in it, if any, is too."""
    if isinstance(address, ipaddress.IPv4Address):
        return address.is_global and not address.is_multicast
    last = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    if address.ipv4_mapped is not None or address in NAT64:
        return is_public(last)
    if address not in GLOBAL_UNICAST or not address.is_global or address.teredo is not None:
        return False
    is_isatap = (int(address) >> 32) & 0xFDFFFFFF == 0x5EFE
    inner = last if is_isatap else address.sixtofour
    return inner is None or is_public(inner)


def literal_address(host: str) -> IpAddress | None:
    """Return the address that a host is, in any notation that resolvers accept; None for a name."""
    with suppress(ValueError):
        return ipaddress.ip_address(host.partition("%")[0])
    with suppress(UnicodeError):
        host = host.encode("idna").decode()  # full-width digits and dots are digits and dots
    with suppress(OSError, ValueError):
        return ipaddress.IPv4Address(socket.inet_aton(host.rstrip(".")))
    return None


async def resolve(host: str, port: int) -> Sequence[str]:
    """Return the addresses of a name. Each lookup has its own thread, so a slow one delays neither others nor
    shutdown.
    """
    loop = asyncio.get_running_loop()
    found: asyncio.Future[list[str]] = loop.create_future()

    def ask() -> None:
        try:
            rows = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            outcome: list[str] | Exception = list(dict.fromkeys(str(row[4][0]) for row in rows))
        except (OSError, UnicodeError) as error:
            outcome = DeliveryError(f"the name cannot be resolved: {error}")
        with suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(_set_outcome, found, outcome)

    threading.Thread(target=ask, name="webhook name", daemon=True).start()
    return await found


def _set_outcome(found: asyncio.Future[list[str]], outcome: list[str] | Exception) -> None:
    if found.cancelled():
        return
    if isinstance(outcome, Exception):
        found.set_exception(outcome)
    else:
        found.set_result(outcome)


@dataclass(frozen=True, slots=True)
class WebhookDelivery:
    secret: str = ""
    may_reach: Callable[[IpAddress], bool] = is_public
    resolve: Callable[[str, int], Awaitable[Sequence[str]]] = resolve

    async def post(self, url: str, body: Mapping[str, Any]) -> None:
        """Post an event. Raise DeliveryError if the endpoint is not public, cannot be reached, or does not answer
        2xx.
        """
        parts = urlsplit(url)
        host, secure = parts.hostname or "", parts.scheme == "https"
        port = parts.port or (443 if secure else 80)
        address = await self._choose(host, port)
        context = await asyncio.to_thread(_tls) if secure else None
        try:
            reader, writer = await asyncio.open_connection(
                address, port, ssl=context, server_hostname=host if secure else None, limit=MAX_STATUS_LINE_BYTES
            )
        except OSError as error:
            raise DeliveryError(f"cannot connect: {error}") from error
        try:
            writer.write(_request(parts, *encode_event(body, self.secret)))
            await writer.drain()
            _check(await reader.readuntil(b"\n"))
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
            raise DeliveryError("the endpoint did not answer in HTTP") from error
        finally:
            writer.transport.abort()

    async def _choose(self, host: str, port: int) -> str:
        literal = literal_address(host)
        found = [str(literal)] if literal is not None else await self.resolve(host, port)
        if not found:
            raise DeliveryError("the name has no address")
        for address in found:
            if not self.may_reach(ipaddress.ip_address(address.partition("%")[0])):
                raise DeliveryError(f"{address} is not a public address")
        return found[0]


def encode_event(body: Mapping[str, Any], secret: str) -> tuple[bytes, dict[str, str]]:
    """Return the bytes to post and their headers, signed if there is a secret."""
    content = json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
    headers = {"Content-Type": "application/json"}
    if secret:
        headers["X-Honcho-Signature"] = hmac.new(secret.encode(), content, hashlib.sha256).hexdigest()
    return content, headers


def _request(parts: SplitResult, content: bytes, headers: Mapping[str, str]) -> bytes:
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    host = parts.netloc.rpartition("@")[2]
    lines = [f"POST {target} HTTP/1.1", f"Host: {host}", f"Content-Length: {len(content)}", "Connection: close"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode("utf-8") + content


def _check(line: bytes) -> None:
    words = line.split()
    if len(words) < 2 or not words[0].startswith(b"HTTP/1") or not words[1].isdigit():
        raise DeliveryError("the endpoint did not answer in HTTP")
    if not words[1].startswith(b"2"):
        raise DeliveryError(f"the endpoint answered {words[1].decode()}")


@cache
def _tls() -> ssl.SSLContext:
    return ssl.create_default_context()
