"""Measures search of changed values on conversations of BEAM: `python -m bench.truth FOLDER [BASE_URL]`.

FOLDER holds `beam*.json` files: conversations with sessions of turns, and questions with the turns that answer them.
Those of the kinds `knowledge_update` and `contradiction_resolution` name two `sides`. Printed are how often the newer
side comes before the older one, how often both are among the first ten, and the mean reciprocal rank, first place and
recall among the first ten of all questions with evidence.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from bench.life import wait_until_finer
from bench.memory_server import serve

PAIRED = ("knowledge_update", "contradiction_resolution")
NO_RANK = ("event_ordering", "summarization", "abstention")
"""Kinds of questions without evidence, or whose evidence has no order."""
DEPTH = 50
NOWHERE = 10**6


@dataclass(slots=True)
class Figures:
    """Counts over all questions."""

    newer_first: list[bool] = field(default_factory=list)
    both_in_ten: list[bool] = field(default_factory=list)
    reciprocal: list[float] = field(default_factory=list)
    recall: list[float] = field(default_factory=list)

    def add(self, question: Mapping[str, Any], found: Sequence[str], said_at: Mapping[str, str]) -> None:
        places = {turn: place for place, turn in enumerate(found)}
        evidence = question["evidence"]
        if evidence and question["type"] not in NO_RANK:
            best = min(places.get(turn, NOWHERE) for turn in evidence)
            self.reciprocal.append(0.0 if best == NOWHERE else 1 / (best + 1))
            self.recall.append(sum(places.get(turn, NOWHERE) < 10 for turn in evidence) / len(evidence))
        if question["type"] not in PAIRED:
            return
        sides = [*question["sides"].values()]
        if not all(sides) or set(sides[0]) & set(sides[1]):
            return
        if question["type"] == "contradiction_resolution":  # in which order they are named says nothing
            sides.sort(key=lambda side: max(said_at[turn] for turn in side))
        older, newer = (min(places.get(turn, NOWHERE) for turn in side) for side in sides)
        self.newer_first.append(newer < older)
        self.both_in_ten.append(max(newer, older) < 10)

    def lines(self) -> Iterator[str]:
        yield f"newer before outdated {sum(self.newer_first)} of {len(self.newer_first)}"
        yield f"both in the first ten {sum(self.both_in_ten)} of {len(self.both_in_ten)}"
        count = max(len(self.reciprocal), 1)
        first = sum(value == 1 for value in self.reciprocal)
        yield f"MRR {sum(self.reciprocal) / count:.3f}, first place {first / count:.3f} of {len(self.reciprocal)}"
        yield f"recall in the first ten {sum(self.recall) / count:.3f}"


def run(folder: Path, url: str) -> None:
    """Load each conversation of a folder into a separate workspace, ask its questions, and print the figures."""
    figures = Figures()
    with httpx.Client(base_url=url, timeout=120) as client:
        talks = [
            talk
            for path in sorted(folder.glob("beam*.json"))
            for talk in json.loads(path.read_text(encoding="utf-8"))["conversations"]
        ]
        for talk in talks:
            _load(client, talk)
        wait_until_finer(url)
        for talk in talks:
            said_at = {turn["id"]: turn["time"] for part in talk["sessions"] for turn in part["turns"]}
            for question in talk["questions"]:
                asked = {"query": question["q"], "limit": DEPTH}
                found = client.post(f"/v3/workspaces/{talk['id']}/search", json=asked).raise_for_status().json()
                figures.add(question, [hit["metadata"]["turn"] for hit in found], said_at)
    print("\n".join(figures.lines()))  # noqa: T201


def _load(client: httpx.Client, talk: Mapping[str, Any]) -> None:
    client.post("/v3/workspaces", json={"id": talk["id"]}).raise_for_status()
    for part in talk["sessions"]:
        for start in range(0, len(part["turns"]), 100):
            messages = [
                {
                    "content": turn["text"][:25_000] or " ",
                    "peer_id": turn["speaker"],
                    "created_at": turn["time"],
                    "metadata": {"turn": turn["id"]},
                }
                for turn in part["turns"][start : start + 100]
            ]
            path = f"/v3/workspaces/{talk['id']}/sessions/{part['id']}/messages"
            client.post(path, json={"messages": messages}).raise_for_status()


if __name__ == "__main__":
    if len(sys.argv) > 2:
        run(Path(sys.argv[1]), sys.argv[2])
    else:
        with tempfile.TemporaryDirectory() as data:
            process, address, _ = serve(data)
            try:
                run(Path(sys.argv[1]), address)
            finally:
                process.terminate()
                process.wait()
