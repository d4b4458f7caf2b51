"""A home without any memory settings: Honcho on our own server, and no data leaves this machine."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hermes.clock import SystemClock
from hermes.embedded.connect import find_running
from hermes.home import Home
from hermes.honcho.plugin import HonchoPlugin
from hermes.honcho.recall import LATE
from hermes.honcho.server import find_server
from hermes.memory.plugin_host import CommandHost
from hermes.settings import PROVIDER
from tests.cli.screen import ENTER, Screen
from tests.embedded.loading import OF_THE_SERVER, loaded
from tests.honcho.between import Between, until_it_is_so
from tests.honcho.configuring import Machine
from tests.honcho.fresh import FreshHome, fresh_home
from tests.honcho.recalling import hosting
from tests.left_behind import servers_below
from tests.memory_server.serving import Served

KEEPS_OFTEN = """
import sys, hermes.embedded.connect, hermes.cli.main
hermes.embedded.connect.KEEP_ALIVE_SECONDS = 0.2
sys.exit(hermes.cli.main.run(sys.argv[1:]))
"""
QUICK_PERSON = """
import sys, hermes.cli.terminal, hermes.cli.main
hermes.cli.terminal.LOOK_SECONDS = 600.0
sys.exit(hermes.cli.main.run(sys.argv[1:]))
"""
"""Makes a person who leaves during the first seconds leave at once, however slow the machine is."""
SCREEN_TIMEOUT_SECONDS = 120.0
ON = "Memory is on: Honcho keeps what is said, on this machine alone"


@pytest.fixture
def fresh(processes: None, machine: Machine, tmp_path: Path) -> Iterator[FreshHome]:
    with fresh_home(tmp_path) as made:
        yield made


@pytest.mark.contract("4.3", "5.4")
def test_a_fresh_home_has_memory_and_says_so_once(fresh: FreshHome) -> None:
    first, second = fresh.chat("-q", "My cat is called Miso."), fresh.chat("-q", "What is my cat called?")
    assert (first.code, second.code) == (0, 0)
    assert ON in first.err
    assert ON not in second.err
    assert "Miso" in second.out
    shown = fresh.status()
    assert (shown["provider"], shown["plugin"]["honcho"]) == ("honcho", "our own memory server")


def at_terminal(fresh: FreshHome, *program: str, **more: str) -> Screen:
    env = {**fresh.env, "TERM": "xterm-256color", **more}
    return Screen(
        "chat", env=env, patience=SCREEN_TIMEOUT_SECONDS, program=(sys.executable, *(program or ("-m", "hermes")))
    )


@pytest.mark.contract("7.5", "9.2")
def test_prompt_starts_the_memory_server_before_the_first_question(
    fresh: FreshHome,
) -> None:
    fresh.chat("-q", "My cat is called Miso.")
    fresh.deliver()
    fresh.restart()
    fresh.hermes("config", "set", "memory.first_deadline", "60")  # a busy machine recalls slowly
    with at_terminal(fresh) as screen:
        screen.wait_for_prompt().wait(lambda _: find_running(fresh.place) is not None)
        screen.type("What is my cat called?" + ENTER)
        screen.wait_for("From memory: “My cat is called Miso.”").wait_for_prompt().type("/quit" + ENTER)
        assert screen.ended() == 0
    explained = fresh.hermes("memory", "explain")
    assert "Miso" in explained.out
    assert LATE not in explained.out


@pytest.mark.contract("7.5", "9.2")
async def test_a_server_of_ours_that_ended_between_two_turns_is_there_for_the_next_one(fresh: FreshHome) -> None:
    fresh.chat("-q", "My cat is called Miso.")
    fresh.deliver()
    async with hosting(fresh.home, fresh.env) as talk:
        assert "Miso" in await talk.turn("What is my cat called?")
        fresh.restart()
        assert "Miso" in await talk.turn("And how do I call my cat?")
        assert (await talk.memory()).take_notices() == []


@pytest.mark.contract("7.5", "9.2")
def test_a_chat_at_a_terminal_keeps_the_memory_server_while_it_is_open(fresh: FreshHome) -> None:
    fresh.chat("-q", "My cat is called Miso.")
    fresh.restart()
    with at_terminal(fresh, "-c", KEEPS_OFTEN, HERMES_MEMORY_SERVER_IDLE="5") as screen:
        screen.wait_for_prompt().wait(lambda _: find_running(fresh.place) is not None)
        screen.type("What is my cat called?" + ENTER)
        screen.wait_for("From memory").wait_for_prompt()
        begun = find_running(fresh.place)
        assert begun is not None
        time.sleep(11)  # more than twice as long as it takes to end
        screen.wait(lambda _: find_running(fresh.place) == begun)
        screen.type("/quit" + ENTER)
        assert screen.ended() == 0


@pytest.mark.contract("9.2")
def test_the_doctor_says_how_the_memory_server_is_and_starts_none(fresh: FreshHome) -> None:
    assert "server" not in _checked(fresh)
    assert fresh.hermes("memory", "start").code == 0
    assert _checked(fresh)["server"] == "ok"
    found = find_running(fresh.place)
    assert found is not None
    os.kill(found.pid, signal.SIGSTOP)
    try:
        silent = fresh.hermes("doctor")
    finally:
        os.kill(found.pid, signal.SIGCONT)
    assert silent.code == 1
    assert f"runs but does not respond. End process {found.pid}" in silent.out


def _checked(fresh: FreshHome) -> dict[str, str]:
    """Return the levels of the doctor's findings, by check."""
    report = json.loads(fresh.hermes("doctor", "--json").out)
    return {finding["check"]: finding["level"] for finding in report["findings"]}


@pytest.mark.contract("7.5")
def test_who_leaves_at_once_starts_no_memory_server(fresh: FreshHome) -> None:
    with at_terminal(fresh, "-c", QUICK_PERSON) as screen:
        screen.wait_for_prompt().type("/quit" + ENTER)
        assert screen.ended() == 0
        assert b"memory provider" not in screen.raw
    assert servers_below(fresh.home) == {}


@pytest.mark.contract("7.5")
def test_memory_server_that_fails_to_start_is_reported_in_the_first_turn(fresh: FreshHome) -> None:
    fresh.home.mkdir()
    fresh.place.folder.parent.mkdir(parents=True, exist_ok=True)
    fresh.place.folder.write_text("no folder")
    with at_terminal(fresh) as screen:
        screen.wait_for_prompt().wait(lambda _: "memory provider honcho: " in log_of(fresh))
        assert "going on without it" not in "\n".join(screen.rows)
        screen.type("My cat is called Miso." + ENTER)
        screen.wait_for("Saved: My cat").wait_for("going on without it")


def log_of(fresh: FreshHome) -> str:
    path = Home(fresh.home).log_file
    return path.read_text() if path.exists() else ""


@pytest.mark.contract("4.3")
def test_none_switches_it_off_and_nothing_is_started(fresh: FreshHome) -> None:
    assert fresh.hermes("config", "set", "memory.provider", "none").code == 0
    said = fresh.chat("-q", "My cat is called Miso.")
    assert ON not in said.err
    assert servers_below(fresh.home) == {}
    assert fresh.status()["provider"] == "none"


@pytest.mark.contract("5.4")
@pytest.mark.parametrize("found", ["file", "variable"])
def test_server_that_nobody_chose_is_named_and_gets_nothing(
    machine: Machine, server: Served, tmp_path: Path, found: str
) -> None:
    with Between(server.url) as stranger:
        given = {"HONCHO_BASE_URL": stranger.url, "HONCHO_API_KEY": "hch-found"} if found == "variable" else {}
        if found == "file":
            machine.write({"baseUrl": stranger.url, "apiKey": "hch-found"})
        with fresh_home(tmp_path, **given) as fresh:
            first = fresh.chat("-q", "My cat is called Miso.")
            second = fresh.chat("-q", "What is my cat called?")
            assert "nobody chose Honcho here: nothing is sent there" in first.err
            assert "nobody chose Honcho here" not in second.err
            assert any("nothing is sent there" in line for line in fresh.status()["remarks"])
            assert stranger.asked == []
            assert "hch-found" not in first.err
            assert fresh.hermes("config", "set", "memory.provider", "honcho").code == 0
            fresh.chat("-q", "My dog is called Rex.")
            until_it_is_so(lambda: bool(stranger.asked))


@pytest.mark.contract("5.4")
def test_a_plugin_that_nobody_chose_means_our_own_server_whatever_it_finds(machine: Machine) -> None:
    machine.write({"apiKey": "hch-found", "environment": "production"})
    for is_chosen, kind in ((True, "cloud"), (False, "embedded")):
        env = {"HOME": str(machine.folder)}
        plugin = HonchoPlugin(CommandHost(machine.home, None, env, SystemClock(), lambda _: None, is_chosen))
        assert plugin.is_available()
        remarks = [line for line in plugin.remarks(()) if "nobody chose" in line]
        assert (len(remarks) == 0) is is_chosen
        assert find_server(plugin.configuration()).kind == kind


@pytest.mark.contract("5.4")
@pytest.mark.parametrize("command", ["memory setup honcho", "honcho setup"])
def test_setting_it_up_chooses_it(fresh: FreshHome, command: str) -> None:
    done = fresh.hermes(*command.split(), "--yes", "--unchecked", "--server", "embedded")
    assert done.code == 0, done.err
    assert fresh.hermes("config", "get", PROVIDER.key).out.strip() == "honcho"
    assert "honcho" in (fresh.home / "config.yaml").read_text()


@pytest.mark.processes
def test_starting_a_chat_loads_neither_an_http_client_nor_a_renderer() -> None:
    """Each costs tens of milliseconds of every start; what needs one loads it by name."""
    started = loaded("import hermes.assembly, hermes.cli.chat, hermes.honcho.plugin")
    assert not {"httpx", "rich", "numpy", "hermes.doctor", "hermes.cli.screen"} & started


@pytest.mark.contract("9.2")
def test_chat_loads_no_server_modules_and_the_version_no_honcho(fresh: FreshHome) -> None:
    program = (
        "import os, sys; os.environ.update(HERMES_HOME=sys.argv[1], HERMES_MEMORY_PROVIDER='')\n"
        "from hermes.cli.main import run; run(sys.argv[2:])"
    )
    chatting = loaded(program, str(fresh.home), "chat", "-q", "hello")
    assert "hermes.honcho.plugin" in chatting
    assert not OF_THE_SERVER & chatting
    assert "honcho" not in chatting  # the SDK
    versioned = loaded(program, str(fresh.home), "--version")
    assert not {name for name in versioned if "honcho" in name or name == "httpx"}
