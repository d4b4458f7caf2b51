"""Ten facts from a terminal on Monday, asked for over the HTTP API on Tuesday, each in a new session.

python -m tests.honcho.tuesday FOLDER BASE_URL     # prints how many were known with memory and without
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import httpx

from hermes.embedded.connect import stop
from hermes.embedded.rendezvous import Place
from tests.gateway.processes import GatewayProcess
from tests.plain_http import PLAIN
from tests.slow.facts import tell_facts

QUESTIONS = (
    ("What do I collect?", "stamp"),
    ("In which city does my sister Ada live?", "oslo"),
    ("What am I allergic to?", "peanut"),
    ("What is my dog called?", "rufus"),
    ("What is my job?", "nurse"),
    ("On which port does our database run?", "5433"),
    ("What kind of answers do I prefer?", "short"),
    ("In which month is my birthday?", "may"),
    ("Which instrument do I play?", "cello"),
    ("On which day do we deploy the shop?", "thursday"),
)
ANSWER_TIMEOUT_SECONDS = 1800.0
# Notes and the search of the history would know the facts as well: what is counted here is the memory alone.
ALONE = "  tools_off: [memory, session_search, delegate]\nmemory:\n  review_every: 0\n  provider: {}\n"
DEADLINES = "  deadline: 30\n  first_deadline: 30\n"


def known_on_tuesday(home: Path, base_url: str, provider: str) -> list[str]:
    """Return the questions, of ten, whose answer contained the fact."""
    env = {**os.environ, "HERMES_HOME": str(home)}
    try:
        tell_facts(home, base_url, ALONE.format(provider) + DEADLINES)
        if provider != "none":
            subprocess.run([sys.executable, "-m", "hermes", "memory", "outbox", "deliver"], env=env, check=True)
            stop(Place(home / "memory", home))
        with GatewayProcess(home, env={"API_SERVER_ENABLED": "true", "API_SERVER_PORT": "0"}) as gateway:
            return [text for number, (text, word) in enumerate(QUESTIONS) if word in _ask(gateway.url, number, text)]
    finally:
        stop(Place(home / "memory", home))


def _ask(url: str, number: int, text: str) -> str:
    answer = httpx.post(
        f"{url}/chat/completions",
        json={"model": "hermes", "messages": [{"role": "user", "content": f"{text} Answer in a few words."}]},
        headers={"X-Hermes-Session-Key": f"agent:main:api_server:dm:tuesday-{number}"},
        timeout=ANSWER_TIMEOUT_SECONDS,
        trust_env=False,
        verify=PLAIN,
    )
    answer.raise_for_status()
    return str(answer.json()["choices"][0]["message"]["content"]).lower()


if __name__ == "__main__":
    for name in ("honcho", "none"):
        known = known_on_tuesday(Path(sys.argv[1]) / name, sys.argv[2], name)
        sys.stdout.write(f"{name}: {len(known)} of 10: {known}\n")
        sys.stdout.flush()
