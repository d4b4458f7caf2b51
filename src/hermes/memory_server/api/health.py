"""`/health`. It reports the state seen last, so that it is as fast under load as without."""

from __future__ import annotations

from typing import Any

from fastapi import Request
from starlette.responses import Response

from hermes import __version__
from hermes.loopback import CHALLENGE, CHALLENGE_CHARS, PROOF, prove
from hermes.memory_server.api.server import Server, ServerDep
from hermes.memory_server.api.wire import JsonResponse
from hermes.memory_server.engine.health import OK

EXTENSIONS: tuple[str, ...] = (
    "idempotency",
    "delete_peer",
    "delete_messages",
    "edit_conclusion",
    "provenance",
    "merge_peers",
    "move_in_session",
    "export",
    "import",
    "search_scores",
    "evidence",
    "context_views",
    "narrow_answers",
    "both_views",
    "truth_over_time",
    "dreams",
    "reread",
)
"""One name per extension. A name never changes its meaning."""


async def report_health(request: Request, here: ServerDep) -> Response:
    """Return the server's state, its backlog, and the extensions that it offers beyond the official API."""
    file = await here.health.status()
    stopped = here.worker is not None and not here.worker.is_alive()
    status = "worker stopped" if file == OK and stopped else file
    return JsonResponse(_describe(here, status, file), 200 if status == OK else 503, headers=_proof(request, here))


def _describe(here: Server, status: str, file: str) -> dict[str, Any]:
    backlog = here.health.backlog
    worker = "elsewhere" if here.worker is None else "running" if here.worker.is_alive() else "stopped"
    return {
        "status": status,
        "version": __version__,
        "database": file,
        "worker": worker,
        "model": _describe_model(here),
        "finer_vectors": _describe_finer(here),
        "lag": {
            "waiting_jobs": backlog.waiting,
            "oldest_job_seconds": round(backlog.oldest, 3),
            "messages_without_vector": backlog.unfindable,
            "retried": backlog.retried,
            "reasons": backlog.reasons,
        },
        "rereading": here.health.rereading,
        "disk_free_bytes": here.health.free_bytes,
        "extensions": EXTENSIONS,
    }


def _describe_model(here: Server) -> dict[str, Any] | None:
    """Return the state of the model; None if answers, summaries and conclusions are made without one."""
    told = here.models.report()
    return None if told is None else told | {"today": here.health.model_calls, "waiting": here.health.deferred}


def _describe_finer(here: Server) -> dict[str, Any] | None:
    if here.refinement is None:
        return None
    told = {"embedder": here.refinement.name, "state": here.refinement.state}
    return told | {
        "messages_without": here.health.without_finer,
        "messages_refused": here.health.refused_by_finer,
    }


def _proof(request: Request, here: Server) -> dict[str, str]:
    challenge = request.headers.get(CHALLENGE, "")
    if not here.options.start_id or not 0 < len(challenge) <= CHALLENGE_CHARS:
        return {}
    return {PROOF: prove(here.options.start_id, challenge)}
