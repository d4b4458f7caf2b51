"""Measures recall of search: `python -m bench.recall DATA [--fit] [--minilm] [--database=URL]`.

DATA is a folder of conversations, or `samples`.

The files are those of LoCoMo (Maharana et al., 2024; `locomo*.json` from its repository, CC BY-NC 4.0): a list of
conversations with questions and the ids of the turns that hold their evidence. The first two rows go through plain FTS5
and through the public API of a server on loopback; the others leave out one idea at a time, in this process, with the
same engine. `--fit` fits the weights anew on all conversations but one, for each, and measures on that one. `--minilm`
does it all again with finer vectors. `--database` names an empty PostgreSQL database, without a password in the URL, of
which the public API is asked too. At the end stands which share of questions finds nothing, of those that have an
answer and of those that have none. `samples` are conversations of our own, in several languages and with an assistant.
Charts are kept beside the results.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from bench.fitting import Case, fit
from bench.full_text import Find, by_full_text
from bench.inside import UNANSWERED_CODE, Inside
from bench.memory_server import serve
from bench.plot import draw_bars
from bench.samples import samples
from bench.table import RESULTS
from bench.talks import DEPTH, Asked, Measured, Talk, judge, read_talks
from hermes.memory_server.minilm import MiniLm
from hermes.ranking.scoring import FINER, RELEVANCE_THRESHOLD, WEIGHTS, Weights

CATEGORIES = {1: "several", 2: "time", 3: "open", 4: "single", 5: "nobody"}
"""LoCoMo's categories: multi-hop, temporal, open-domain, single-hop and adversarial."""


def run_all(talks: Sequence[Talk], find: Find) -> tuple[list[Measured], float]:
    """Ask every question; return the scores and the median seconds of one."""
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
    """Print a row, and return its values."""

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


def fill(client: httpx.Client, talks: Sequence[Talk]) -> None:
    """Store all conversations on a server, each in a separate workspace."""
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
    """Return the search of the public API."""

    def find(talk: Talk, asked: Asked) -> list[str]:
        body = {"query": asked.text, "limit": DEPTH}
        answer = client.post(f"/v3/workspaces/{talk.name}/search", json=body).raise_for_status()
        return [row["metadata"]["turn"] for row in answer.json()]

    return find


def show_abstention(surest: Sequence[tuple[int, float]]) -> list[dict[str, float]]:
    """Print the share of questions without a confident result, for several thresholds."""
    kinds = {"answerable": (1, 2, 3, 4), "nobody": (5,), "unanswered": (UNANSWERED_CODE,)}
    rows: list[dict[str, float]] = []
    print("\n  share refused, by the least certainty")  # noqa: T201
    for least in sorted({*(step / 50 for step in range(5, 21)), RELEVANCE_THRESHOLD}):
        row = {"least": least}
        for name, categories in kinds.items():
            sure = [value for category, value in surest if category in categories]
            row[name] = sum(value < least for value in sure) / max(len(sure), 1)
        rows.append(row)
        shares = "  ".join(f"{name} {row[name]:.3f}" for name in kinds)
        bar = "█" * round(40 * row["unanswered"])
        print(f"  {least:.2f}  {shares}  {bar}{'  ← in force' if least == RELEVANCE_THRESHOLD else ''}")  # noqa: T201
    return rows


def weigh(inside: Inside, talks: Sequence[Talk], weights: Weights, *, fitting: bool) -> list[dict[str, Any]]:
    """Print a row with all kinds of evidence, and one without each; fitted weights are scored on conversations that
    were held out."""
    rows = [show("the same, in process", run_all(talks, inside.find(weights))[0])]
    for field in fields(Weights):
        if getattr(weights, field.name):
            without = replace(weights, **{field.name: 0.0})
            rows.append(show(f"without {field.name}", run_all(talks, inside.find(without))[0]))
    if fitting:
        held_out: list[Measured] = []
        for talk in talks:
            fitted = fit([case for other in talks if other is not talk for case in cases(inside, other)])
            held_out += run_all([talk], inside.find(fitted))[0]
        rows.append(show("fitted, leave one out", held_out))
    return rows


def cases(inside: Inside, talk: Talk) -> Iterator[Case]:
    """Return the cases of a conversation's questions."""
    for asked in talk.questions:
        turns, evidence = inside.seen(talk, asked)
        yield evidence, np.array([turn in asked.evidence for turn in turns])


@contextmanager
def serving(data: str, embedder: str = "none", database: str | None = None) -> Iterator[httpx.Client]:
    """Run a server of a folder or a database; yield it when all messages are embedded."""
    os.environ["HERMES_FINER_EMBEDDER"] = embedder
    process, url, _ = serve(data, options=() if database is None else ("--database", database))
    try:
        with httpx.Client(base_url=url, timeout=60) as client:
            while (finer := client.get("/health").json()["finer_vectors"]) and finer["messages_without"] != 0:
                time.sleep(1)
            yield client
    finally:
        process.terminate()
        process.wait()


def compare(talks: Sequence[Talk], data: str, *, minilm: bool, database: str | None = None) -> list[dict[str, Any]]:
    """Compare plain full text search and the public API with one or both kinds of vectors, on a folder and on a
    database."""
    rows = [show("plain FTS5", *run_all(talks, by_full_text(talks)))]
    for address, name in ((None, ""), *([(database, " of PostgreSQL")] if database else [])):
        with serving(data, database=address) as client:
            fill(client, talks)
            rows.append(show(f"search over HTTP{name}", *run_all(talks, over_http(client))))
        if minilm:
            with serving(data, "minilm", address) as client:
                rows.append(show(f"HTTP, with MiniLM{name}", *run_all(talks, over_http(client))))
    return rows


def run(folder: Path, *, fitting: bool, minilm: bool, database: str | None = None) -> None:
    """Print all rows of the conversations in a folder."""
    talks = read_talks(folder)
    print(f"\nRecall: {len(talks)} conversations, {sum(len(talk.questions) for talk in talks)} questions")  # noqa: T201
    with tempfile.TemporaryDirectory() as data:
        drawn = compare(talks, data, minilm=minilm, database=database)
        inside = Inside()
        asyncio.run(inside.read(Path(data), talks))
        rows = [*drawn, *weigh(inside, talks, WEIGHTS, fitting=fitting)]
        if minilm:
            finer = Inside()
            asyncio.run(finer.read(Path(data), talks, MiniLm()))
            rows += weigh(finer, talks, FINER, fitting=fitting)
    saved = {"rows": rows, "abstention": show_abstention(inside.surest)}
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "recall.json").write_text(json.dumps(saved, indent=2), encoding="utf-8")
    kinds = {label: [row["R@10 by category"][label] for row in drawn] for label in CATEGORIES.values()}
    kinds["all"] = [row["R@10"] for row in drawn]
    draw_bars(RESULTS / "recall.svg", "Turn recall@10 by category", [row["name"] for row in drawn], kinds)


def run_samples(*, minilm: bool, database: str | None = None) -> None:
    """Print the rows of the sample conversations, each kind separately."""
    drawn: dict[str, list[float]] = {}
    names: list[str] = []
    for talk in samples():
        print(f"\n{talk.name}: {len(talk.turns)} messages, {len(talk.questions)} questions")  # noqa: T201
        with tempfile.TemporaryDirectory() as data:
            rows = compare([talk], data, minilm=minilm, database=database)
        drawn[talk.name], names = [row["MRR"] for row in rows], [row["name"] for row in rows]
    RESULTS.mkdir(exist_ok=True)
    title = "Mean reciprocal rank by kind of conversation"
    draw_bars(RESULTS / "samples.svg", title, names, drawn)


if __name__ == "__main__":
    given = [argument for argument in sys.argv[1:] if not argument.startswith("--")]
    named = [text.removeprefix("--database=") for text in sys.argv if text.startswith("--database=")]
    database = named[0] if named else None
    if given == ["samples"]:
        run_samples(minilm="--minilm" in sys.argv, database=database)
    elif len(given) != 1 or not any(Path(given[0]).glob("*.json")):
        sys.exit(__doc__)
    else:
        run(Path(given[0]), fitting="--fit" in sys.argv, minilm="--minilm" in sys.argv, database=database)
