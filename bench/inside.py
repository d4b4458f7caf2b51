"""The search engine in this process: candidates are found once and can be weighed many times."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bench.full_text import Find
from bench.talks import DEPTH, Asked, Talk
from bench.unanswered import QUESTIONS
from hermes.memory_server.db.database import Tx
from hermes.memory_server.db.schema import open_database
from hermes.memory_server.db.text_index import SearchArea
from hermes.memory_server.embedder import Embedder, Finer, SearchQuestion
from hermes.memory_server.engine.candidates import Candidates, find_candidates
from hermes.memory_server.engine.finer import MAX_REFINED_CANDIDATES, closeness
from hermes.memory_server.engine.vectors import VectorIndex
from hermes.memory_server.engine.word_vectors import WordVectors
from hermes.memory_server.engine.words import understand, without_names
from hermes.memory_server.engine.workspaces import workspace_id_of
from hermes.ranking.scoring import Evidence, Floats, Weights, Wholes, certainty, score, with_finer

FIRST_COUNT = 5
UNANSWERED_CODE = 0
"""The category of questions without an answer."""


@dataclass(frozen=True, slots=True)
class Found:
    """The candidates of one question with their evidence, including second-stage vectors."""

    turns: list[str]
    candidates: Candidates
    evidence: Evidence


class Inside:
    """The engine's results for each question, with the shipped vectors or also with second-stage ones."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str], Found] = {}
        self.surest: list[tuple[int, float]] = []
        """Category of each question, and the confidence of its best answer."""

    async def read(self, folder: Path, talks: Sequence[Talk], finer: Embedder | None = None) -> None:
        """Find the candidates of all questions."""
        database, vectors = open_database(folder), WordVectors()
        index = VectorIndex(vectors.space.dimension)

        def look(tx: Tx, talk: Talk, text: str) -> Candidates:
            place = SearchArea(workspace_id_of(tx, talk.name))
            seen = index.memory_indexes.load(tx, place.workspace_id)
            asked = understand(tx, place.workspace_id, SearchQuestion(text, vectors.direction(text), vectors.direction))
            return find_candidates(tx, seen, place, asked, None)

        for talk in talks:
            turns = await database.read(lambda tx, talk=talk: _turns(tx, talk))  # type: ignore[misc]
            for question in talk.questions:
                text = question.text
                found = await database.read(lambda tx, talk=talk, text=text: look(tx, talk, text))  # type: ignore[misc]
                evidence = found.evidence
                if finer is not None:
                    bare = await database.read(
                        lambda tx, talk=talk, text=text: without_names(tx, workspace_id_of(tx, talk.name), text)  # type: ignore[misc]
                    )
                    [vector] = await finer.embed([bare])
                    asked = Finer(str(finer.space), vector)
                    close = await database.read(
                        lambda tx, talk=talk, asked=asked, found=found: closeness(  # type: ignore[misc]
                            tx, workspace_id_of(tx, talk.name), asked, found.ids.tolist()
                        )
                    )
                    evidence = with_finer(evidence, *_best(evidence, close))
                self._found[talk.name, text] = Found([turns[i] for i in found.ids.tolist()], found, evidence)
                self.surest.append((question.category, _surest(found)))
            for text in QUESTIONS:
                found = await database.read(lambda tx, talk=talk, text=text: look(tx, talk, text))  # type: ignore[misc]
                self.surest.append((UNANSWERED_CODE, _surest(found)))
        await database.close()

    def seen(self, talk: Talk, asked: Asked) -> tuple[list[str], Evidence]:
        """Return the candidates of a question with their evidence."""
        found = self._found[talk.name, asked.text]
        return found.turns, found.evidence

    def find(self, weights: Weights) -> Find:
        """Return a search with these weights."""

        def find(talk: Talk, asked: Asked) -> list[str]:
            found = self._found[talk.name, asked.text]
            scores = score(found.evidence, weights)
            order = np.lexsort((-found.candidates.ids, -scores))
            return [found.turns[place] for place in order[:DEPTH].tolist()]

        return find


def _turns(tx: Tx, talk: Talk) -> dict[int, str]:
    query = "SELECT id, metadata FROM messages WHERE workspace_id = ?"
    rows = tx.exec_driver_sql(query, (workspace_id_of(tx, talk.name),))
    return {row[0]: json.loads(row[1])["turn"] for row in rows}


def _best(evidence: Evidence, close: Floats) -> tuple[Wholes, Floats]:
    best = np.argsort(-score(evidence))[:MAX_REFINED_CANDIDATES]
    return best, close[best]


def _surest(candidates: Candidates) -> float:
    first = np.argsort(-score(candidates.evidence))[:FIRST_COUNT]
    sure = certainty(candidates.evidence, candidates.known)[first]
    return float(sure.max()) if len(sure) else 0.0
