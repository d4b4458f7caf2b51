"""The whole sign-in, with a real browser and our own server: set-up, page, consent, and a turn that reaches memory."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.browser import open_browser
from tests.cli.screen import ENTER, Screen
from tests.honcho.fresh import FreshHome, fresh_home
from tests.memory_server.serving import ROOT, SECRET, Served, running
from tests.memory_server.signing import ADMIN_KEY

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = [pytest.mark.processes, pytest.mark.contract("8.1", "8.3", "8.4")]


@pytest.fixture(scope="module")
def keyed(processes: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A memory server that requires keys."""
    with running(tmp_path_factory.mktemp("keyed"), AUTH_USE_AUTH="true", AUTH_JWT_SECRET=SECRET) as served:
        yield served


@pytest.fixture(scope="module")
def chromium(processes: None) -> Iterator[Browser]:
    with open_browser() as browser:
        yield browser


class Person:
    """A person with a home, a terminal and a browser that the program opens."""

    def __init__(self, fresh: FreshHome, folder: Path, browser: Browser, served: Served) -> None:
        self.fresh, self.served = fresh, served
        self.page: Page = browser.new_page()
        self._opened = folder / "opened"
        opener = folder / "browser"
        opener.write_text(f'#!/bin/sh\necho "$@" >> {self._opened}\n')
        opener.chmod(0o700)
        self.env = {**fresh.env, "HOME": str(folder), "LOGNAME": "ann", "BROWSER": str(opener)}
        self.env = {name: value for name, value in self.env.items() if not name.startswith(("HONCHO_", "AUTH_"))}
        self.written = [self._opened]

    @contextmanager
    def at_terminal(self, *arguments: str) -> Iterator[Screen]:
        with Screen(*arguments, env={**self.env, "PYTHONPATH": f"{ROOT}/src"}, columns=110, rows=60) as screen:
            yield screen

    def hermes(self, *arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "hermes", *arguments],
            cwd=ROOT, env=self.env, capture_output=True, text=True, check=False, timeout=180,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout + done.stderr

    def opened(self) -> str:
        """Return the address that the browser was opened with."""
        end = time.monotonic() + 60
        while not (self._opened.exists() and self._opened.read_text().endswith("\n")):
            assert time.monotonic() < end
            time.sleep(0.05)
        return self._opened.read_text().split()[-1]

    def consent(self, **fields: str) -> None:
        """Fill the page in with the owner's code, and consent."""
        request = re.search(r"hermes memory approve (\w{4})", self.page.content())
        assert request is not None
        told = self.hermes("memory", "approve", request[1], "--data", str(self.served.folder), "--json")
        for name, value in {**fields, "code": json.loads(told)["code"]}.items():
            self.page.fill(f"#{name}", value)
        self.page.click("button[value=allow]")

    @property
    def block(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.fresh.home / "honcho.json").read_text())["hosts"]["hermes"]
        return found

    def said(self, workspace: str) -> list[tuple[str, str]]:
        """Return the messages on the server, by peer."""
        self.hermes("memory", "outbox", "deliver")
        with self.served.client(ADMIN_KEY) as client:
            path = f"/v3/workspaces/{workspace}/sessions"
            sessions = client.post(f"{path}/list", json={}).json()["items"]
            messages = [
                one
                for session in sessions
                for one in client.post(f"{path}/{session['id']}/messages/list").json()["items"]
            ]
        return [(one["peer_id"], one["content"]) for one in messages]


@pytest.fixture
def person(tmp_path: Path, chromium: Browser, keyed: Served) -> Iterator[Person]:
    with fresh_home(tmp_path) as fresh:
        made = Person(fresh, tmp_path, chromium, keyed)
        yield made
        made.page.close()


@pytest.mark.timeout(300)
def test_set_up_signs_in_with_a_browser_and_the_next_turn_is_remembered(person: Person, tmp_path: Path) -> None:
    titles = ProcessTitles()
    titles.start()
    with person.at_terminal("memory", "setup", "honcho") as screen:
        screen.wait_for("Where is Honcho?").wait_for("Number or word")
        screen.type(f"self-hosted{ENTER}")
        screen.wait_for("URL of the server").type(f"{person.served.url}{ENTER}")
        screen.wait_for("How do you sign in?").wait_for("Number or word [browser]").type(ENTER)
        person.page.goto(person.opened())
        person.consent(workspace="garden", person="Nina")
        person.page.wait_for_url("http://127.0.0.1:*/callback?*")
        assert "Hermes has what it needs" in person.page.content()
        for question in ("Your name at Honcho [Nina]", "The agent's name", "know the same people [garden]"):
            screen.wait_for(question).type(ENTER)
        screen.wait_for("It answers.").wait_for("How is memory used?").type(ENTER)
        assert screen.ended() == 0
        shown = screen.raw.decode("utf-8", "replace")
    first = person.block
    assert (first["peerName"], first["workspace"], first["baseUrl"]) == ("Nina", "garden", person.served.url)
    person.hermes("chat", "-q", "My bicycle is called Rocinante.")
    assert ("Nina", "My bicycle is called Rocinante.") in person.said("garden")
    found = json.loads((person.fresh.home / "honcho.json").read_text())
    found["hosts"]["hermes"]["oauth"]["expiresAt"] = 1  # it has ended
    (person.fresh.home / "honcho.json").write_text(json.dumps(found))
    person.hermes("chat", "-q", "My boat is called Pequod.")
    assert ("Nina", "My boat is called Pequod.") in person.said("garden")
    second = person.block
    assert second["apiKey"] != first["apiKey"]
    told = person.hermes("honcho", "status") + person.hermes("memory", "status")
    assert "OAuth (hermes-agent, token valid " in told
    secrets = {one[name] for one in (first, second) for name in ("apiKey",)}
    secrets |= {one["oauth"]["refreshToken"] for one in (first, second)}
    assert any("hermes" in title for title in titles.stop()) or sys.platform != "linux"
    assert not any(secret in shown + told + person.page.url for secret in secrets)
    assert not any(secret in title for secret in secrets for title in titles.seen)
    assert _holders(tmp_path, secrets) == [person.fresh.home / "honcho.json"]
    assert _holders(person.served.folder, secrets) == []
    assert (person.fresh.home / "honcho.json").stat().st_mode & 0o777 == 0o600


@pytest.mark.timeout(300)
def test_code_is_typed_on_another_page_and_a_denial_ends_the_wait(person: Person) -> None:
    (person.fresh.home).mkdir(exist_ok=True)
    (person.fresh.home / "honcho.json").write_text(json.dumps({"baseUrl": person.served.url}))
    person.hermes("config", "set", "memory.provider", "honcho")
    with person.at_terminal("honcho", "login", "--device") as screen:
        _type_code(person, screen)
        person.page.click("button[value=deny]")
        screen.wait_for("the sign-in was declined")
        assert screen.ended() == 1
    with person.at_terminal("honcho", "login", "--device") as screen:
        _type_code(person, screen)
        person.consent(workspace="garden", person="Nina")
        screen.wait_for("Signed in to self-hosted at")
        assert screen.ended() == 0
    assert person.block["apiKey"].startswith("hch-at-")
    assert (person.block["peerName"], person.block["workspace"]) == ("Nina", "garden")
    token = person.block["apiKey"]
    person.hermes("honcho", "logout")
    with person.served.client(token) as client:
        assert client.post("/v3/workspaces/garden/sessions/list", json={}).status_code == 401


@pytest.mark.timeout(120)
def test_ctrl_c_ends_the_wait_and_stores_nothing(person: Person) -> None:
    (person.fresh.home).mkdir(exist_ok=True)
    before = json.dumps({"baseUrl": person.served.url})
    (person.fresh.home / "honcho.json").write_text(before)
    person.hermes("config", "set", "memory.provider", "honcho")
    with person.at_terminal("honcho", "login") as screen:
        address = person.opened()
        screen.process.send_signal(signal.SIGINT)  # what Ctrl-C does
        screen.wait_for("Interrupted: nobody is signed in anew")
        assert screen.ended() == 130
    assert (person.fresh.home / "honcho.json").read_text() == before
    assert "code_challenge=" in address


class ProcessTitles(threading.Thread):
    """Records the command lines of all processes until it is stopped."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.seen: set[str] = set()
        self._over = threading.Event()

    def run(self) -> None:
        while not self._over.wait(0.05):
            for file in Path("/proc").glob("[0-9]*/cmdline"):
                with suppress(OSError):  # it has ended meanwhile
                    self.seen.add(file.read_bytes().replace(b"\0", b" ").decode(errors="replace"))

    def stop(self) -> set[str]:
        """Stop, and return what was recorded."""
        self._over.set()
        self.join()
        return self.seen


def _type_code(person: Person, screen: Screen) -> None:
    screen.wait_for("Waiting until you have")
    user_code = re.search(r"type the code\s+([A-Z]{4}-[A-Z]{4})", " ".join(screen.rows))
    assert user_code is not None
    person.page.goto(f"{person.served.url}/device")
    person.page.fill("#user_code", user_code[1])
    person.page.click("button")


def _holders(folder: Path, secrets: set[str]) -> list[Path]:
    """Return every file below a folder that contains one of these secrets."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert files
    return [path for path in files if any(secret.encode() in path.read_bytes() for secret in secrets)]
