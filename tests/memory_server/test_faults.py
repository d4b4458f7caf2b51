"""Every kind of database error maps to a deliberately chosen HTTP status."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest
from fastapi import FastAPI

from hermes import errors
from hermes.memory_server.api.faults import MOVED, NO_ROOM, REPLACED, TOO_SLOW, UNEXPECTED, install

STORE = {
    errors.StoreError: 500,
    errors.StoreBusyError: 503,
    errors.StoreFullError: 507,
    errors.StoreStoppedError: 422,
    errors.StoreReadOnlyError: 500,
    errors.StoreDamagedError: 500,
    errors.StoreGoneError: 503,
    errors.StoreNewerError: 500,
    errors.StoreEmbedderError: 500,
    errors.StoreUnreachableError: 503,
    errors.StoreMovedError: 503,
}


def tree(kind: type[Exception]) -> Iterator[type[Exception]]:
    yield kind
    for below in kind.__subclasses__():
        yield from tree(below)


def test_every_error_of_the_file_has_a_status() -> None:
    assert {*STORE} == {*tree(errors.StoreError)}


@pytest.mark.parametrize("kind", [*STORE])
async def test_error_of_the_file_has_its_status_and_shows_no_path(kind: type[errors.StoreError]) -> None:
    app = FastAPI()
    install(app)

    @app.get("/")
    async def fail() -> None:
        raise kind("/somewhere/memory.db is in trouble")

    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://server") as client:
        answer = await client.get("/")
    assert answer.status_code == STORE[kind]
    told = {errors.StoreFullError: NO_ROOM, errors.StoreStoppedError: TOO_SLOW, errors.StoreGoneError: REPLACED}
    told[errors.StoreMovedError] = MOVED
    assert answer.json()["detail"] == told.get(kind, UNEXPECTED)
    assert ("Retry-After" in answer.headers) == (STORE[kind] == 503)
