"""Scores which questions memory admits not to know: `python -m bench.admission FOLDER [--plain]`.

FOLDER holds LoCoMo files (`locomo*.json`; category 5 has no answer) and files in the form of BEAM (`beam*.json`, kind
`abstention`). To these come the lives of `told_lives.txt` in five languages, each with questions that have an answer
(`?`) and questions near to what was told that have none (`!`), once more without capitals; the three lives of
`bench.life` with their questions and those of `near_questions.jsonl`; questions of other conversations under the names
of this one, and questions that nobody spoke of. The regression of `hermes.ranking.admission` is fitted on all
conversations but one, for each, and judged on that one. Prints the share that is refused, by the least likelihood, the
likelihood that refuses 8 % of LoCoMo's questions with an answer, and the numbers for `COEFFICIENTS` and `BIAS_WEIGHT`
of `hermes.ranking.admission`; the curve goes beside the results.
The long texts of BEAM are judged without finer vectors, which would take half an hour; with `--plain` all are.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass, fields, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from honcho import Honcho
from numpy.typing import NDArray

from bench import life
from bench.memory_server import serve
from bench.plot import draw_lines
from bench.table import RESULTS
from bench.unanswered import QUESTIONS
from hermes.memory_server.db.database import Tx
from hermes.memory_server.db.schema import open_database
from hermes.memory_server.db.text_index import SearchArea
from hermes.memory_server.embedder import Finer, SearchQuestion
from hermes.memory_server.engine.search import find_hits, read_answer
from hermes.memory_server.engine.vectors import VectorIndex
from hermes.memory_server.engine.word_vectors import WordVectors
from hermes.memory_server.engine.words import without_names
from hermes.memory_server.engine.workspaces import workspace_id_of
from hermes.memory_server.minilm import SPACE, MiniLm
from hermes.ranking.admission import KNOWN_THRESHOLD, MAX_LINES_READ, AnswerFeatures

ANSWERED = {
    "LoCoMo": True,
    "BEAM": True,
    "told": True,
    "small": True,
    "life": True,
    "LoCoMo, no answer": False,
    "BEAM, no answer": False,
    "told, no answer": False,
    "small, no answer": False,
    "life, no answer": False,
    "of another talk": False,
    "never spoken of": False,
}
WEIGHTS = {
    "never spoken of": 0.8, "of another talk": 0.3, "told": 1.5, "told, no answer": 5.0, "small": 0.75,
    "small, no answer": 2.5, "life": 1.0, "life, no answer": 3.75, "BEAM": 0.5, "BEAM, no answer": 1.5,
}  # fmt: skip
"""Weights of questions other than 1: some kinds are many and easy, or have an answer by chance. Those of the lives that
have no answer count more, so that more of them are refused; LoCoMo's names of people make up for it.
"""
TOLD = Path(__file__).with_name("told_lives.txt")
DAYS_BETWEEN, MESSAGES_PER_SESSION = 6, 6
LIVES = ("life", "life_plain", "life_tuner")
SMALL = "small-"
"""The name of a told life that is written without capitals begins with this."""
WITHOUT_CAPITALS = re.compile(r"[\u3040-\u30ff\u4e00-\u9fff]")
MAX_REFUSED = 0.08
SHARE_OF_OTHERS = 3
"""Every so many of the questions of another conversation is asked."""
ROUNDS, RIDGE = 50, 30.0
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


def read_told() -> Iterator[Conversation]:
    """Yield the made-up lives. A line begins with what it is: `#` a name, `-` a message, `?` and `!` questions."""
    start = datetime(2024, 1, 3, 9, tzinfo=UTC)
    for part in TOLD.read_text(encoding="utf-8").split("# ")[1:]:
        (name, _), *lines = [line.split(" ", 1) for line in part.splitlines()]
        said = [text for mark, text in lines if mark == "-"]
        turns = [
            {
                "session": f"s{place // MESSAGES_PER_SESSION}",
                "speaker": name,
                "text": text,
                "time": (start + timedelta(days=DAYS_BETWEEN * place)).isoformat(),
            }
            for place, text in enumerate(said)
        ]
        questions = [(text, mark == "?") for mark, text in lines if mark in "?!"]
        yield Conversation(f"told-{name}", turns, questions)
        if not WITHOUT_CAPITALS.search(part):
            small = [{**turn, "text": turn["text"].lower()} for turn in turns]
            yield Conversation(f"{SMALL}{name}", small, questions)


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


async def look(folder: Path, asked: Sequence[Asked], finer: MiniLm | None) -> list[tuple[Asked, AnswerFeatures]]:
    """Search for each question in this process, without and with finer vectors, and return it with its features."""
    database, vectors = open_database(folder), WordVectors()
    index = VectorIndex(vectors.space.dimension)

    def run(tx: Tx, one: Asked, question: SearchQuestion) -> AnswerFeatures | None:
        place = SearchArea(workspace_id_of(tx, one.conversation))
        index.memory_indexes.load(tx, place.workspace_id)
        return read_answer(question, find_hits(tx, index, place, question, None, MAX_LINES_READ))

    found = []
    for one in asked:
        plain = SearchQuestion(one.text, vectors.direction(one.text), vectors.direction)
        questions = [plain]
        if finer is not None:
            bare = await database.read(lambda tx: without_names(tx, workspace_id_of(tx, one.conversation), one.text))  # noqa: B023
            [vector] = await finer.embed([bare])
            questions.append(replace(plain, finer=Finer(str(SPACE), vector)))
        for question in questions:
            features = await database.read(lambda tx: run(tx, one, question))  # noqa: B023
            found += [] if features is None else [(one, features)]
    await database.close()
    return found


def fit(rows: Numbers, wanted: Numbers, weights: Numbers) -> tuple[Numbers, float]:
    """Fit a logistic regression by Newton's method; return its coefficients and bias. Rows of weight 0 play no part."""
    rows, wanted, weights = (some[weights > 0] for some in (rows, wanted, weights))
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
    weights = _weights(asked)
    talks = np.array([one.conversation.replace(SMALL, "told-") for one in asked])
    likely = np.zeros(len(asked))
    for talk in sorted(set(talks)):
        own = talks == talk
        coefficients, bias = fit(rows[~own], wanted[~own], weights[~own])
        likely[own] = 1 / (1 + np.exp(-(rows[own] @ coefficients + bias)))
    return likely


def show(likely: Numbers, asked: Sequence[Asked], name: str) -> None:
    """Print and draw which share of each kind is refused, and print the likelihood that refuses a set share of LoCoMo
    and what it means for each life.
    """
    kinds, talks = (np.array([getattr(one, of) for one in asked]) for of in ("kind", "conversation"))
    limits = sorted({*(step / 50 for step in range(5, 36)), KNOWN_THRESHOLD})
    shown = [kind for kind in ANSWERED if (kinds == kind).any()]
    refused = {kind: [float((likely[kinds == kind] < least).mean()) for least in limits] for kind in shown}
    print("  least likely   " + "   ".join(shown))  # noqa: T201 - this is the output
    for place, least in enumerate(limits):
        shares = "   ".join(f"{refused[kind][place]:>{len(kind)}.3f}" for kind in shown)
        print(f"  {least:.2f}           {shares}{'   ← in force' if least == KNOWN_THRESHOLD else ''}")  # noqa: T201
    RESULTS.mkdir(exist_ok=True)
    curves = {kind: list(zip(limits, refused[kind], strict=True)) for kind in shown}
    draw_lines(
        RESULTS / f"admission_{name}.svg", f"Share refused, by the least likelihood, {name} finer vectors", curves
    )
    least = float(np.quantile(likely[kinds == "LoCoMo"], MAX_REFUSED)) if (kinds == "LoCoMo").any() else KNOWN_THRESHOLD
    print(f"  {MAX_REFUSED:.0%} of LoCoMo is refused below {least:.3f}; in force, refused with and without an answer:")  # noqa: T201
    for talk in LIVES:
        of = [likely[(talks == talk) & (kinds == kind)] < KNOWN_THRESHOLD for kind in ("life", "life, no answer")]
        print("    " + talk, *(f"{some.sum()} of {len(some)}" for some in of))  # noqa: T201


def list_questions(talks: Sequence[Conversation]) -> Iterator[Asked]:
    """Yield every question with its kind."""
    others = [talk for talk in talks if talk.name.startswith("LoCoMo")]
    for talk in talks:
        source = talk.name.partition("-")[0]
        for text, known in talk.questions:
            yield Asked(talk.name, source if known else f"{source}, no answer", text)
        if talk in others:
            yield from (Asked(talk.name, "never spoken of", text) for text in QUESTIONS)
            other = others[(others.index(talk) + 1) % len(others)]
            names = [*zip(_people(other), _people(talk), strict=False)]
            for text, _ in [asked for asked in other.questions if asked[1]][::SHARE_OF_OTHERS]:
                for theirs, ours in names:
                    text = text.replace(theirs, ours)  # noqa: PLW2901
                yield Asked(talk.name, "of another talk", text)


def list_life_questions() -> Iterator[Asked]:
    near = life.read("near_questions.jsonl")
    for name in LIVES:
        told = [*life.read(f"{name}_questions.jsonl"), *(one for one in near if one["life"] == name)]
        for one in told:
            is_answered = one["answered"] if "answered" in one else bool(one["answer"])
            yield Asked(name, "life" if is_answered else "life, no answer", one["q"])


def _people(talk: Conversation) -> list[str]:
    return [*dict.fromkeys(turn["speaker"] for turn in talk.turns)]


def gather(talks: Sequence[Conversation], *, finer: bool, lives: bool) -> list[tuple[Asked, AnswerFeatures]]:
    """Tell a server these conversations, and the lives, and return their questions with the features of the search."""
    with tempfile.TemporaryDirectory() as data:
        process, url, _ = serve(data)
        try:
            with httpx.Client(base_url=url, timeout=60) as client:
                for talk in talks:
                    fill(client, talk)
            for name in LIVES if lives else ():
                life.tell(Honcho(base_url=url, workspace_id=name, api_key="none"), name)
            if finer:
                life.wait_until_finer(url)
        finally:
            process.terminate()
            process.wait()
        asked = [*list_questions(talks), *(list_life_questions() if lives else ())]
        return asyncio.run(look(Path(data), asked, MiniLm() if finer else None))


def run(folder: Path, *, plain: bool) -> None:
    talks = list(read_conversations(folder))
    if not talks:
        sys.exit(f"{folder} holds no conversations: see the first lines of bench/admission.py")
    long = [talk for talk in talks if talk.name.startswith("BEAM")]
    short = [*(talk for talk in talks if talk not in long), *read_told()]
    found = [*gather(short, finer=not plain, lives=True), *gather(long, finer=False, lives=False)]
    kept = [one for one, _ in found]
    rows = np.array([astuple(features) for _, features in found])
    likely = judge(rows, kept)
    has_finer = np.array([features.finer > 0 for _, features in found])
    for name, part in (("with", has_finer), ("without", ~has_finer)):
        if part.any():
            print(f"  {name} finer vectors, {part.sum()} searches")  # noqa: T201 - this is the output
            show(likely[part], [one for one, is_in in zip(kept, part, strict=True) if is_in], name)
    coefficients, bias = fit(rows, np.array([float(ANSWERED[one.kind]) for one in kept]), _weights(kept))
    names = [field.name for field in fields(AnswerFeatures)]
    values = ", ".join(f"{name}={value:.3f}" for name, value in zip(names, coefficients, strict=True))
    print(f"\n  AnswerFeatures({values}), bias {bias:.3f}, from {len(kept)} searches")  # noqa: T201


def _weights(asked: Sequence[Asked]) -> Numbers:
    return np.array([WEIGHTS.get(one.kind, 1.0) for one in asked])


if __name__ == "__main__":
    given = [argument for argument in sys.argv[1:] if argument != "--plain"]
    if len(given) != 1:
        sys.exit(__doc__)
    run(Path(given[0]), plain="--plain" in sys.argv)
