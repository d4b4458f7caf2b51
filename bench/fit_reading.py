"""Fits the reader to labelled messages: `python -m bench.fit_reading [--check]`.

Reads `reading_seen.jsonl`, `reading_words.txt`, `reading_patterns.txt`, and `reading_chatter.txt`, whose lines are
neither secrets nor wishes not to remember; writes `sentence_model.json` beside the reader, the same bytes
every time. `--check` writes nothing: it fits to four fifths of the messages at a time and scores the rest.
"""

from __future__ import annotations

import json
import sys
import zlib
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench import reading
from bench.reading_patterns import expand_patterns
from hermes.memory_server.engine import sentence_kinds, sentences
from hermes.memory_server.engine.sentence_kinds import (
    GROUPS,
    HIDDEN,
    MARKED_KINDS,
    PLAIN_KINDS,
    SentenceModel,
    WordClasses,
    find_features,
    find_pieces,
)
from hermes.memory_server.engine.word_vectors import WordVectors

Array = NDArray[np.floating[Any]]
HERE = Path(__file__).parent
SEEN, WORDS, CHATTER = HERE / "reading_seen.jsonl", HERE / "reading_words.txt", HERE / "reading_chatter.txt"
FOLD_COUNT = 5
MIN_USES = 2
"""A feature of fewer messages or patterns is ignored."""
WEIGHT_DECAY_FACTOR = 5e-4
"""How strongly weights are pulled towards zero."""
MARKED_DECAY_FACTOR = 5e-5
"""The same for marked kinds."""
ROUNDS, REMEMBERED = 200, 8
BARE_WEIGHT = 0.5
"""Weight of a message without its punctuation, as many people type; with it, the weight is 1."""
PATTERN_WEIGHT = 0.3
"""Weight of a message that was expanded from a pattern."""
ENDS = ".!?。！？ "


@dataclass(frozen=True, slots=True)
class Example:
    """A sentence with its labels, as the model sees it."""

    text: str
    kind: str
    group: str | None
    weight: float
    message: int
    source: str
    """The source message or pattern."""


def read_classes() -> dict[str, str]:
    """Return the words of each class."""
    found: dict[str, list[str]] = {}
    name = ""
    for line in WORDS.read_text(encoding="utf-8").splitlines():
        if line.startswith("["):
            name = line.strip("[]")
        elif line and not line.startswith("#"):
            found.setdefault(name, []).append(line)
    return {name: " ".join(lines) for name, lines in found.items()}


def examples(rows: Sequence[dict[str, Any]]) -> Iterator[Example]:
    """Yield the sentences of labelled messages."""
    for number, row in enumerate(rows):
        own = sentences._hide(row["text"])
        for start, end in sentences._spans(own):
            text = own[start:end]
            if not text.strip(f"{HIDDEN}{sentences.SIGNS}"):
                continue
            weight = PATTERN_WEIGHT if "pattern" in row else 1.0
            source = row.get("pattern", row["text"])
            yield Example(text, row["kind"], row.get("group"), weight, number, source)
            if (bare := text.rstrip(ENDS)) != text:
                yield Example(bare, row["kind"], row.get("group"), weight * BARE_WEIGHT, number, source)


@dataclass(frozen=True, slots=True)
class Inputs:
    """The features of examples, of which each has few, and their vectors, of which each has all."""

    starts: NDArray[np.intp]
    columns: NDArray[np.intp]
    values: Array
    vectors: Array
    size: int

    def times(self, weights: Array) -> Array:
        """Return the inputs multiplied by a column of weights for each label."""
        few = np.add.reduceat(weights[self.columns] * self.values[:, None], self.starts, axis=0)
        return few + self.vectors @ weights[self.size :]

    def back(self, errors: Array) -> Array:
        """Return the transposed inputs multiplied by errors."""
        counts = np.diff(self.starts, append=len(self.columns))
        spread = np.repeat(errors, counts, axis=0) * self.values[:, None]
        few = [np.bincount(self.columns, column, self.size) for column in spread.T]
        return np.concatenate((np.stack(few, axis=1).astype(np.float32), self.vectors.T @ errors))


class Fitting:
    """Examples as numbers."""

    def __init__(self, given: Sequence[Example], classes: WordClasses) -> None:
        vectors = WordVectors()
        self.given = given
        self.classes = classes
        self.features = [[sorted(part) for part in find_features(one.text, classes)] for one in given]
        self.pieces = [find_pieces(one.text) for one in given]
        self.vectors = np.stack([vectors.direction(one.text.replace(HIDDEN, " ")) for one in given])

    def fit(self, chosen: Sequence[int]) -> tuple[dict[str, int], Array, Array, Array]:
        """Return the rows of features, their weights, and the weights of the vectors and of the pieces."""
        sources: dict[str, set[str]] = {}
        for place in chosen:
            for name in (name for part in self.features[place] for name in part):
                sources.setdefault(name, set()).add(self.given[place].source)
        names = sorted(name for name, found in sources.items() if len(found) >= MIN_USES)
        rows = {name: row for row, name in enumerate(names, start=1)}
        examples = [self.given[place] for place in chosen]
        kinds = [PLAIN_KINDS.index(one.kind) if one.kind in PLAIN_KINDS else None for one in examples]
        groups = [None if one.group is None else GROUPS.index(one.group) for one in examples]
        plain = [self._climb(chosen, rows, kinds, len(PLAIN_KINDS)), self._climb(chosen, rows, groups, len(GROUPS))]
        marked = [
            self._climb(chosen, rows, [int(one.kind == kind) for one in examples], 2, is_marked=True)
            for kind in MARKED_KINDS
        ]
        top = len(rows) + 1
        differences = np.concatenate([fitted[:, 1:] - fitted[:, :1] for fitted in marked], axis=1)
        below = np.concatenate([fitted[top:] for fitted in plain], axis=1)
        return (
            rows,
            np.concatenate((*(fitted[:top] for fitted in plain), differences[:top]), axis=1),
            np.pad(below, ((0, 0), (0, len(MARKED_KINDS)))),
            differences[top:],
        )

    def _climb(
        self, chosen: Sequence[int], rows: Mapping[str, int], labels: Sequence[int | None], size: int,
        *, is_marked: bool = False,
    ) -> Array:  # fmt: skip
        known = [place for place, label in zip(chosen, labels, strict=True) if label is not None]
        wanted = np.eye(size, dtype=np.float32)[[label for label in labels if label is not None]]
        weight = np.array([self.given[place].weight for place in known], dtype=np.float32)
        inputs = self._inputs(known, rows, with_pieces=is_marked)
        return climb(inputs, wanted, weight / weight.sum(), MARKED_DECAY_FACTOR if is_marked else WEIGHT_DECAY_FACTOR)

    def _inputs(self, places: Sequence[int], rows: Mapping[str, int], *, with_pieces: bool) -> Inputs:
        """Return words and marks of the examples, with either their pieces or their vectors."""
        starts: list[int] = []
        columns: list[NDArray[np.intp]] = []
        values: list[Array] = []
        first, end = len(rows) + 1, 0
        for place in places:
            words, marks = ([rows[name] for name in part if name in rows] for part in self.features[place])
            pieces = self.pieces[place] if with_pieces else np.zeros(0, dtype=np.intp)
            columns.append(np.concatenate(([0], words, marks, pieces + first)).astype(np.intp))
            sizes = (1, len(words), len(marks), len(pieces))
            scales = (
                1.0,
                sentence_kinds.WORD_SCALE / max(len(words), 1) ** 0.5,
                sentence_kinds.MARK_SCALE,
                sentence_kinds.PIECE_SCALE / max(len(pieces), 1) ** 0.5,
            )
            values.append(np.repeat(np.array(scales, dtype=np.float32), sizes))
            starts.append(end)
            end += sum(sizes)
        near = self.vectors[places] * np.float32(sentence_kinds.VECTOR_SCALE)
        return Inputs(
            np.array(starts),
            np.concatenate(columns),
            np.concatenate(values),
            near[:, :0] if with_pieces else near,
            first + (sentence_kinds.PIECE_COUNT if with_pieces else 0),
        )


def climb(inputs: Inputs, wanted: Array, weight: Array, hold: float) -> Array:
    """Return the weights of a softmax that make the labels likeliest (L-BFGS)."""
    values = np.zeros((inputs.size + inputs.vectors.shape[1], wanted.shape[1]), dtype=np.float32)
    loss, slope = _slope(inputs, wanted, weight, values, hold)
    steps: list[tuple[Array, Array]] = []
    for _ in range(ROUNDS):
        direction = _direction(slope, steps)
        size = 1.0 if steps else float(1 / np.abs(slope).sum())
        fall = 1e-4 * float((slope * direction).sum())
        while True:
            new = values - size * direction
            new_loss, new_slope = _slope(inputs, wanted, weight, new, hold)
            if new_loss <= loss - size * fall or size < 1e-6:
                break
            size /= 2
        done = abs(loss - new_loss) < 1e-7
        if float(((new - values) * (new_slope - slope)).sum()) > 0:
            steps = [*steps, (new - values, new_slope - slope)][-REMEMBERED:]
        values, loss, slope = new, new_loss, new_slope
        if done:
            break
    return values


def _slope(inputs: Inputs, wanted: Array, weight: Array, values: Array, hold: float) -> tuple[float, Array]:
    powers = inputs.times(values)
    powers = np.exp(powers - powers.max(axis=1, keepdims=True))
    likely = powers / powers.sum(axis=1, keepdims=True)
    loss = -float((weight * np.log((likely * wanted).sum(axis=1) + 1e-12)).sum()) + hold / 2 * float((values**2).sum())
    return loss, inputs.back((likely - wanted) * weight[:, None]) + hold * values


def _direction(slope: Array, steps: Sequence[tuple[Array, Array]]) -> Array:
    found = slope.copy()
    shares = []
    for step, change in reversed(steps):
        shares.append((step * found).sum() / (step * change).sum())
        found -= shares[-1] * change
    if steps:
        step, change = steps[-1]
        found *= (step * change).sum() / (change * change).sum()
    for (step, change), share in zip(steps, reversed(shares), strict=True):
        found += step * (share - (change * found).sum() / (step * change).sum())
    return found


def pack(values: Array) -> tuple[Array, list[float], str]:
    """Return numbers rounded to whole steps, the step of each column, and the steps as text."""
    steps = [max(float(largest), 1e-9) / 127 for largest in np.abs(values).max(axis=0)]
    whole = np.round(values / np.array(steps)).astype(np.int8)
    return whole * np.array(steps, np.float32), steps, b64encode(zlib.compress(whole.tobytes(), 9)).decode()


def write(rows: Mapping[str, int], matrices: Sequence[Array], classes: Mapping[str, str]) -> None:
    """Write the model that ships."""
    model: dict[str, Any] = {"classes": classes, "features": "\t".join(rows)}
    for of, matrix in zip(("", "vector_", "piece_"), matrices, strict=True):
        _, steps, model[f"{of}weights"] = pack(matrix)
        model[f"{of}steps"] = " ".join(f"{step:.6g}" for step in steps)
    text = json.dumps(model, ensure_ascii=False, indent=0) + "\n"
    sentence_kinds.MODEL_FILE.write_text(text, encoding="utf-8")
    print(f"{len(rows)} features, {len(text.encode()) // 1024} KB: {sentence_kinds.MODEL_FILE.name}")  # noqa: T201


def check(fitting: Fitting, rows: Sequence[dict[str, Any]], classes: WordClasses) -> None:
    """Print how messages are read that the model was not fitted to."""
    numbers = {row.get("pattern", row["text"]): None for row in rows}
    drawn = dict(zip(numbers, np.random.default_rng(0).integers(0, FOLD_COUNT, len(numbers)), strict=True))
    fold = [drawn[row.get("pattern", row["text"])] for row in rows]
    reads: list[reading.Read] = []
    right = total = chatter = marked = 0
    for part in range(FOLD_COUNT):
        chosen = [place for place, one in enumerate(fitting.given) if fold[one.message] != part]
        features, *matrices = fitting.fit(chosen)
        model = SentenceModel(classes, features, *(pack(matrix)[0] for matrix in matrices))
        sentences.shipped_model = lambda model=model: model  # type: ignore[attr-defined,assignment]
        left = [row for number, row in enumerate(rows) if fold[number] == part and row["kind"] != "chatter"]
        talk = [row["text"] for number, row in enumerate(rows) if fold[number] == part and row["kind"] == "chatter"]
        chatter += len(talk)
        marked += sum(one.kind in MARKED_KINDS for text in talk for one in sentences.read_message(text)[:1])
        found = reading.read_all(reading.Labelled(**{name: row[name] for name in FIELDS}) for row in left)
        reads += found
        for row in left:
            if "group" in row:
                total += 1
                right += row["group"] in {one.group for one in sentences.read_message(row["text"])}
    if "--wrong" in sys.argv:
        reading._print_wrong(reads)
    reading._print(SEEN, reads, reading.summarise(reads))
    print(f"  groups             right {right / total:.3f}  of {total}")  # noqa: T201
    print(f"  chatter            marked {marked} of {chatter}")  # noqa: T201


FIELDS = ("text", "language", "kind", "keep")


def main() -> None:
    """Fit and write, or check."""
    given = read_classes()
    classes = WordClasses(given)
    sentence_kinds.shipped_model.cache_clear()
    nothing = np.zeros((1, 1), np.float32)
    empty = SentenceModel(classes, {}, nothing, nothing, nothing)
    sentence_kinds.shipped_model = lambda: empty  # type: ignore[assignment]
    rows = [json.loads(line) for line in SEEN.read_text(encoding="utf-8").splitlines()] + [*expand_patterns()]
    talk = CHATTER.read_text(encoding="utf-8").splitlines()
    rows += [{"text": line, "kind": "chatter"} for line in talk if not line.startswith("#")]
    fitting = Fitting([*examples(rows)], classes)
    if "--check" in sys.argv:
        check(fitting, rows, classes)
    else:
        features, *matrices = fitting.fit(range(len(fitting.given)))
        write(features, matrices, given)


if __name__ == "__main__":
    main()
