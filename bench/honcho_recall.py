"""Recall as a person meets it: `hermes chat -q` until its reply, less the endpoint's own time, with the memory server
warm, cold and switched off; and what each mode costs: requests to the server and tokens in a request, per turn.

The memory is our own server in the background, as a fresh home has it. `with recall` counts the runs whose request held
what was remembered.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.remembering import open_agent, time_turn
from bench.table import report, summarise
from hermes.embedded.connect import stop
from hermes.embedded.rendezvous import Place
from hermes.store.injections import find_injection
from tests.honcho.between import Between, like_a_model
from tests.memory_server.serving import inside, running
from tests.memory_server.talking import say, settle

RUNS = int(os.environ.get("BENCH_RUNS", "12"))
TURNS = int(os.environ.get("BENCH_TURNS", "20"))
DELAY_SECONDS = 0.2
"""Time that the endpoint takes for each reply."""
FACTS = ("My cat is called Miso.", "I collect stamps from Malta.", "My sister Ada lives in Oslo.")
QUESTION = "What is my cat called?"
MODES: Mapping[str, dict[str, Any]] = {
    "hybrid": {},
    "context": {"recallMode": "context"},
    "tools": {"recallMode": "tools"},
    "first turn alone": {"injectionFrequency": "first-turn"},
    "every third turn": {"contextCadence": 3, "dialecticCadence": 3},
    "three passes": {"dialecticDepth": 3},
}


def run() -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
        _report_chat(Path(folder))
        _print_costs(Path(folder))


def _report_chat(folder: Path) -> None:
    home = folder / "home"
    place = Place(home / "memory", home)
    with _endpoint(folder) as port:
        endpoint = {"OPENAI_BASE_URL": f"http://127.0.0.1:{port}/v1", "OPENAI_API_KEY": "x", "HERMES_MODEL": "loop"}
        env = {**os.environ, "HERMES_HOME": str(home), **endpoint}
        off, on = {**env, "HERMES_MEMORY_PROVIDER": "none"}, {**env, "HERMES_MEMORY_PROVIDER": "honcho"}
        try:
            for fact in FACTS:
                _time_reply(on, fact)
            _deliver(on)
            bare, warm, recalled = [], [], 0
            for _ in range(RUNS):  # one after the other, so that both meet the same machine
                bare.append(_time_reply(off, QUESTION))
                warm.append(_time_reply(on, QUESTION))
                recalled += _held_memory(port)
            cold, recalled_cold = _time_cold(on, place, port)
        finally:
            stop(place)
    without = summarise("no memory", bare)
    report(
        "Honcho_recall: hermes chat -q until its reply, less the endpoint's own time",
        [
            without,
            summarise(f"memory server warm, {recalled} of {RUNS} with recall", warm, without),
            summarise(f"memory server cold, {recalled_cold} of {len(cold)} with recall", cold, without),
        ],
    )


def _time_cold(env: dict[str, str], place: Place, port: int) -> tuple[list[float], int]:
    taken, recalled = [], 0
    for _ in range(max(3, RUNS // 3)):
        _deliver(env)
        stop(place)
        taken.append(_time_reply(env, QUESTION))
        recalled += _held_memory(port)
    return taken, recalled


def _time_reply(env: dict[str, str], text: str) -> float:
    """Return the seconds from the start of the process to the end of its reply. Deliveries to memory are waited for,
    but not counted."""
    begun = time.perf_counter()
    with subprocess.Popen(
        [sys.executable, "-m", "hermes", "chat", "-q", text],
        env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        replied = process.stdout.readline()
        taken = time.perf_counter() - begun
    assert replied, "there was no reply"
    return taken - DELAY_SECONDS


def _deliver(env: dict[str, str]) -> None:
    """Wait until memory has received and processed everything."""
    subprocess.run([sys.executable, "-m", "hermes", "memory", "outbox", "deliver"], env=env, check=False)


def _held_memory(port: int) -> bool:
    """Return True if the endpoint's last request contained recalled facts."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/_requests", timeout=20) as answer:
        return "<memory-context>" in str(json.load(answer)[-1]["messages"][-1])


@contextmanager
def _endpoint(folder: Path) -> Iterator[int]:
    script = folder / "script.json"
    script.write_text(json.dumps({"then": {"says": {"text": "Hello.", "delay": DELAY_SECONDS}}}), encoding="utf-8")
    with subprocess.Popen(
        [sys.executable, "-m", "tests.llm.loopback", "--script", str(script)], stdout=subprocess.PIPE, text=True
    ) as server:
        try:
            assert server.stdout is not None
            yield int(json.loads(server.stdout.readline())["port"])
        finally:
            server.kill()


def _print_costs(folder: Path) -> None:
    """Print the requests of each mode to a server with a model, and the tokens that it adds to a request, over some
    turns."""
    tell: Callable[[str], object] = print
    tell(f"\nCost of each mode per turn, over {TURNS} turns (a server with a model)")
    with running(folder / "memory") as served:
        with inside(served, "bench") as http:
            http.post("/sessions", json={"id": "told", "peers": {"ann": {}, "bot": {"observe_others": True}}})
            for start in range(0, 100, 50):
                say(http, "told", *(f"I own book number {one}, about boats." for one in range(start, start + 50)))
            settle(http)
        for name, settings in MODES.items():
            with Between(served.url) as between:
                between.rule = like_a_model("She means the atlas on the upper shelf.")
                tokens = asyncio.run(_count_tokens(folder, between.url, settings))
                asked = len([one for one in between.asked if one.what != "health"])
            tell(
                f"  {name:<20} {asked / TURNS:5.2f} requests   tokens median {statistics.median(tokens):6.0f}   "
                f"largest {max(tokens):6.0f}"
            )


async def _count_tokens(folder: Path, url: str, settings: Mapping[str, Any]) -> list[int]:
    home = Path(tempfile.mkdtemp(dir=folder))
    given = {"baseUrl": url, "workspace": "bench", "peerName": "ann", "aiPeer": "bot", **settings}
    (home / "honcho.json").write_text(json.dumps(given), encoding="utf-8")
    found: list[int] = []
    async with open_agent(home, remembers=True) as agent:
        for _ in range(TURNS):
            await time_turn(agent)
            made = await agent.store.read(lambda tx: find_injection(tx, agent.session_id))
            found.append(sum(part.tokens for part in made.parts))
    return found
