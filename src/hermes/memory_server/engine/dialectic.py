"""Answers from memory. Without a model they quote the conclusions and messages that fit the question, with their
sources.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Row

from hermes.memory_server import limits, times
from hermes.memory_server.db.database import JsonMap, Tx
from hermes.memory_server.db.text_index import SearchArea
from hermes.memory_server.embedder import SearchQuestion
from hermes.memory_server.engine.cards import read_card
from hermes.memory_server.engine.recall import ConclusionChoice, View, choose, query_views
from hermes.memory_server.engine.search import find_hits, is_answered
from hermes.memory_server.engine.sentences import is_secret
from hermes.memory_server.engine.standing import find_standing
from hermes.memory_server.engine.vectors import VectorIndex
from hermes.memory_server.engine.words import without_names
from hermes.memory_server.faults import Invalid
from hermes.ranking.admission import MAX_LINES_READ
from hermes.ranking.personal import find_topic, is_general
from hermes.ranking.scoring import RELEVANCE_THRESHOLD
from hermes.ranking.traits import only_asks
from hermes.ranking.words import split_speaker

WIDTHS = {"minimal": 3, "low": 5, "medium": 8, "high": 12, "max": 20}
"""The number of conclusions and messages that each reasoning level reads."""
MAX_DISTANCE = 0.75
"""Conclusions at a greater distance are not about the question."""
MAX_QUOTE_CHARS = 300
MAX_VIEWS = 20
"""The number of views of a workspace that are read for a question about people in general."""
MESSAGES_PER_WANTED = 3
"""How many times the wanted number of messages is read, because messages that only ask are dropped."""
HEAD = "No model is configured; this is what memory holds that fits the question."
NOT_ANSWERED = "The model did not answer; this is what memory holds that fits the question."
UNTOLD = "No model is configured. Memory was not told the answer; this is the nearest that it holds."
UNTOLD_BY_MEMORY = "Memory was not told the answer; this is the nearest that it holds."
NOT_ANSWERED_UNTOLD = "The model did not answer. Memory was not told the answer; this is the nearest that it holds."
"""The first lines of answers without a model: none is configured, or it did not answer."""
MAX_NEAREST_LINES = 3
"""The number of lines shown if memory probably does not hold the answer."""


@dataclass(frozen=True, slots=True)
class PeerAnswer:
    """An answer: its text (None if memory holds nothing), and everything that was read for it."""

    content: str | None
    conclusions: Sequence[Row[Any]]
    messages: Sequence[Row[Any]]
    card: Sequence[str] = ()
    tool_calls: Sequence[JsonMap] = ()
    """The tool calls with which a model read more."""
    is_in_shape: bool = False
    """True if the text is JSON of the requested shape already."""
    is_answered: bool = True
    """False if memory holds related lines, but probably no answer."""


def answer(
    tx: Tx,
    index: VectorIndex,
    views: Sequence[View],
    place: SearchArea,
    question: SearchQuestion,
    level: str,
    filters: JsonMap | None = None,
) -> PeerAnswer:
    """Return the most fitting conclusions of these views, and messages of this area that pass the filters. Lines that
    are not about the question, or that only ask, are left out. A question about a person as a whole is answered
    with general conclusions about them.
    """
    width = WIDTHS[level]
    if asks_for_all(tx, place.workspace_id, question.text):
        card = read_cards(tx, views)
        held = _once(
            row for row in find_general_conclusions(tx, index, views, question, width) if not is_secret(row.content)
        )
        if card or held:
            return PeerAnswer(_write(HEAD, card, held[: 2 * width], ()), held[: 2 * width], (), card)
    named = _find_names(tx, views, question)
    told = bool(named) or _is_probably_known(tx, index, place, question, filters)
    width = width if told else MAX_NEAREST_LINES
    fitting = query_views(
        tx, index, views, question, width * min(len(views), 2), MAX_DISTANCE, least=RELEVANCE_THRESHOLD
    )
    chosen = _once([*named, *fitting])[:width]
    hits = find_hits(tx, index, place, question, filters, MESSAGES_PER_WANTED * width)
    stated = [hit for hit in hits if not only_asks(hit.row.content)]
    about = [hit for at, hit in enumerate(stated) if hit.is_about or (told and at == 0)]
    said = [hit.row for hit in (about or (stated[:MAX_NEAREST_LINES] if told and not chosen else ()))]
    quoted = [row for row in said if not any(row.content in one.content for one in chosen)][:width]
    quoted = quoted if told else quoted[: MAX_NEAREST_LINES - len(chosen)]
    chosen = [*named, *_order_by_messages(chosen[len(named) :], said)]
    content = _write(HEAD if told else UNTOLD, (), chosen, quoted, said_first=quoted[:1] == said[:1])
    return PeerAnswer(content, chosen, quoted, is_answered=told)


def _find_names(tx: Tx, views: Sequence[View], question: SearchQuestion) -> list[Row[Any]]:
    """Return the standing conclusions with the name of the observed peer, for a question about "my name", which shares
    no word with its answers.
    """
    if find_topic(question.text) != "name" or len({view.observed for view in views}) != 1:
        return []
    return [row for row in find_standing(tx, views) if row.standing == "name"]


def _order_by_messages(concluded: Sequence[Row[Any]], said: Sequence[Row[Any]]) -> list[Row[Any]]:
    """Sort conclusions in the order of the messages that contain them, because messages are ranked better than
    sentences.
    """

    def place(row: Row[Any]) -> int:
        sentence = split_speaker(row.content)[1]
        return next((at for at, one in enumerate(said) if sentence in one.content), len(said))

    return sorted(concluded, key=place)


def _is_probably_known(
    tx: Tx, index: VectorIndex, place: SearchArea, question: SearchQuestion, filters: JsonMap | None
) -> bool:
    """Return True if memory probably holds the answer, in the messages of anybody.

    A statement that somebody else made about themselves is not an answer, nor is a question, unless another hit is
    relevant.
    """
    everyone = SearchArea(place.workspace_id, place.sessions)
    found = find_hits(tx, index, everyone, question, filters, MAX_LINES_READ)
    if not is_answered(question, found):
        return False
    return not only_asks(found[0].row.content) or any(hit.is_about and not only_asks(hit.row.content) for hit in found)


def _once(rows: Iterable[Row[Any]]) -> list[Row[Any]]:
    """Return the first row of each text."""
    once: dict[str, Row[Any]] = {}
    for row in rows:
        once.setdefault(row.content, row)
    return list(once.values())


def find_general_conclusions(
    tx: Tx, index: VectorIndex, views: Sequence[View], question: SearchQuestion, width: int
) -> Iterable[Row[Any]]:
    """Yield what fits a question about a person as a whole: the closest conclusions, then the most frequent, then the
    newest.
    """
    yield from query_views(tx, index, views[:MAX_VIEWS], question, width // 2, MAX_DISTANCE, least=RELEVANCE_THRESHOLD)
    wanted = ConclusionChoice(include_most_frequent=True, max_conclusions=width)
    for view in views[:MAX_VIEWS]:
        yield from choose(tx, index, view, wanted)


def asks_for_all(tx: Tx, workspace_id: int, question: str) -> bool:
    """Return True for a question about a person as a whole, with or without a name."""
    unnamed = without_names(tx, workspace_id, question)
    return is_general(question if unnamed == question else f"{unnamed} person")


def read_cards(tx: Tx, views: Sequence[View]) -> list[str]:
    """Return the card lines of these views. A view of certain sessions has none, because cards do not record
    sessions.
    """
    open_views = [view for view in views[:MAX_VIEWS] if view.sessions is None]
    lines = (line for view in open_views for line in read_card(tx, view.observer, view.observed) or ())
    return [line for line in dict.fromkeys(lines) if not is_secret(line)]


def _write(
    head: str,
    card: Sequence[str],
    concluded: Sequence[Row[Any]],
    said: Sequence[Row[Any]],
    *,
    said_first: bool = False,
) -> str | None:
    if not card and not concluded and not said:
        return None
    parts = [head]
    if card:
        parts += ["", "Card:", *(f"- {_quote(line)}" for line in card)]
    sections = [
        ("Concluded:", [f"- [{times.to_stamp(row.created_at)}] {row.content}" for row in concluded]),
        ("Said:", [f"- [{times.to_stamp(row.created_at)}] {row.peer}: {_quote(row.content)}" for row in said]),
    ]
    for heading, lines in reversed(sections) if said_first else sections:
        parts += ["", heading, *lines] if lines else []
    return _cut("\n".join(parts), limits.ANSWER_CHARS)


def _quote(text: str) -> str:
    return _cut(" ".join(text.split()), MAX_QUOTE_CHARS)


def _cut(text: str, size: int) -> str:
    return text if len(text) <= size else text[: size - 1] + "…"


def structure(found: PeerAnswer, schema: JsonMap) -> str | None:
    """Return the answer as JSON of the requested shape. Raise Invalid if only a model could fill a field."""
    if found.content is None:
        return None
    return json.dumps(_fill(found, schema), ensure_ascii=False)


def check_schema(schema: JsonMap) -> None:
    """Raise Invalid for a schema that is too large, or whose root is not an object with properties."""
    if len(json.dumps(schema)) > limits.SCHEMA_CHARS:
        raise Invalid(f"response_format exceeds maximum of {limits.SCHEMA_CHARS} characters")
    if _count_properties(schema) > limits.MAX_SCHEMA_PROPERTIES:
        raise Invalid(
            f"response_format exceeds maximum of {limits.MAX_SCHEMA_PROPERTIES} properties, nested ones included"
        )
    properties = schema.get("properties", {})
    if schema.get("type") != "object" or not isinstance(properties, Mapping):
        raise Invalid("response_format must be a JSON schema whose root has type object")
    required = schema.get("required", [])
    if not isinstance(required, list) or not all(isinstance(name, str) and name in properties for name in required):
        raise Invalid("response_format: required must list properties of the schema")
    if not all(isinstance(value, Mapping) for value in properties.values()):
        raise Invalid("response_format: every property must be a schema")


def _count_properties(schema: Any) -> int:
    """Count properties at every depth, including definitions that are only referenced."""
    inside = schema.values() if isinstance(schema, Mapping) else schema if isinstance(schema, list) else ()
    own = schema.get("properties") if isinstance(schema, Mapping) else None
    return (len(own) if isinstance(own, Mapping) else 0) + sum(map(_count_properties, inside))


def _fill(found: PeerAnswer, schema: JsonMap) -> dict[str, Any]:
    required = set(schema.get("required", []))
    properties = schema.get("properties", {})
    share = limits.ANSWER_CHARS // max(len(properties), 1)
    filled: dict[str, Any] = {}
    for name, wanted in properties.items():
        kinds = _kinds(wanted)
        if "string" in kinds and "enum" not in wanted and "const" not in wanted:
            filled[name] = _cut(found.content or "", share)
        elif "array" in kinds and _kinds(wanted.get("items", {})) <= {"string"}:
            filled[name] = _fitting(
                (*found.card, *(row.content for row in (*found.conclusions, *found.messages))), share
            )
        elif "null" in kinds:
            filled[name] = None
        elif name in required:
            raise Invalid(f"response_format: '{name}' cannot be filled without a model, and none answered")
    return filled


def _fitting(texts: Iterable[str], size: int) -> list[str]:
    """Return the texts that fit into `size` characters together, the last one cut."""
    fitting: list[str] = []
    for text in texts:
        if size > 0:
            fitting.append(_cut(text, size))
            size -= len(text)
    return fitting


def _kinds(schema: Any) -> set[str]:
    if not isinstance(schema, Mapping):
        return set()
    kind = schema.get("type")
    kinds = kind if isinstance(kind, list) else [kind]
    own = {one for one in kinds if isinstance(one, str)}
    options = schema.get("anyOf", [])
    for option in options if isinstance(options, list) else []:
        own |= _kinds(option)
    return own
