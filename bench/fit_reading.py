"""Fits the reader to labelled messages: `python -m bench.fit_reading [--talk FOLDER] [--check]`.

Reads `reading_seen.jsonl`, `reading_words.txt`, `reading_patterns.txt`, and `reading_chatter.txt`, whose lines are
neither secrets nor wishes not to remember; writes `sentence_model.json` beside the reader, the same bytes
every time. FOLDER holds conversations of LoCoMo and BEAM (see `bench.admission`): their messages count as chatter, but
give the model no feature a name. `--check` writes nothing: it fits to two thirds of the messages, patterns and
conversations at a time and scores the rest.
"""

from __future__ import annotations

import json
import sys
import zlib
from base64 import b64encode
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
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
SEEN, WORDS, CHATTER_FILE = HERE / "reading_seen.jsonl", HERE / "reading_words.txt", HERE / "reading_chatter.txt"
FOLD_COUNT = 3
MIN_USES = 2
"""A feature of fewer messages or patterns is ignored."""
WEIGHT_DECAY_FACTOR = 5e-4
"""How strongly weights are pulled towards zero."""
MARKED_DECAY_FACTOR = 6e-5
"""The same for marked kinds."""
MARKED_MASS = 12_000
"""The weight of all examples that the pull on the weights of marked kinds is chosen for."""
ROUNDS, REMEMBERED = 200, 8
MARKED_ROUNDS = 3
"""How often the weights of marked kinds choose the sentences that they are fitted to next."""
CHATTER, TALK = "chatter", "talk"
NEGATIVE = (CHATTER, TALK)
"""Kinds of messages that are not marked, and of which nothing else is known."""
NEAR_SCORE = -4.0
"""Talk below this score is not fitted to."""
PART = 4096
"""The number of examples that are scored at a time."""
BARE_WEIGHT = 0.5
"""Weight of a message without its punctuation, as many people type; with it, the weight is 1."""
PATTERN_WEIGHT = 0.3
"""Weight of a message that was expanded from a pattern."""
CHATTER_WEIGHT = 2.0
"""Weight of a line of chatter, because a false alarm hides a message."""
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
    is_bare: bool = False

    @property
    def said(self) -> tuple[int, bool]:
        """The message, with or without its punctuation."""
        return self.message, self.is_bare


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
            weight = PATTERN_WEIGHT if "pattern" in row else CHATTER_WEIGHT if row["kind"] == CHATTER else 1.0
            source = row.get("pattern", row["text"])
            yield Example(text, row["kind"], row.get("group"), weight, number, source)
            if (bare := text.rstrip(ENDS)) != text and row["kind"] != TALK:
                yield Example(bare, row["kind"], row.get("group"), weight * BARE_WEIGHT, number, source, is_bare=True)


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
        nothing = np.zeros(vectors.direction("").shape, dtype=np.float32)
        self.vectors = np.stack(
            [nothing if one.kind in NEGATIVE else vectors.direction(one.text.replace(HIDDEN, " ")) for one in given]
        )

    def fit(self, chosen: Sequence[int]) -> tuple[dict[str, int], Array, Array, Array]:
        """Return the rows of features, their weights, and the weights of the vectors and of the pieces."""
        rows = self.name_rows(chosen)
        examples = [self.given[place] for place in chosen]
        kinds = [PLAIN_KINDS.index(one.kind) if one.kind in PLAIN_KINDS else None for one in examples]
        groups = [None if one.group is None else GROUPS.index(one.group) for one in examples]
        plain = [self._climb(chosen, rows, kinds, len(PLAIN_KINDS)), self._climb(chosen, rows, groups, len(GROUPS))]
        marked = self.fit_marked(chosen, rows)
        top = len(rows) + 1
        below = np.concatenate([fitted[top:] for fitted in plain], axis=1)
        return (
            rows,
            np.concatenate((*(fitted[:top] for fitted in plain), marked[:top]), axis=1),
            np.pad(below, ((0, 0), (0, len(MARKED_KINDS)))),
            marked[top:],
        )

    def name_rows(self, chosen: Sequence[int]) -> dict[str, int]:
        """Return the row of each feature that several sources have. Talk that is not shipped names none."""
        sources: dict[str, set[str]] = {}
        for place in chosen:
            if self.given[place].kind != TALK:
                for name in (name for part in self.features[place] for name in part):
                    sources.setdefault(name, set()).add(self.given[place].source)
        names = sorted(name for name, found in sources.items() if len(found) >= MIN_USES)
        return {name: row for row, name in enumerate(names, start=1)}

    def fit_marked(self, chosen: Sequence[int], rows: Mapping[str, int]) -> Array:
        """Return the weights of the marked kinds. Of a marked message of several sentences only the likeliest one
        counts, and of talk the sentences that were taken for nearly marked.
        """
        counts = Counter(self.given[place].said for place in chosen)
        unsure = [
            place
            for place in chosen
            if self.given[place].kind == TALK
            or (self.given[place].kind in MARKED_KINDS and counts[self.given[place].said] > 1)
        ]
        sure = sorted({*chosen}.difference(unsure))
        values = climb_marked(self._inputs(sure, rows, with_pieces=True), *self._marks(sure))
        for _ in range(MARKED_ROUNDS - 1):
            used = sorted((*sure, *self._choose(unsure, rows, values)))
            values = climb_marked(self._inputs(used, rows, with_pieces=True), *self._marks(used), values)
        return values

    def _choose(self, unsure: Sequence[int], rows: Mapping[str, int], values: Array) -> Iterator[int]:
        best: dict[tuple[int, bool], tuple[float, int]] = {}
        for place, scores in zip(unsure, self.score(unsure, rows, values), strict=True):
            one = self.given[place]
            if one.kind == TALK:
                if scores.max() > NEAR_SCORE:
                    yield place
            else:
                score = (float(scores[MARKED_KINDS.index(one.kind)]), place)
                best[one.said] = max(best.get(one.said, score), score)
        yield from (place for _, place in best.values())

    def score(self, places: Sequence[int], rows: Mapping[str, int], values: Array) -> Array:
        """Return the scores of the marked kinds of examples."""
        parts = [places[start : start + PART] for start in range(0, len(places), PART)]
        return np.concatenate(
            [
                np.zeros((0, 2), np.float32),
                *(self._inputs(part, rows, with_pieces=True).times(values) for part in parts),
            ]
        )

    def _marks(self, places: Sequence[int]) -> tuple[NDArray[np.bool_], Array]:
        """Return which of the marked kinds examples have, and their weights."""
        marks = np.array([[self.given[place].kind == kind for kind in MARKED_KINDS] for place in places])
        weight = np.array([[self.given[place].weight] for place in places], dtype=np.float32)
        return marks, weight / MARKED_MASS

    def _climb(self, chosen: Sequence[int], rows: Mapping[str, int], labels: Sequence[int | None], size: int) -> Array:
        known = [place for place, label in zip(chosen, labels, strict=True) if label is not None]
        wanted = np.eye(size, dtype=np.float32)[[label for label in labels if label is not None]]
        weight = np.array([self.given[place].weight for place in known], dtype=np.float32)
        inputs = self._inputs(known, rows, with_pieces=False)
        weight /= weight.sum()

        def slope(values: Array) -> tuple[float, Array]:
            powers = inputs.times(values)
            powers = np.exp(powers - powers.max(axis=1, keepdims=True))
            likely = powers / powers.sum(axis=1, keepdims=True)
            loss = -float((weight * np.log((likely * wanted).sum(axis=1) + 1e-12)).sum())
            return (
                loss + WEIGHT_DECAY_FACTOR / 2 * float((values**2).sum()),
                inputs.back((likely - wanted) * weight[:, None]) + WEIGHT_DECAY_FACTOR * values,
            )

        return climb(slope, np.zeros((inputs.size + inputs.vectors.shape[1], size), dtype=np.float32))

    def _inputs(self, places: Sequence[int], rows: Mapping[str, int], *, with_pieces: bool) -> Inputs:
        """Return words and marks of the examples, with either their pieces or their vectors."""
        starts: list[int] = []
        columns: list[NDArray[np.intp]] = []
        values: list[Array] = []
        first, end = len(rows) + 1, 0
        for place in places:
            words, marks = ([rows[name] for name in part if name in rows] for part in self.features[place])
            pieces = self.pieces[place] if with_pieces else np.zeros(0, dtype=np.intp)
            columns.append(np.concatenate(([0], words, marks, pieces.astype(np.intp) + first)).astype(np.intp))
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
        nothing = np.zeros((len(places), 0), dtype=np.float32)
        near = nothing if with_pieces else self.vectors[places] * np.float32(sentence_kinds.VECTOR_SCALE)
        return Inputs(
            np.array(starts),
            np.concatenate(columns),
            np.concatenate(values),
            near,
            first + (sentence_kinds.PIECE_COUNT if with_pieces else 0),
        )


def climb_marked(inputs: Inputs, marks: NDArray[np.bool_], weight: Array, start: Array | None = None) -> Array:
    """Return the weights of a logistic regression for each marked kind."""
    signs = np.where(marks, np.float32(1), np.float32(-1))

    def slope(values: Array) -> tuple[float, Array]:
        margins = signs * inputs.times(values)
        loss = float((weight * np.logaddexp(0, -margins)).sum()) + MARKED_DECAY_FACTOR / 2 * float((values**2).sum())
        errors = -signs * weight / (1 + np.exp(np.clip(margins, -60, 60)))
        return loss, inputs.back(errors) + MARKED_DECAY_FACTOR * values

    return climb(slope, np.zeros((inputs.size, marks.shape[1]), dtype=np.float32) if start is None else start)


def climb(find_slope: Callable[[Array], tuple[float, Array]], values: Array) -> Array:
    """Return the weights with the least loss, from the loss and its slope (L-BFGS)."""
    loss, slope = find_slope(values)
    steps: list[tuple[Array, Array]] = []
    for _ in range(ROUNDS):
        direction = _direction(slope, steps)
        size = 1.0 if steps else float(1 / np.abs(slope).sum())
        fall = 1e-4 * float((slope * direction).sum())
        while True:
            new = values - size * direction
            new_loss, new_slope = find_slope(new)
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
    folds = draw_folds(rows)
    reads: list[reading.Read] = []
    right = total = 0
    talk: Counter[str] = Counter()
    marked: Counter[str] = Counter()
    for part in range(FOLD_COUNT):
        chosen = [place for place, one in enumerate(fitting.given) if folds[one.message] != part]
        features, *matrices = fitting.fit(chosen)
        model = SentenceModel(classes, features, *(pack(matrix)[0] for matrix in matrices))
        sentences.shipped_model = lambda model=model: model  # type: ignore[attr-defined,assignment]
        left = [row for number, row in enumerate(rows) if folds[number] == part]
        for row in left:
            if row["kind"] in NEGATIVE:
                talk[row["speaker"]] += 1
                marked[row["speaker"]] += reading.is_marked(row["text"])
        labelled = [row for row in left if row["kind"] not in NEGATIVE]
        reads += reading.read_all(reading.Labelled(**{name: row[name] for name in FIELDS}) for row in labelled)
        for row in labelled:
            if "group" in row:
                total += 1
                right += row["group"] in {one.group for one in sentences.read_message(row["text"])}
    if "--wrong" in sys.argv:
        reading._print_wrong(reads)
    reading._print(SEEN, reads, reading.summarise(reads))
    print(f"  groups             right {right / total:.3f}  of {total}")  # noqa: T201
    for speaker, count in talk.items():
        print(f"  {speaker:<18} marked {marked[speaker]} of {count}")  # noqa: T201


def draw_folds(rows: Sequence[dict[str, Any]]) -> list[int]:
    """Return the part of each message: those of one pattern or conversation are in the same part."""
    sources = [row.get("pattern", row.get("conversation", row["text"])) for row in rows]
    numbers = dict.fromkeys(sources)
    drawn = dict(zip(numbers, np.random.default_rng(0).integers(0, FOLD_COUNT, len(numbers)), strict=True))
    conversations = {row["conversation"]: None for row in rows if "conversation" in row}
    drawn |= {name: place % FOLD_COUNT for place, name in enumerate(conversations)}
    return [drawn[source] for source in sources]


def read_talk(folder: Path) -> Iterator[dict[str, Any]]:
    """Yield the messages of conversations of LoCoMo and BEAM."""
    from bench.admission import read_conversations

    for one in read_conversations(folder):
        for turn in one.turns:
            speaker = "a person" if one.name.startswith("LoCoMo") else turn["speaker"]
            text = turn["text"][: sentences.MAX_MARKED_CHARS]
            named = f"{one.name.partition('-')[0]}, {speaker}"
            yield {"text": text, "kind": TALK, "conversation": one.name, "speaker": named}


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
    rows += [{"text": text, "kind": CHATTER, "speaker": "chatter"} for _, text in reading.load_talk(CHATTER_FILE)]
    if "--talk" in sys.argv:
        rows += read_talk(Path(sys.argv[sys.argv.index("--talk") + 1]))
    fitting = Fitting([*examples(rows)], classes)
    if "--check" in sys.argv:
        check(fitting, rows, classes)
    else:
        features, *matrices = fitting.fit(range(len(fitting.given)))
        write(features, matrices, given)


if __name__ == "__main__":
    main()
