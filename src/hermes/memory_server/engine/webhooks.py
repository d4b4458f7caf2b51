"""Webhooks: the endpoints to which a workspace's events are posted.

Webhook delivery: post an event to an address in the public network, and to no other.

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

from sqlalchemy import bindparam, delete, func, insert, or_, select, text

from hermes.memory_server import limits, times
from hermes.memory_server.db.database import JsonMap, Record, Tx
from hermes.memory_server.db.statements import PreparedStatement
from hermes.memory_server.db.tables import OPEN_JOB, jobs, webhooks, workspaces
from hermes.memory_server.engine.answers import forget_webhook_answers
from hermes.memory_server.engine.job_kinds import TRACKED, WebhookJob
from hermes.memory_server.engine.jobs import add_job
from hermes.memory_server.engine.paging import Paged, PageRequest, fetch_page
from hermes.memory_server.engine.workspaces import get_workspace, lock_workspace
from hermes.memory_server.faults import Conflict, Missing
from hermes.memory_server.ids import new_id

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


COLUMNS = (*webhooks.c, workspaces.c.name.label("workspace"))
WEBHOOKS = webhooks.join(workspaces, workspaces.c.id == webhooks.c.workspace_id)
WAITING = PreparedStatement(
    select(jobs.c.id)
    .where(jobs.c.workspace_id == bindparam("workspace_id"), or_(*(jobs.c.kind == kind for kind in TRACKED)))
    .where(text(OPEN_JOB))
    .limit(1)
)
ANY = PreparedStatement(select(webhooks.c.id).where(webhooks.c.workspace_id == bindparam("workspace_id")).limit(1))


def check_url(url: str) -> str:
    """Return the URL if it may be public. Raise ValueError otherwise. What a name resolves to is checked at each
    delivery.
    """
    if len(url) > limits.URL_CHARS:
        raise ValueError(f"URL exceeds maximum of {limits.URL_CHARS} characters")
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        _ = parts.port
    except ValueError as error:
        raise ValueError(f"Invalid URL format: {error}") from error
    if parts.scheme not in ("http", "https") or not host:
        raise ValueError("Invalid URL format: a webhook URL begins with http:// or https:// and names a host")
    address = literal_address(host)
    inner = host.rstrip(".").lower() == "localhost" or host.rstrip(".").lower().endswith(".localhost")
    if inner or (address is not None and not is_public(address)):
        raise ValueError("A webhook cannot point to a private, loopback, link-local or reserved address")
    return url


def ensure_webhook(tx: Tx, workspace: str, url: str, at: int) -> tuple[Record, bool]:
    """Return the endpoint, and whether it was created. Raise Missing if the workspace does not exist."""
    place = lock_workspace(tx, workspace)
    query = select(*COLUMNS).select_from(WEBHOOKS).where(webhooks.c.workspace_id == place.id, webhooks.c.url == url)
    found = tx.execute(query).first()
    if found is not None:
        return found, False
    held = select(func.count()).select_from(webhooks).where(webhooks.c.workspace_id == place.id)
    if tx.execute(held).scalar_one() >= limits.MAX_WEBHOOKS:
        raise Conflict(f"A workspace can have at most {limits.MAX_WEBHOOKS} webhook endpoints")
    tx.execute(insert(webhooks).values(public_id=new_id(), workspace_id=place.id, url=url, created_at=at))
    return tx.execute(query).one(), True


def list_webhooks(tx: Tx, workspace: str, page: PageRequest) -> Paged:
    """Return a page of a workspace's endpoints, the oldest first."""
    place = get_workspace(tx, workspace)
    query = select(*COLUMNS).select_from(WEBHOOKS).where(webhooks.c.workspace_id == place.id)
    return fetch_page(tx, query, (webhooks.c.id,), page)


def delete_webhook(tx: Tx, workspace: str, public_id: str) -> None:
    place = get_workspace(tx, workspace)
    own = (webhooks.c.workspace_id == place.id, webhooks.c.public_id == public_id)
    if tx.execute(delete(webhooks).where(*own)).rowcount == 0:
        raise Missing("Webhook endpoint", public_id, workspace)
    forget_webhook_answers(tx, place.id, public_id)


def announce(tx: Tx, workspace_id: int, event: str, data: JsonMap, at: int) -> None:
    """Queue an event for each endpoint of the workspace."""
    body = {"type": event, "data": dict(data), "timestamp": times.to_wire(at)}
    urls = select(webhooks.c.url).where(webhooks.c.workspace_id == workspace_id)
    for url in tx.execute(urls).scalars().all():
        add_job(tx, WebhookJob(url, body), f"webhook:{workspace_id}:{url}", at, workspace_id)


def announce_empty_queue(tx: Tx, workspace_id: int, queue_type: str, at: int) -> None:
    """Queue the event `queue.empty` once the last tracked job is done."""
    if ANY.first(tx, workspace_id=workspace_id) is None:
        return
    # Of two jobs that end at the same time, the second waits here and sees the first.
    owner = select(workspaces.c.name).where(workspaces.c.id == workspace_id).with_for_update(key_share=True)
    name = tx.execute(owner).scalar_one_or_none()
    if name is not None and WAITING.first(tx, workspace_id=workspace_id) is None:
        announce(tx, workspace_id, "queue.empty", {"workspace_id": name, "queue_type": queue_type}, at)
