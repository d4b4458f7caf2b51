"""Webhooks: the endpoints to which a workspace's events are posted."""

from __future__ import annotations

from urllib.parse import urlsplit

from sqlalchemy import bindparam, delete, func, insert, or_, select, text

from hermes.memory_server import limits, times
from hermes.memory_server.db.database import JsonMap, Record, Tx
from hermes.memory_server.db.statements import PreparedStatement
from hermes.memory_server.db.tables import OPEN_JOB, jobs, webhooks, workspaces
from hermes.memory_server.engine.answers import forget_webhook_answers
from hermes.memory_server.engine.delivery import is_public, literal_address
from hermes.memory_server.engine.jobs import TRACKED, add_job
from hermes.memory_server.engine.paging import Paged, PageRequest, fetch_page
from hermes.memory_server.engine.workspaces import get_workspace, lock_workspace
from hermes.memory_server.faults import Conflict, Missing
from hermes.memory_server.ids import new_id

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
        add_job(tx, "webhook", f"webhook:{workspace_id}:{url}", at, workspace_id, {"url": url, "body": body})


def announce_empty_queue(tx: Tx, workspace_id: int, queue_type: str, at: int) -> None:
    """Queue the event `queue.empty` once the last tracked job is done."""
    if ANY.first(tx, workspace_id=workspace_id) is None:
        return
    # Of two jobs that end at the same time, the second waits here and sees the first.
    owner = select(workspaces.c.name).where(workspaces.c.id == workspace_id).with_for_update(key_share=True)
    name = tx.execute(owner).scalar_one_or_none()
    if name is not None and WAITING.first(tx, workspace_id=workspace_id) is None:
        announce(tx, workspace_id, "queue.empty", {"workspace_id": name, "queue_type": queue_type}, at)
