"""`hermes honcho status` at a terminal: changed keys come first, and lines break between words."""

from __future__ import annotations

from pathlib import Path

import pytest

from hermes.honcho.keys import TABLE
from tests.cli.screen import Screen
from tests.honcho.setting_up import NOBODY, write

CONFIG = """\
memory: {provider: honcho}
gateway: {allow: ["telegram:123456789", "telegram:55555"]}
"""
HONCHO = {
    "baseUrl": NOBODY,
    "apiKey": "hch-at-secret",
    "peerName": "ann",
    "pinUserPeer": True,
    "oauth": {"refreshToken": "r", "clientId": "an-application-with-a-long-name", "expiresAt": 32_000_000_000},
    "userPeerAliases": {"123456789": "ann", "987654321": "bob-the-builder"},
    "runtimePeerPrefix": "tg_",
}


@pytest.mark.processes
@pytest.mark.contract("10.3", "10.6")
@pytest.mark.parametrize("columns", [60, 100])
def test_status_fits_the_window(home: Path, tmp_path: Path, columns: int) -> None:
    write(home, HONCHO)
    (home / "config.yaml").write_text(CONFIG, encoding="utf-8")
    env = {"HERMES_HOME": str(home), "HOME": str(tmp_path), "LOGNAME": "ann"}
    with Screen("honcho", "status", env=env, columns=columns, rows=200) as screen:
        assert screen.ended() == 0
        rows = screen.rows
    text = "\n".join(rows)
    assert "hch-at-secret" not in text
    auth = next(place for place, row in enumerate(rows) if row.startswith("auth "))
    assert f"{rows[auth]} {rows[auth + 1].strip()}".startswith(
        "auth          OAuth (an-application-with-a-long-name, token"
    )
    assert rows[auth + 1].startswith("workspace" if columns == 100 else " " * 14)
    assert " telegram:55555       tg_55555   prefix   not marked" in rows
    begin = next(place for place, row in enumerate(rows) if row.split()[:1] == ["apiKey"])
    keys = [row.split()[0] for row in rows[begin:] if row and not row.startswith("    ")]
    assert keys[:2] == ["apiKey", "oauth"]
    assert keys.index("runtimePeerPrefix") < keys.index("environment"), "what is set comes first"
    assert len(keys) == len(TABLE)
