"""Secrets from any source never appear in the log."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from hermes.logs import start_log
from hermes.redaction import HIDDEN


@pytest.mark.parametrize("form", ["text", "json"])
def test_secret_in_a_traceback_is_hidden(tmp_path: Path, form: str) -> None:
    secret = "4711:a-token"
    start_log(tmp_path / "agent.log", form=form, secrets=[secret])
    logger = logging.getLogger("hermes.test")
    try:
        raise ValueError(f"cannot reach https://example.org/bot{secret}/getMe")
    except ValueError:
        logger.exception("asking %s failed", secret)
    text = (tmp_path / "agent.log").read_text(encoding="utf-8")
    assert "ValueError: cannot reach" in text
    assert secret not in text
    assert text.count(HIDDEN) >= 2
