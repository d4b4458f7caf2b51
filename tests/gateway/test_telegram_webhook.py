"""The webhook end to end: only Telegram has access, and a message answered with 200 is stored, once."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from tests.db.processes import ROOT
from tests.gateway.bot_api import TOKEN, BotApi
from tests.gateway.processes import BotGateway, clean_env, scripted_model, wait_until
from tests.plain_http import PLAIN

pytestmark = pytest.mark.processes

SECRET = "a-long-enough-secret"


@pytest.fixture
def api() -> Iterator[BotApi]:
    with BotApi() as running:
        yield running


@pytest.fixture
def gateway(tmp_path: Path, api: BotApi) -> Iterator[BotGateway]:
    settings = {
        "telegram.webhook_url": "http://127.0.0.1:9/hook",
        "telegram.webhook_secret": SECRET,
        "telegram.webhook_port": 0,
        "store.lock_timeout": 0.5,
    }
    with scripted_model() as model, BotGateway(tmp_path / "home", api, model, settings) as running:
        wait_until(lambda: running.status().get("telegram", "").startswith("ok"))
        assert api.webhook["secret_token"] == SECRET
        api.webhook["url"] = f"http://{running.status()['telegram'].split()[-1]}/hook"
        yield running
        assert TOKEN not in running.output()
        assert SECRET not in running.output()


@pytest.mark.contract("2.2")
def test_duplicate_and_reordered_posts_have_one_effect(api: BotApi, gateway: BotGateway) -> None:
    ann = api.person("Ann")
    numbers = [api.push({"message": api.message(ann.dm, ann, text=f"/title t{number}")}) for number in range(3)]
    for number in (numbers[1], numbers[0], numbers[1], numbers[2], numbers[0], numbers[2]):
        assert api.post(number) == 200
    api.until(lambda: len(api.texts(ann.dm.id)) == 3)
    assert api.texts(ann.dm.id) == ["Title: t1", "Title: t0", "Title: t2"]
    gateway.stop()
    assert len(api.texts(ann.dm.id)) == 3
    assert gateway.rows("SELECT count(*) FROM hermes_queue WHERE queue = 'inbox'") == [(3,)]


def test_post_without_the_secret_is_refused(api: BotApi, gateway: BotGateway) -> None:
    ann = api.person("Ann")
    number = api.push({"message": api.message(ann.dm, ann, text="let me in")})
    for wrong in ("x", SECRET[:-1], SECRET + "x", SECRET.upper()):
        assert api.post(number, secret=wrong) == 401
    assert httpx.post(api.webhook["url"], content=b"{}", timeout=60, trust_env=False, verify=PLAIN).status_code == 401
    assert httpx.get(api.webhook["url"], timeout=60, trust_env=False, verify=PLAIN).status_code == 405
    assert gateway.rows("SELECT count(*) FROM hermes_queue") == [(0,)]
    gateway.stop()


def test_malformed_posts_are_answered_and_break_nothing(api: BotApi, gateway: BotGateway) -> None:
    ann = api.person("Ann")
    assert api.post_raw(b"{not json") == 400
    assert api.post_raw(b"\xff\xfe") == 400
    assert api.post_raw(b"[" * 200_000) == 400
    assert api.post_raw(b" " * (2 * 1024 * 1024)) == 413
    for strange in (b"[]", b"7", b"null", b'{"update_id": "x"}', b'{"update_id": 1, "message": {"text": 7}}'):
        assert api.post_raw(strange) == 200
    number = api.push({"message": api.message(ann.dm, ann, text="still there?")})
    assert api.post(number) == 200
    api.until(lambda: api.texts(ann.dm.id) == ["still there?"])
    gateway.stop()


@pytest.mark.contract("2.1")
def test_post_that_could_not_be_stored_is_not_acknowledged(api: BotApi, gateway: BotGateway) -> None:
    ann = api.person("Ann")
    number = api.push({"message": api.message(ann.dm, ann, text="keep this")})
    with closing(sqlite3.connect(gateway.home / "state.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        assert api.post(number) == 503
        other.execute("ROLLBACK")
    wait_until(lambda: api.post(number) == 200)
    api.until(lambda: api.texts(ann.dm.id) == ["keep this"])
    assert gateway.said() == ["keep this"]
    gateway.stop()


def test_gateway_does_not_start_with_a_webhook_that_has_no_secret(tmp_path: Path) -> None:
    env = clean_env(
        HERMES_HOME=str(tmp_path), TELEGRAM_BOT_TOKEN=TOKEN, TELEGRAM_WEBHOOK_URL="https://example.org/hook"
    )
    ran = subprocess.run(
        [sys.executable, "-m", "hermes", "gateway", "run"],
        cwd=ROOT,
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 2
    assert "telegram.webhook_secret" in ran.stderr
    assert "Traceback" not in ran.stderr
