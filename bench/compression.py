"""Measures the cost of a compression without the model's own time, and of a turn after many compressions."""

from __future__ import annotations

import asyncio
import random
import tempfile
import time
from pathlib import Path

from bench.table import Row, report, summarise
from hermes.agent.context import build_context
from hermes.clock import SystemClock
from hermes.compression.compressor import Compressor
from hermes.compression.cut import CompressionPolicy
from hermes.llm.events import Completed, Reply
from hermes.llm.model import ModelRequest
from hermes.llm.tokens import estimate_request, view_tokens
from hermes.store.store import Store
from hermes.types import Draft
from tests.llm.scripted import ScriptedAnswer, ScriptedModel

WINDOW_TOKENS = 200_000
LONG_HISTORY_TOKENS = 145_000
CALL_COUNT = 15
EPOCHS = (1, 10, 100)
WORDS = ("stamp", "Malta", "price", "letter", "island", "auction", "paper", "colour", "year", "print", "seal", "edge")


def run() -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
        rows = asyncio.run(_measure(Path(folder)))
    report("Compression: beside the model's own time", rows)


async def _measure(folder: Path) -> list[Row]:
    rows = [
        summarise(
            f"compress {LONG_HISTORY_TOKENS:,} tokens, instant model",
            await _compress_often(folder / "model.db", _model()),
        ),
        summarise(
            f"compress {LONG_HISTORY_TOKENS:,} tokens, model of 1 s, less 1 s",
            await _compress_slowly(folder / "slow.db"),
        ),
        summarise(
            f"compress {LONG_HISTORY_TOKENS:,} tokens, digest", await _compress_often(folder / "digest.db", None)
        ),
    ]
    first: Row | None = None
    for epochs in EPOCHS:
        taken = await _turns_after(folder / f"{epochs}.db", epochs)
        rows.append(summarise(f"next request after {epochs} compressions", taken, first))
        first = first or rows[-1]
    return rows


def _model() -> ScriptedModel:
    return ScriptedModel(lambda _: [Completed(Reply("they spoke of stamps"))], context_length=WINDOW_TOKENS)


async def _compress_slowly(path: Path) -> list[float]:
    """Compress with a model that reads the conversation meanwhile, as a real one does, for facts that the summary may
    omit."""

    def answer(_: ModelRequest) -> ScriptedAnswer:
        enough = asyncio.Event()
        asyncio.get_running_loop().call_later(1.0, enough.set)
        return [enough, Completed(Reply("they spoke of stamps"))]

    model = ScriptedModel(answer, context_length=2 * WINDOW_TOKENS)
    return [taken - 1.0 for taken in await _compress_often(path, model)]


def _compressor(store: Store, model: ScriptedModel | None) -> Compressor:
    return Compressor(store, model, CompressionPolicy(WINDOW_TOKENS), owner="bench:0:0")


def _talk(tokens: int, seed: int) -> list[Draft]:
    """Return turns of about 400 tokens a message, all different."""
    chance = random.Random(seed)
    return [
        Draft("assistant" if number % 2 else "user", ". ".join(_sentence(chance) for _ in range(30)))
        for number in range(tokens // 400)
    ]


def _sentence(chance: random.Random) -> str:
    return " ".join([*chance.choices(WORDS, k=8), str(chance.randrange(10_000))])


async def _compress_often(path: Path, model: ScriptedModel | None) -> list[float]:
    taken: list[float] = []
    async with await Store.open(path, clock=SystemClock(), lock_timeout=30.0) as store:
        for number in range(CALL_COUNT):
            session = (await store.create_session("bench")).id
            await store.append(session, *_talk(LONG_HISTORY_TOKENS, number))
            assert view_tokens(await store.view(session)) > LONG_HISTORY_TOKENS * 0.9
            start = time.perf_counter()
            result = await _compressor(store, model).compress(session)
            taken.append(time.perf_counter() - start)
            assert result.outcome == "done"
    return taken


async def _turns_after(path: Path, epochs: int) -> list[float]:
    """Measure the work of every turn: reading the view, building the request, counting its tokens."""
    taken: list[float] = []
    async with await Store.open(path, clock=SystemClock(), lock_timeout=30.0) as store:
        session = (await store.create_session("bench")).id
        compressor = _compressor(store, _model())
        for number in range(epochs):
            await store.append(session, *_talk(8_000, number))
            assert (await compressor.compress(session)).outcome == "done"
        for _ in range(200):
            start = time.perf_counter()
            estimate_request(build_context("prompt", await store.view(session)))
            taken.append(time.perf_counter() - start)
    return taken
