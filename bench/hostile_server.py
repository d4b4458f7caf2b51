"""Runs `hermes` for the attack benchmark: every name and webhook address resolves to this machine."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial

from hermes.__main__ import main
from hermes.memory_server.api import app
from hermes.memory_server.engine.webhooks import WebhookDelivery


async def resolve(_host: str, _port: int) -> Sequence[str]:
    return ["127.0.0.1"]


if __name__ == "__main__":
    here = partial(WebhookDelivery, may_reach=lambda _address: True, resolve=resolve)
    app.WebhookDelivery = here  # type: ignore[assignment, attr-defined]
    sys.exit(main())
