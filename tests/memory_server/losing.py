"""A transport that loses responses: the server has executed the request, and the client does not learn of it."""

from __future__ import annotations

import random
from typing import Any

import httpx

from tests.plain_http import PLAIN


class LosingTransport(httpx.BaseTransport):
    """A transport that loses responses, and sometimes requests, at random."""

    def __init__(self, seed: int, *, reply: float = 0.3, request: float = 0.05) -> None:
        self._inner = httpx.HTTPTransport(verify=PLAIN)
        self._random = random.Random(seed)
        self._reply = reply
        self._request = request
        self.lost = 0

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        if self._random.random() < self._request:
            raise httpx.ConnectError("lost on its way", request=request)
        response = self._inner.handle_request(request)
        if self._random.random() < self._reply:
            response.read()
            response.close()
            self.lost += 1
            raise httpx.ReadError("the reply was lost", request=request)
        return response

    def close(self) -> None:
        self._inner.close()


def post_until_heard(client: httpx.Client, path: str, body: Any) -> Any:
    """Repeat a request until its response arrives, and return it."""
    while True:
        try:
            answer = client.post(path, json=body)
        except httpx.TransportError:
            continue
        assert answer.status_code in (200, 201), answer.text
        return answer.json()
