"""Access without a key: a web page whose name resolves to this machine (DNS rebinding) gets nothing."""

from __future__ import annotations

import json

import pytest

from tests.gateway.processes import GatewayProcess
from tests.strangers import HOSTS, PAGES, get

pytestmark = pytest.mark.contract("10.2")
MODELS = "/v1/models"


@pytest.mark.parametrize(("host", "status"), HOSTS)
def test_without_a_key_only_loopback_host_names_are_served(
    gateway: GatewayProcess, host: bytes | None, status: int
) -> None:
    found, body = get(gateway.url, MODELS, host)
    assert found == status
    if status == 403:
        assert "`Host`" in json.loads(body)["error"]["message"]


@pytest.mark.parametrize(("header", "status"), PAGES)
def test_without_a_key_web_pages_are_refused(gateway: GatewayProcess, header: bytes, status: int) -> None:
    assert get(gateway.url, MODELS, b"localhost", header)[0] == status


def test_two_host_headers_are_refused(gateway: GatewayProcess) -> None:
    assert get(gateway.url, MODELS, b"localhost", b"Host: evil.example")[0] == 400
