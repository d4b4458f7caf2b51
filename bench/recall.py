"""What is found: `python -m bench.recall DATA [--fit]`, with DATA a folder of conversations.

The files are those of LoCoMo (Maharana et al., 2024; `locomo*.json` from its repository, CC BY-NC 4.0): a list of
conversations with questions and the ids of the turns that hold their evidence. The first two rows go through the public
API of a server on loopback and through plain FTS5; the others leave out one idea at a time, in this process, with the
same engine. `--fit` fits the weights on all conversations but one, for each, and measures on that one. At the end
stands which share of questions finds nothing, of those that have an answer and of those that have none.
"""

from __future__ import annotations

import asyncio
import json
import math
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from bench.memory_server import serve
from bench.table import RESULTS
from bench.talks import DEPTH, Asked, Measured, Talk, judge, read_talks
from bench.unanswered import QUESTIONS
from hermes.memory_server.db.database import Tx
from hermes.memory_server.db.schema import open_database
from hermes.memory_server.db.text_index import Place
from hermes.memory_server.embedder import Question
from hermes.memory_server.engine.asking import understand
from hermes.memory_server.engine.candidates import Candidates, find_candidates
from hermes.memory_server.engine.vectors import VectorIndex
from hermes.memory_server.engine.word_vectors import WordVectors
from hermes.memory_server.engine.workspaces import workspace_id_of
from hermes.ranking.scoring import ABOUT, WEIGHTS, Weights, certainty, score
from hermes.ranking.words import split_words, telling_words

FIRST = 5
UNANSWERED = 0
"""The category of questions that nothing answers."""
CATEGORIES = {1: "several", 2: "time", 3: "open", 4: "single", 5: "nobody"}
"""What LoCoMo calls multi-hop, temporal, open-domain, single-hop and adversarial."""
STEPS = (0.0, 0.6, 1.5)
"""By how much a weight is changed to see whether others would be better."""


Find = Callable[[Talk, Asked], list[str]]
"""The ids of turns that fit a question, the best first."""


def run_all(talks: Sequence[Talk], find: Find) -> tuple[list[Measured], float]:
    """Every question; also the median of seconds that one took."""
    measured: list[Measured] = []
    taken: list[float] = []
    for talk in talks:
        for asked in talk.questions:
            start = time.perf_counter()
            found = find(talk, asked)
            taken.append(time.perf_counter() - start)
            measured.append(judge(talk, asked, found))
    return measured, statistics.median(taken)


def show(name: str, measured: Sequence[Measured], seconds: float | None = None) -> dict[str, Any]:
    """Print a row, and return what it says."""

    def mean(value: Callable[[Measured], float], rows: Sequence[Measured] = measured) -> float:
        return statistics.fmean(value(row) for row in rows) if rows else math.nan

    row: dict[str, Any] = {
        "name": name,
        **{f"R@{depth}": mean(lambda m, n=n: m.recall[n]) for n, depth in enumerate((5, 10, DEPTH))},  # type: ignore[misc]
        "MRR": mean(lambda m: m.reciprocal),
        "session@1": mean(lambda m: m.session_first),
        "nDCG@5": mean(lambda m: m.session_gain),
    }
    apart = {
        label: mean(lambda m: m.recall[1], [m for m in measured if m.category == category])
        for category, label in CATEGORIES.items()
    }
    numbers = "  ".join(f"{key} {value:.3f}" for key, value in row.items() if key != "name")
    told = "  ".join(f"{label} {value:.3f}" for label, value in apart.items())
    speed = "" if seconds is None else f"   {seconds * 1000:.1f} ms"
    print(f"  {name:<26} {numbers}   R@10: {told}{speed}", flush=True)  # noqa: T201 - this is the output
    return {**row, "R@10 by category": apart, "ms": None if seconds is None else seconds * 1000}


def fill(url: str, talks: Sequence[Talk]) -> None:
    """Tell a server all conversations, each in a workspace of its own."""
    with httpx.Client(base_url=url, timeout=60) as client:
        for talk in talks:
            for session in dict.fromkeys(turn.session for turn in talk.turns):
                said = [turn for turn in talk.turns if turn.session == session]
                for start in range(0, len(said), 100):
                    given = [
                        {
                            "content": turn.text or " ",
                            "peer_id": turn.speaker,
                            "created_at": turn.at.isoformat(),
                            "metadata": {"turn": turn.id},
                        }
                        for turn in said[start : start + 100]
                    ]
                    path = f"/v3/workspaces/{talk.name}/sessions/{session}/messages"
                    client.post(path, json={"messages": given}).raise_for_status()


def over_http(client: httpx.Client) -> Find:
    """The search of the public API."""

    def find(talk: Talk, asked: Asked) -> list[str]:
        body = {"query": asked.text, "limit": DEPTH}
        answer = client.post(f"/v3/workspaces/{talk.name}/search", json=body).raise_for_status()
        return [row["metadata"]["turn"] for row in answer.json()]

    return find


def by_full_text(talks: Sequence[Talk]) -> Find:
    """Plain FTS5 with stemming, stop words left out; trigrams where nothing has spaces."""
    databases: dict[str, sqlite3.Connection] = {}
    for talk in talks:
        database = databases[talk.name] = sqlite3.connect(":memory:")
        kind = "porter unicode61" if any(" " in turn.text for turn in talk.turns) else "trigram"
        database.execute(f"CREATE VIRTUAL TABLE said USING fts5(id UNINDEXED, content, tokenize = '{kind}')")
        database.executemany("INSERT INTO said VALUES (?, ?)", [(turn.id, turn.text) for turn in talk.turns])

    def find(talk: Talk, asked: Asked) -> list[str]:
        words = " OR ".join(f'"{word}"' for word in telling_words(split_words(asked.text)))
        query = "SELECT id FROM said WHERE said MATCH ? ORDER BY rank LIMIT ?"
        return [row[0] for row in databases[talk.name].execute(query, (words, DEPTH))]

    return find


class Inside:
    """The engine in this process: candidates are found once, and weighed as often as wanted."""

    def __init__(self, folder: Path, talks: Sequence[Talk]) -> None:
        self._found: dict[tuple[str, str], tuple[list[str], Candidates]] = {}
        self.surest: list[tuple[int, float]] = []
        """For each question its category, and how sure the surest of the first answers is."""
        asyncio.run(self._read(folder, talks))

    async def _read(self, folder: Path, talks: Sequence[Talk]) -> None:
        database, vectors = open_database(folder), WordVectors()
        index = VectorIndex(vectors.space.dimension)

        def run(tx: Tx) -> None:
            for talk in talks:
                place = Place(workspace_id_of(tx, talk.name))
                turns = {row[0]: json.loads(row[1])["turn"] for row in tx.exec_driver_sql(
                    "SELECT id, metadata FROM messages WHERE workspace_id = ?", (place.workspace_id,)
                )}  # fmt: skip
                seen = index.outlines.find(tx, place.workspace_id)
                assert seen is not None
                for question in talk.questions:
                    text = question.text
                    asked = understand(
                        tx, place.workspace_id, Question(text, vectors.direction(text), vectors.direction)
                    )
                    candidates = find_candidates(tx, seen, place, asked, None)
                    self._found[talk.name, text] = [turns[i] for i in candidates.ids.tolist()], candidates
                    self.surest.append((question.category, _surest(candidates)))
                for text in QUESTIONS:
                    asked = understand(
                        tx, place.workspace_id, Question(text, vectors.direction(text), vectors.direction)
                    )
                    self.surest.append((UNANSWERED, _surest(find_candidates(tx, seen, place, asked, None))))

        await database.read(run)
        await database.close()

    def find(self, weights: Weights) -> Find:
        """Searching with these weights."""

        def find(talk: Talk, asked: Asked) -> list[str]:
            turns, candidates = self._found[talk.name, asked.text]
            order = np.lexsort((-candidates.ids, -score(candidates.evidence, weights)))
            return [turns[place] for place in order[:DEPTH].tolist()]

        return find


def _surest(candidates: Candidates) -> float:
    first = np.argsort(-score(candidates.evidence))[:FIRST]
    sure = certainty(candidates.evidence, candidates.known)[first]
    return float(sure.max()) if len(sure) else 0.0


def show_abstention(surest: Sequence[tuple[int, float]]) -> list[dict[str, float]]:
    """Which share of questions finds nothing that is sure enough, for several limits."""
    kinds = {"answerable": (1, 2, 3, 4), "nobody": (5,), "unanswered": (UNANSWERED,)}
    rows: list[dict[str, float]] = []
    print("\n  share refused, by the least certainty")  # noqa: T201
    for least in sorted({*(step / 50 for step in range(5, 21)), ABOUT}):
        row = {"least": least}
        for name, categories in kinds.items():
            sure = [value for category, value in surest if category in categories]
            row[name] = sum(value < least for value in sure) / max(len(sure), 1)
        rows.append(row)
        shares = "  ".join(f"{name} {row[name]:.3f}" for name in kinds)
        bar = "█" * round(40 * row["unanswered"])
        print(f"  {least:.2f}  {shares}  {bar}{'  ← in force' if least == ABOUT else ''}")  # noqa: T201
    return rows


def fit(inside: Inside, talks: Sequence[Talk]) -> Weights:
    """Weights that do better on these conversations, from the ones that ship on."""

    def worth(weights: Weights) -> float:
        rows, _ = run_all(talks, inside.find(weights))
        return statistics.fmean(
            m.recall[1] + 0.3 * (m.session_first + m.session_gain) + 0.2 * m.reciprocal for m in rows
        )

    best, most = WEIGHTS, worth(WEIGHTS)
    for field in fields(Weights):
        for step in STEPS:
            tried = replace(best, **{field.name: getattr(best, field.name) * step})
            if (now := worth(tried)) > most + 1e-4:
                best, most = tried, now
    return best


def run(folder: Path, *, fitting: bool) -> None:
    """All rows."""
    talks = read_talks(folder)
    print(f"\nRecall: {len(talks)} conversations, {sum(len(talk.questions) for talk in talks)} questions")  # noqa: T201
    rows = [show("plain FTS5", *run_all(talks, by_full_text(talks)))]
    with tempfile.TemporaryDirectory() as data:
        process, url, _ = serve(data)
        try:
            fill(url, talks)
            with httpx.Client(base_url=url, timeout=60) as client:
                rows.append(show("search over HTTP", *run_all(talks, over_http(client))))
        finally:
            process.terminate()
            process.wait()
        inside = Inside(Path(data), talks)
    rows.append(show("the same, in process", run_all(talks, inside.find(WEIGHTS))[0]))
    for field in fields(Weights):
        without = replace(WEIGHTS, **{field.name: 0.0})
        rows.append(show(f"without {field.name}", run_all(talks, inside.find(without))[0]))
    if fitting:
        held_out: list[Measured] = []
        for talk in talks:
            weights = fit(inside, [other for other in talks if other is not talk])
            held_out += run_all([talk], inside.find(weights))[0]
        rows.append(show("fitted, leave one out", held_out))
    saved = {"rows": rows, "abstention": show_abstention(inside.surest)}
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "recall.json").write_text(json.dumps(saved, indent=2), encoding="utf-8")


if __name__ == "__main__":
    given = [argument for argument in sys.argv[1:] if argument != "--fit"]
    if len(given) != 1 or not any(Path(given[0]).glob("*.json")):
        sys.exit(__doc__)
    run(Path(given[0]), fitting="--fit" in sys.argv)
