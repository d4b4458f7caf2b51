"""Scores which questions memory admits not to know: `python -m bench.admission DATA` (a folder of conversations).

DATA holds LoCoMo files (`locomo*.json`; category 5 has no answer) and files in the form of BEAM (`beam*.json`, kind
`abstention`). To these come questions that nobody spoke of. The regression of `hermes.ranking.admission` is fitted on
all conversations but one, for each, and judged on that one. Prints the share that is refused, by the least likelihood,
and the numbers for the source; the curve goes beside the results.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass, fields
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from numpy.typing import NDArray

from bench.memory_server import serve
from bench.plot import draw_lines
from bench.table import RESULTS
from bench.unanswered import QUESTIONS
from hermes.memory_server.db.database import Tx
from hermes.memory_server.db.schema import open_database
from hermes.memory_server.db.text_index import SearchArea
from hermes.memory_server.embedder import SearchQuestion
from hermes.memory_server.engine.asking import understand
from hermes.memory_server.engine.candidates import find_candidates
from hermes.memory_server.engine.vectors import VectorIndex
from hermes.memory_server.engine.word_vectors import WordVectors
from hermes.memory_server.engine.workspaces import workspace_id_of
from hermes.ranking.admission import LEAST_LIKELY, AnswerFeatures, read_features
from hermes.ranking.scoring import score

ANSWERED = {
    "LoCoMo": True,
    "BEAM": True,
    "LoCoMo, no answer": False,
    "BEAM, no answer": False,
    "never spoken of": False,
}
WORLD_WEIGHT = 0.3
"""Weight of a question that nobody has talked about: there are many, and they are easy."""
ROUNDS, RIDGE = 50, 1.0
Numbers = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Asked:
    conversation: str
    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class Conversation:
    name: str
    turns: Sequence[dict[str, Any]]
    """Turns with session, speaker, text and time."""
    questions: Sequence[tuple[str, bool]]
    """Questions, each with whether it has an answer."""


def read_conversations(folder: Path) -> Iterator[Conversation]:
    for path in sorted(folder.glob("*.json")):
        given = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(given, dict):
            yield from (_beam(number, one) for number, one in enumerate(given["conversations"]))
        else:
            yield from (_locomo(number, one) for number, one in enumerate(given))


def _beam(number: int, given: dict[str, Any]) -> Conversation:
    turns = [{"session": one["id"], **turn} for one in given["sessions"] for turn in one["turns"]]
    asked = [(one["q"], one["type"] != "abstention") for one in given["questions"]]
    return Conversation(f"BEAM-{number}", turns, asked)


def _locomo(number: int, given: dict[str, Any]) -> Conversation:
    turns: list[dict[str, Any]] = []
    talk = given["conversation"]
    for name in sorted(
        (name for name in talk if name.endswith("_date_time")), key=lambda name: int(name.split("_")[1])
    ):
        session = name.removesuffix("_date_time")
        start = datetime.strptime(talk[name].strip(), "%I:%M %p on %d %B, %Y").replace(tzinfo=UTC)
        turns += [
            {"session": session, **said, "time": (start + timedelta(seconds=20 * place)).isoformat()}
            for place, said in enumerate(talk.get(session, []))
        ]
    return Conversation(f"LoCoMo-{number}", turns, [(one["question"], one["category"] != 5) for one in given["qa"]])


def fill(client: httpx.Client, one: Conversation) -> None:
    for session in dict.fromkeys(turn["session"] for turn in one.turns):
        said = [turn for turn in one.turns if turn["session"] == session]
        for start in range(0, len(said), 100):
            given = [
                {"content": turn["text"][:25_000] or " ", "peer_id": turn["speaker"], "created_at": turn["time"]}
                for turn in said[start : start + 100]
            ]
            path = f"/v3/workspaces/{one.name}/sessions/{session}/messages"
            client.post(path, json={"messages": given}).raise_for_status()


async def look(folder: Path, asked: Sequence[Asked]) -> list[AnswerFeatures | None]:
    """Search for each question in this process, and return its features."""
    database, vectors = open_database(folder), WordVectors()
    index = VectorIndex(vectors.space.dimension)

    def run(tx: Tx, one: Asked) -> AnswerFeatures | None:
        place = SearchArea(workspace_id_of(tx, one.conversation))
        seen = index.outlines.load(tx, place.workspace_id)
        question = SearchQuestion(one.text, vectors.direction(one.text), vectors.direction)
        words = understand(tx, place.workspace_id, question)
        found = find_candidates(tx, seen, place, words, None)
        return read_features(found.evidence, score(found.evidence), found.known, names_one=len(words.named) == 1)

    read = [await database.read(lambda tx, one=one: run(tx, one)) for one in asked]  # type: ignore[misc]
    await database.close()
    return read


def fit(rows: Numbers, wanted: Numbers, weights: Numbers) -> tuple[Numbers, float]:
    """Fit a logistic regression by Newton's method; return its coefficients and its bias."""
    middle, spread = rows.mean(axis=0), rows.std(axis=0) + 1e-9
    given = np.column_stack([(rows - middle) / spread, np.ones(len(rows))])
    ridge = RIDGE * np.array([*[1.0] * rows.shape[1], 0.0])
    found = np.zeros(given.shape[1])
    for _ in range(ROUNDS):
        likely = 1 / (1 + np.exp(-given @ found))
        slope = given.T @ ((wanted - likely) * weights) - ridge * found
        found += np.linalg.solve((given * (likely * (1 - likely) * weights)[:, None]).T @ given + np.diag(ridge), slope)
    coefficients = found[:-1] / spread
    return coefficients, float(found[-1] - coefficients @ middle)


def judge(rows: Numbers, asked: Sequence[Asked]) -> Numbers:
    """Return the likelihood of each question by a regression that has not seen its conversation."""
    wanted = np.array([float(ANSWERED[one.kind]) for one in asked])
    weights = np.array([WORLD_WEIGHT if one.kind == "never spoken of" else 1.0 for one in asked])
    talks = np.array([one.conversation for one in asked])
    likely = np.zeros(len(asked))
    for talk in sorted(set(talks)):
        own = talks == talk
        coefficients, bias = fit(rows[~own], wanted[~own], weights[~own])
        likely[own] = 1 / (1 + np.exp(-(rows[own] @ coefficients + bias)))
    return likely


def show(likely: Numbers, asked: Sequence[Asked]) -> None:
    """Print and draw which share of each kind is refused."""
    kinds = np.array([one.kind for one in asked])
    limits = sorted({*(step / 50 for step in range(5, 36)), LEAST_LIKELY})
    refused = {kind: [float((likely[kinds == kind] < least).mean()) for least in limits] for kind in ANSWERED}
    print("  least likely   " + "   ".join(ANSWERED))  # noqa: T201 - this is the output
    for place, least in enumerate(limits):
        shares = "   ".join(f"{refused[kind][place]:>{len(kind)}.3f}" for kind in ANSWERED)
        print(f"  {least:.2f}           {shares}{'   ← in force' if least == LEAST_LIKELY else ''}")  # noqa: T201
    RESULTS.mkdir(exist_ok=True)
    curves = {kind: list(zip(limits, refused[kind], strict=True)) for kind in ANSWERED}
    draw_lines(RESULTS / "admission.svg", "Share refused, by the least likelihood", curves)


def run(folder: Path) -> None:
    talks = list(read_conversations(folder))
    if not talks:
        sys.exit(f"{folder} holds no conversations: see the first lines of bench/admission.py")
    asked: list[Asked] = []
    with tempfile.TemporaryDirectory() as data:
        process, url, _ = serve(data)
        try:
            with httpx.Client(base_url=url, timeout=60) as client:
                for talk in talks:
                    fill(client, talk)
        finally:
            process.terminate()
            process.wait()
        for talk in talks:
            source = talk.name.partition("-")[0]
            asked += [
                Asked(talk.name, source if known else f"{source}, no answer", text) for text, known in talk.questions
            ]
            if source == "LoCoMo":
                asked += [Asked(talk.name, "never spoken of", text) for text in QUESTIONS]
        read = asyncio.run(look(Path(data), asked))
    found = [(one, features) for one, features in zip(asked, read, strict=True) if features is not None]
    rows = np.array([astuple(features) for _, features in found])
    kept = [one for one, _ in found]
    show(judge(rows, kept), kept)
    weights = np.array([WORLD_WEIGHT if one.kind == "never spoken of" else 1.0 for one in kept])
    coefficients, bias = fit(rows, np.array([float(ANSWERED[one.kind]) for one in kept]), weights)
    names = [field.name for field in fields(AnswerFeatures)]
    values = ", ".join(f"{name}={value:.3f}" for name, value in zip(names, coefficients, strict=True))
    print(f"\n  AnswerFeatures({values}), bias {bias:.3f}, from {len(kept)} questions")  # noqa: T201


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    run(Path(sys.argv[1]))
