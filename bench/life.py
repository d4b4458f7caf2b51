"""Measures recall of a year-long life, sent as messages through the SDK: `python -m bench.life [NAME] [--show]`.

`NAME.jsonl` has what one person said, with times; `NAME_questions.jsonl` has questions with the words that an answer
holds, those that are outdated, and none for what was never said. Four lives ship: the questions of `life` avoid the
words of its messages, those of `life_plain` are put as people put them, and so are those of `life_tuner` and
`life_researcher`, whose author knew no rule. `life_researcher` is for its counts alone: do not read it, nor show its
questions. Each question goes to the conclusions, to the search in messages, and to `chat`: how often does the first
line hold the answer, how often only what is outdated, and how often is it admitted that nothing is known? `--show`
prints each question with what came first.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from honcho import Honcho

from bench.memory_server import serve, wait_until_learnt

FOLDER = Path(__file__).parent
PEOPLE = {"life": "lindy", "life_plain": "dana", "life_tuner": "des", "life_researcher": "imogen"}
BATCH_SIZE = 50
COUNT_SECONDS = 11.0
ADMITTED = "was not told the answer"
"""Phrases with which `chat` admits not to know."""
Ask = Callable[[str], str]


def read(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (FOLDER / name).read_text(encoding="utf-8").splitlines()]


def tell(client: Honcho, name: str) -> None:
    """Send all messages, with a session per month."""
    person, said = client.peer(PEOPLE[name]), read(f"{name}.jsonl")
    months: dict[str, list[dict[str, Any]]] = {}
    for one in said:
        months.setdefault(one["at"][:7], []).append(one)
    for month, some in months.items():
        session = client.session(month)
        for start in range(0, len(some), BATCH_SIZE):
            part = some[start : start + BATCH_SIZE]
            session.add_messages(
                [person.message(one["text"], created_at=datetime.fromisoformat(one["at"])) for one in part]
            )


def wait_until_finer(url: str) -> None:
    """Wait until every message has its second-stage vector, if they are used. The server counts from time to time."""
    while True:
        time.sleep(COUNT_SECONDS)
        with urllib.request.urlopen(f"{url}/health") as answer:
            finer = json.loads(answer.read()).get("finer_vectors")
        if not finer or finer["messages_without"] == 0:
            return


def ways(client: Honcho, name: str) -> dict[str, Ask]:
    """Return the ways of asking: each returns the first line of the result, "" for none."""
    person = client.peer(PEOPLE[name])

    def concluded(question: str) -> str:
        found = person.conclusions.query(question, top_k=1)
        return found[0].content if found else ""

    def said(question: str) -> str:
        found = client.search(question, limit=1)
        return found[0].content if found else ""

    def answered(question: str) -> str:
        answer = person.chat(question) or ""
        lines = [] if ADMITTED in answer else [line for line in answer.splitlines() if line.startswith("- ")]
        return lines[0] if lines else ""

    return {"conclusions": concluded, "search": said, "chat": answered}


def score(questions: Sequence[dict[str, Any]], ask: Ask, *, show: bool) -> dict[str, int]:
    """Count right first lines, outdated ones, and admitted ignorance."""
    counts = {"right": 0, "outdated": 0, "admitted": 0, "unanswerable": 0, "refused": 0, "questions": len(questions)}
    for one in questions:
        first = ask(one["q"])
        holds = {name: any(word.lower() in first.lower() for word in one[name]) for name in ("answer", "outdated")}
        is_unknown = not one["answer"]
        is_right = holds["answer"] or (is_unknown and not first)
        is_outdated = holds["outdated"] and not holds["answer"]
        counts["unanswerable"] += is_unknown
        counts["admitted"] += is_unknown and not first
        counts["refused"] += not is_unknown and not first
        counts["right"] += is_right
        counts["outdated"] += is_outdated
        if show:
            mark = "+" if is_right else "o" if is_outdated else "-"
            print(f"    {mark} {one['q']}  →  {first[:100]!r}")  # noqa: T201
    return counts


def run(url: str, name: str, *, show: bool) -> None:
    client = Honcho(base_url=url, workspace_id=name.replace("_", "-"), api_key="none")
    tell(client, name)
    wait_until_learnt(client)
    wait_until_finer(url)
    questions = read(f"{name}_questions.jsonl")
    for way, ask in ways(client, name).items():
        print(f"  {way:<12} {score(questions, ask, show=show)}")  # noqa: T201


if __name__ == "__main__":
    given = [argument for argument in sys.argv[1:] if not argument.startswith("--")]
    with tempfile.TemporaryDirectory() as data:
        process, address, _ = serve(data)
        try:
            for life in given or PEOPLE:
                print(life)  # noqa: T201
                run(address, life, show="--show" in sys.argv)
        finally:
            process.terminate()
            process.wait()
