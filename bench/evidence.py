"""The evidence in the block that a model is given: `python -m bench.evidence DATA [--only 0,1] [--tokens 500]`.

DATA is a folder with files of LoCoMo (`bench/recall.py` says where they come from). Each conversation is loaded into a
memory server of its own over the official SDK. Each question is then asked in a new session of a gateway, as the person
that it names, with a model that keeps what it is sent. No model reads, ranks or writes anything in memory. Evidence
counts when at least half of the turn stands in the block, word for word.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import httpx
from honcho import Honcho

from bench.gateway import wait_for_url
from bench.memory_server import serve, wait_until_learnt
from bench.recall import CATEGORIES
from bench.talks import Asked, Talk, read_talks
from tests.llm.loopback import LoopbackServer, Received, says

BLOCK = re.compile(r"<memory-context>(.*?)</memory-context>", re.DOTALL)
SENTENCE = re.compile(r"(?<=[.!?])\s+|\n+")
LEARNING_SECONDS = 600.0
UNANSWERABLE_CODE = 5
"""The category of questions that have no answer."""


@dataclass(frozen=True, slots=True)
class Told:
    """The share of a question's evidence that the model was given, and the characters of the block."""

    category: int
    share: float
    characters: int


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="a folder with locomo*.json")
    parser.add_argument("--only", default="", help="numbers of conversations, with commas")
    parser.add_argument("--questions", type=int, default=0, help="at most so many of each conversation, spread evenly")
    parser.add_argument("--tokens", type=int, default=1000, help="the room of the block (contextTokens)")
    chosen = parser.parse_args()
    talks = read_talks(chosen.data)
    numbers = [int(number) for number in chosen.only.split(",") if number] or range(len(talks))
    told = [one for number in numbers for one in asyncio.run(_measure(talks[number], chosen.questions, chosen.tokens))]
    _print(told)


async def _measure(talk: Talk, most: int, tokens: int) -> list[Told]:
    questions = [asked for asked in talk.questions if asked.category != UNANSWERABLE_CODE]
    questions = questions[:: max(1, len(questions) // most)][:most] if most else questions
    speakers = list(dict.fromkeys(turn.speaker for turn in talk.turns))
    told: list[Told] = []
    with tempfile.TemporaryDirectory() as folder:
        process, url, _ = serve(str(Path(folder) / "data"))
        try:
            _load(talk, url, speakers)
            for owner, group in groupby(sorted(questions, key=_owner(speakers)), key=_owner(speakers)):
                other = next(name for name in speakers if name != owner)
                told += await _ask(talk, list(group), Path(folder) / owner, _honcho(url, owner, other, tokens))
        finally:
            process.terminate()
            process.wait()
    return told


def _owner(speakers: Sequence[str]) -> Callable[[Asked], str]:
    """Return a function that names the person whom a question is about."""
    return lambda asked: next((name for name in speakers if re.search(rf"\b{name}\b", asked.text)), speakers[0])


def _honcho(url: str, owner: str, other: str, tokens: int) -> dict[str, object]:
    who = {"workspace": "evidence", "peerName": owner, "aiPeer": other}
    return {"baseUrl": url, **who, "saveMessages": False, "enabled": True, "contextTokens": tokens}


def _load(talk: Talk, url: str, speakers: Sequence[str]) -> None:
    honcho = Honcho(workspace_id="evidence", base_url=url, api_key="unused")
    peers = {name: honcho.peer(name) for name in speakers}
    for name, turns in groupby(talk.turns, key=lambda turn: turn.session):
        session = honcho.session(name)
        session.add_peers(list(peers.values()))
        said = [peers[turn.speaker].message(turn.text, created_at=turn.at) for turn in turns]
        for start in range(0, len(said), 100):
            session.add_messages(said[start : start + 100])
    wait_until_learnt(honcho, LEARNING_SECONDS)


async def _ask(talk: Talk, questions: Sequence[Asked], home: Path, honcho: dict[str, object]) -> list[Told]:
    texts = {turn.id: turn.text for turn in talk.turns}
    told: list[Told] = []
    async with LoopbackServer(then=says("Noted.")) as model, httpx.AsyncClient(timeout=180.0) as client:
        with _gateway(home, honcho, model.base_url) as url:
            for number, asked in enumerate(questions):
                seen = len(model.requests)
                body = {"messages": [{"role": "user", "content": asked.text}]}
                headers = {"X-Hermes-Session-Id": f"question-{number}"}
                response = await client.post(f"{url}/chat/completions", json=body, headers=headers)
                response.raise_for_status()
                block = _block(model.requests[seen:])
                shares = [covered(texts[turn], block) >= 0.5 for turn in asked.evidence]
                told.append(Told(asked.category, statistics.fmean(shares), len(block)))
    return told


def _block(requests: Sequence[Received]) -> str:
    said = [message["content"] for one in requests for message in one.body["messages"] if message["role"] == "user"]
    return next((match[1] for text in said if (match := BLOCK.search(text))), "")


@contextmanager
def _gateway(home: Path, honcho: dict[str, object], base_url: str) -> Iterator[str]:
    home.mkdir()
    (home / "honcho.json").write_text(json.dumps(honcho), encoding="utf-8")
    settings = {
        "api": {"enabled": True, "port": 0},
        "model": {"base_url": base_url, "default": "loop-1", "context_length": 131_072},
        "memory": {"review_every": 0, "provider": "honcho"},
    }
    (home / "config.yaml").write_text(json.dumps(settings), encoding="utf-8")
    command = [sys.executable, "-m", "hermes", "gateway", "run"]
    gateway = subprocess.Popen(command, env={**os.environ, "HERMES_HOME": str(home)}, stderr=subprocess.DEVNULL)
    try:
        yield wait_for_url(home)
    finally:
        gateway.terminate()
        gateway.wait()


def covered(turn: str, block: str) -> float:
    """Return the share of a turn's sentences, by length, that stand in the block word for word."""
    given = _normal(block)
    sentences = [_normal(one) for one in SENTENCE.split(turn)]
    sentences = [one for one in sentences if len(one) >= 12] or [_normal(turn)]
    found = [len(one) if one in given else 0.6 * len(one) * (len(one) > 80 and one[:60] in given) for one in sentences]
    return sum(found) / max(1, sum(len(one) for one in sentences))


def _normal(text: str) -> str:
    return re.sub(r"[\W_]+", " ", text.lower()).strip()


def _print(told: Sequence[Told]) -> None:
    kinds: dict[str, list[Told]] = defaultdict(list)
    for one in told:
        kinds["all"].append(one)
        kinds[CATEGORIES[one.category]].append(one)
    for kind, those in kinds.items():
        shares = [one.share for one in those]
        sizes = [one.characters for one in those]
        told_all = f"evidence {statistics.fmean(shares):.3f}, {statistics.fmean(sizes):.0f} characters"
        print(f"{kind:<8} {len(those):>4} questions: {told_all}, at most {max(sizes)}")  # noqa: T201


if __name__ == "__main__":
    main()
