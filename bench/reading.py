"""Scores which messages become conclusions: `python -m bench.reading FILE.jsonl… [--json] [--wrong]`.

Each line of a `.jsonl` file is a message as a person types it, with its `language`, its `kind` (see `KINDS`) and
whether a long-term memory should `keep` it as a conclusion. A kind that the reader does not know is scored by `keep`
alone. `--wrong` lists the messages that were read otherwise than they are labelled. A `.txt` file holds ordinary talk,
a message a line under `[headings]`; of these it counts how many are taken for a secret or a wish not to remember.

`reading_seen.jsonl` is what the reader was fitted to, `reading_unseen.jsonl` was written by somebody who had not seen
the reader and is not to be fitted to. For a measure of quality, bring messages of your own.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from hermes.memory_server.engine.sentence_kinds import KINDS
from hermes.memory_server.engine.sentences import MAX_MARKED_CHARS, is_kept, read_message

HERE = Path(__file__).parent
MARKED = ("secret", "discard")
"""Kinds that are scored separately, because their content is treated differently."""


@dataclass(frozen=True, slots=True)
class Labelled:
    """A message with its labels."""

    text: str
    language: str
    kind: str
    keep: bool


@dataclass(frozen=True, slots=True)
class Read:
    """A labelled message and the reader's result."""

    label: Labelled
    kept: bool
    kinds: frozenset[str]
    seconds: float


class BadLineError(Exception):
    """Raised when a line of a file is not a labelled message."""


def load(path: Path) -> list[Labelled]:
    """Return the messages of a file."""
    lines = enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
    return [_parse(f"{path}:{number}", line) for number, line in lines if line.strip()]


def _parse(place: str, line: str) -> Labelled:
    try:
        given = json.loads(line)
    except ValueError as error:
        raise BadLineError(f"{place}: not JSON: {error}") from error
    if not isinstance(given, dict):
        raise BadLineError(f"{place}: not a JSON object")
    for name, wanted in (("text", str), ("language", str), ("kind", str), ("keep", bool)):
        if not isinstance(given.get(name), wanted):
            raise BadLineError(f"{place}: {name!r} is not a {wanted.__name__}")
    return Labelled(given["text"], given["language"], given["kind"], given["keep"])


def load_talk(path: Path) -> list[tuple[str, str]]:
    """Return the messages of a file of ordinary talk, each after its heading."""
    found: list[tuple[str, str]] = []
    heading = ""
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("[") and line.endswith("]"):
            heading = line.strip("[]")
        elif line and not line.startswith("# "):
            found.append((heading, line.replace(" / ", "\n")))
    return found


def is_marked(text: str) -> bool:
    """Return True if a message is taken for a secret or for a wish not to remember."""
    return any(sentence.kind in MARKED for sentence in read_message(text[:MAX_MARKED_CHARS]))


def count_marked(talk: Sequence[tuple[str, str]]) -> dict[str, dict[str, float]]:
    """Return how many messages of ordinary talk are marked, by heading."""
    rows: dict[str, dict[str, float]] = {}
    for heading, text in talk:
        row = rows.setdefault(heading or "talk", {"marked": 0, "messages": 0})
        row["messages"] += 1
        row["marked"] += is_marked(text)
    return rows


def read_all(labelled: Iterable[Labelled]) -> list[Read]:
    """Return each message with the reader's result."""
    found = []
    read_message("The first text loads the word vectors.")
    for label in labelled:
        begin = time.perf_counter()
        sentences = read_message(label.text)
        seconds = time.perf_counter() - begin
        kinds = frozenset(sentence.kind for sentence in sentences)
        found.append(Read(label, any(map(is_kept, sentences)), kinds, seconds))
    return found


def score(reads: Sequence[Read], wanted: Callable[[Read], bool], found: Callable[[Read], bool]) -> dict[str, float]:
    """Return precision and recall of the found items against the expected ones."""
    right = sum(wanted(read) and found(read) for read in reads)
    all_found, all_wanted = sum(map(found, reads)), sum(map(wanted, reads))
    precision = right / all_found if all_found else float(not all_wanted)
    recall = right / all_wanted if all_wanted else 1.0
    return {"precision": precision, "recall": recall, "messages": len(reads), "wanted": all_wanted, "found": all_found}


def summarise(reads: Sequence[Read]) -> dict[str, dict[str, float]]:
    """Return the scores of `keep`, by language and by kind, and of the marked kinds."""
    rows = {"keep": _score_keep(reads)}
    for language in sorted({read.label.language for read in reads}):
        rows[f"keep {language}"] = _score_keep([read for read in reads if read.label.language == language])
    for kind in sorted({read.label.kind for read in reads}):
        of_kind = [read for read in reads if read.label.kind == kind]
        right = sum(read.kept == read.label.keep for read in of_kind)
        rows[f"kind {kind}"] = {"right": right / len(of_kind), "messages": len(of_kind)}
    for kind in MARKED:
        rows[kind] = _score_kind(reads, kind)
    return rows


def _score_keep(reads: Sequence[Read]) -> dict[str, float]:
    return score(reads, lambda read: read.label.keep, lambda read: read.kept)


def _score_kind(reads: Sequence[Read], kind: str) -> dict[str, float]:
    return score(reads, lambda read: read.label.kind == kind, lambda read: kind in read.kinds)


def _print(path: Path, reads: Sequence[Read], rows: dict[str, dict[str, float]]) -> None:
    median = statistics.median(read.seconds for read in reads)
    print(f"{path.name}: {len(reads)} messages, {median * 1e6:.0f} µs each at the median")  # noqa: T201
    for name, row in rows.items():
        if "right" in row:
            print(f"  {name:<18} kept or left out as labelled {row['right']:.3f}  of {row['messages']}")  # noqa: T201
        else:
            counts = f"of {row['messages']}: wanted {row['wanted']}, found {row['found']}"
            print(f"  {name:<18} precision {row['precision']:.3f}  recall {row['recall']:.3f}  {counts}")  # noqa: T201


def _print_marked(path: Path, rows: dict[str, dict[str, float]]) -> None:
    print(f"{path.name}:")  # noqa: T201
    for heading, row in rows.items():
        print(f"  {heading:<18} marked {row['marked']} of {row['messages']}")  # noqa: T201


def _print_wrong(reads: Sequence[Read]) -> None:
    for read in reads:
        missed = [kind for kind in MARKED if (kind in read.kinds) != (kind == read.label.kind)]
        if read.kept != read.label.keep or (missed and read.label.kind in KINDS):
            kinds = ", ".join(sorted(read.kinds))
            print(f"    {read.label.language} {read.label.kind} read as {kinds}: {read.label.text!r}")  # noqa: T201


def main(arguments: Sequence[str]) -> int:
    """Score the given files, by default the shipped ones."""
    files = [Path(name) for name in arguments if not name.startswith("--")]
    scores = {}
    for path in files or [*sorted(HERE.glob("reading_*.jsonl")), HERE / "reading_talk_unseen.txt"]:
        try:
            if path.suffix == ".txt":
                scores[str(path)] = count_marked(load_talk(path))
                if "--json" not in arguments:
                    _print_marked(path, scores[str(path)])
                continue
            reads = read_all(load(path))
        except (BadLineError, OSError) as error:
            print(error, file=sys.stderr)  # noqa: T201
            return 1
        if not reads:
            print(f"{path}: holds no message", file=sys.stderr)  # noqa: T201
            return 1
        rows = scores[str(path)] = summarise(reads)
        if "--wrong" in arguments:
            _print_wrong(reads)
        if "--json" not in arguments:
            _print(path, reads, rows)
    if "--json" in arguments:
        print(json.dumps(scores, indent=2))  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
