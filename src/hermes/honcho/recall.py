"""The layers of one conversation's recall. Evidence is fetched with each message, before the model is called; the
other layers are fetched beside the turn and kept until they are fetched again.

    recall ───> evidence (this very message)                 ┐
    prepare ──> base (summary, representations, cards)       ├─ results at the deadline ──> parts
            └─> dialectic (cold or warm, up to three passes) ┘

A turn waits for evidence until its deadline, and for a layer without any result for half of the time that is left. A
fetch that misses the deadline is named in `missed`. A layer's fetch continues: the next turn uses its result, and later
turns do not wait for it again.

With `recallSync` nothing is fetched ahead: due layers are fetched with the message too, and late results are dropped.

Recalled texts as data: speaker, time and certainty of each line. Pure.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import datetime
from functools import lru_cache, partial

from msgspec.structs import replace

from hermes.errors import HermesError, ProviderError
from hermes.honcho import keys
from hermes.honcho.configuration import HonchoConfiguration
from hermes.honcho.context_views import AI, AI_CARD, SUMMARY, USER, USER_CARD
from hermes.honcho.evidence import (
    NEAREST_TITLE,
    TITLE,
    UNKNOWN_ANSWER_TITLE,
    quote_all,
    quote_standing,
    split_nearest,
)
from hermes.honcho.injection import (
    CHARS_PER_TOKEN,
    DEFAULT_TOKENS,
    EVIDENCE,
    MAX_CACHED_LINES,
    NEAREST,
    STANDING_LINES,
    SUPPLEMENT,
    Section,
    budget_chars,
    compose,
    cut_at_word,
)
from hermes.honcho.recall_policy import (
    REWRITE,
    DialecticPlan,
    choose_levels,
    clean_question,
    is_due,
    is_strong,
    is_trivial,
    pause_turns,
    word_pass,
)
from hermes.honcho.recall_reader import is_floor_answer
from hermes.honcho.recall_source import RecallSource
from hermes.memory.provider import Question, Recalled
from hermes.types import RecalledLine

FACT = re.compile(
    r"(?:[-*•]\s+|\d{1,3}[.)]\s+)?(?:\[(?P<at>\d{4}-\d\d-\d\d[ T][\d:]{5,8})[^\]\n]{0,30}\]\s*)?"
    r"(?:(?P<speaker>[\w-]{1,100}): )?(?P<text>\S.*)"
)
"""Matches a line of a representation: a mark, the time, the speaker, the text."""
CARD, REPRESENTATION = "user card", "user representation"


def read_lines(sections: Iterable[Section], about: str | None) -> tuple[RecalledLine, ...]:
    """Return evidence, the best first; then card lines of the person; then further facts, the newest first."""
    evidence: list[RecalledLine] = []
    card: list[RecalledLine] = []
    known: list[RecalledLine] = []
    for section in sections:
        evidence += [quote.line for quote in section.quotes]
        lines = (line for line in section.text.splitlines() if line.strip() and line[0] not in "# ")
        facts = [fact for line in lines if (fact := _read(line)) is not None]
        if section.layer == CARD:
            card += facts
        elif section.layer == REPRESENTATION:
            known += facts
    known.sort(key=lambda line: -(line.at or 0.0))
    return tuple(replace(one, speaker="") if one.speaker == about else one for one in (*evidence, *card, *known))


@lru_cache(MAX_CACHED_LINES)
def _read(line: str) -> RecalledLine | None:
    found = FACT.match(line)
    if found is None:
        return None
    try:
        at = datetime.fromisoformat(f"{found['at']}+00:00").timestamp()
    except ValueError:  # there is no time, or none that a clock shows
        at = None
    return RecalledLine(found["text"], found["speaker"] or "", at)


log = logging.getLogger(__name__)
AskModel = Callable[[str, str, float], Awaitable[str]]
"""`Host.ask_model`."""
CARD_TOKENS = 200
"""The most tokens of a card that are recalled."""
BASE, DIALECTIC = "base", "dialectic"
COMPOSE_TIME_SHARE = 0.1
"""Share of the time reserved for composing the result, since a late recall is not used."""
SYNC_SECONDS = 5.0
"""Time limit of a whole recall with `recallSync`, unless `timeout` is set."""
REWRITE_SECONDS, MAX_REWRITE_CHARS = 10.0, 4000
"""Time limit of a model that words a question, and the part of the message that it reads."""
PARTS = dict(zip(keys.BASE_PARTS, (SUMMARY, USER, USER_CARD, AI, AI_CARD), strict=True))
"""The layers that `injection.sessionStart` can name."""
LATE = "it was not there in time"
CANCELLED = "it took too long to prepare, and was stopped"


class RecallLayer:
    """One kind of recalled text: its last result, and the running fetch. With `is_sync`, a result is only used for
    the question that it was fetched with. With `repeats_empty`, an empty result does not use up the cadence."""

    def __init__(self, cadence: int, *, is_sync: bool = False, repeats_empty: bool = False) -> None:
        self.cadence = cadence
        self._is_sync = is_sync
        self._repeats_empty = repeats_empty
        self._empty_answers = 0
        self._not_before = 0
        self.sections: tuple[Section, ...] = ()
        self.asked_for = 0
        self.fetched_for: int | None = None
        self.failure: HermesError | None = None
        self.task: asyncio.Task[None] | None = None
        self.made_wait = False
        self.begun_at = 0.0

    @property
    def is_running(self) -> bool:
        return self.task is not None and not self.task.done()

    @property
    def is_awaited(self) -> bool:
        """Whether a turn should wait for this layer: a fetch is running, and no older result can be used instead."""
        return self.is_running and not self.sections

    def is_due(self, turn: int) -> bool:
        return not self.is_running and turn >= self._not_before and is_due(turn, self.fetched_for, self.cadence)

    def fetch(self, turn: int, now: float, work: Callable[[], Awaitable[tuple[Section, ...]]]) -> None:
        """Start a fetch for a turn. A failure is stored, and the layer stays due."""

        async def run() -> None:
            try:
                self.sections = await work()
            except HermesError as error:
                self.failure = error
            else:
                self.failure = None
                self._settle()

        self.asked_for, self.made_wait, self.begun_at = turn, False, now
        if self._is_sync:
            self.sections, self.failure = (), None
        self.task = asyncio.create_task(run())

    def _settle(self) -> None:
        """Use up the cadence, or pause after an empty result."""
        if self.sections or not self._repeats_empty:
            self.fetched_for, self._empty_answers = self.asked_for, 0
            return
        self._empty_answers += 1
        self._not_before = self.asked_for + pause_turns(self._empty_answers)

    def drop(self) -> None:
        """Discard the result and cancel the fetch; the layer is due again."""
        if self.task is not None:
            self.task.cancel()
        self.sections, self.task, self.fetched_for, self.failure = (), None, None, None

    def missed(self) -> str | None:
        """Return why this turn has no result; None if it has one."""
        if self.is_awaited:
            return LATE
        if self.failure is not None:
            return self.failure.line()
        if self.task is None or not self.task.done():
            return None
        if self.task.cancelled():
            return CANCELLED
        defect = self.task.exception()
        return None if defect is None else f"{type(defect).__name__}: {defect}"


class Recaller:
    """Recalls for one conversation."""

    def __init__(self, source: RecallSource, config: HonchoConfiguration, ask_model: AskModel, *, is_new: bool) -> None:
        self._source = source
        self._ask_model = ask_model
        self._rewrites = config.get(keys.QUERY_REWRITE)
        self._is_sync = config.get(keys.RECALL_SYNC)
        self._sync_seconds = config.get(keys.TIMEOUT) or SYNC_SECONDS
        parts = config.get(keys.INJECTION).get("sessionStart", keys.BASE_PARTS)
        self._base_layers = frozenset(PARTS[name] for name in parts)
        self._first_waits = config.get(keys.FIRST_TURN_BASE_WAIT), config.get(keys.FIRST_TURN_DIALECTIC_WAIT)
        self._plan = DialecticPlan.of(config)
        self._tokens = config.get(keys.CONTEXT_TOKENS) or DEFAULT_TOKENS
        self._first_turn_only = config.get(keys.INJECTION_FREQUENCY) == "first-turn"
        self._is_new = is_new
        self._layers = {
            BASE: RecallLayer(config.get(keys.CONTEXT_CADENCE), is_sync=self._is_sync),
            DIALECTIC: RecallLayer(config.get(keys.DIALECTIC_CADENCE), is_sync=self._is_sync, repeats_empty=True),
            EVIDENCE: RecallLayer(1),
        }
        self._turn: int | None = None
        """The turn that the next recall is for; None until the first question is known."""
        self._about: str | None = source.whose.user
        self._standing: tuple[Section, ...] = ()
        """The last standing facts found, for turns whose own evidence comes too late."""

    async def prepare(self, question: Question | None, about: str | None) -> None:
        """Fetch layers for the turn after this question; without a question, for the first turn. Raises a layer's
        failure."""
        if self._is_sync:
            return
        if question is None:
            if self._first_turn_only and not self._is_new:
                return
            self._begin(self._turn or 1, "")
        elif self._first_turn_only:
            return
        elif not is_trivial(question):
            self._forget_before(question.since)
            self._about = about
            self._begin(question.turn + 1, question.text)
        await self._finish()

    async def recall(self, question: Question, about: str | None, seconds: float) -> Recalled:
        """Return the results that arrive within `seconds`."""
        if is_trivial(question) or (self._first_turn_only and question.turn > 1):
            return Recalled()
        seconds = min(seconds * (1 - COMPOSE_TIME_SHARE), self._sync_seconds if self._is_sync else seconds)
        until = self._source.reader.now() + seconds
        is_forgotten = self._forget_before(question.since)
        self._begin_evidence(question)
        asked = question.text if self._is_sync or self._rewrites else ""
        if self._turn is None:
            self._meet(question.turn, about, asked)
        self._turn = question.turn
        layers = self._layers
        if is_forgotten or self._is_sync or (self._rewrites and layers[DIALECTIC].task is None):
            self._about = about
            self._begin(question.turn, asked)
        await self._wait([layers[EVIDENCE]], until - self._source.reader.now())
        waits = self._waits(question.turn, until - self._source.reader.now())
        await asyncio.gather(*(self._wait([layers[name]], wait) for name, wait in waits.items()))
        sections = [*(section for layer in layers.values() for section in layer.sections), *self._standing]
        missed = {name: why for name, layer in layers.items() if (why := layer.missed()) is not None}
        if self._is_sync:
            await self.close()
        return Recalled(compose(sections, budget_chars(self._tokens)), missed, read_lines(sections, about))

    async def close(self) -> None:
        """Stop all running fetches."""
        running = {layer.task for layer in self._layers.values() if layer.task is not None and layer.is_running}
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running)

    def _waits(self, turn: int, left: float) -> dict[str, float]:
        """Return the seconds that a turn waits for each layer without a result."""
        if self._is_sync:
            return {BASE: left, DIALECTIC: left}
        base, dialectic = self._first_waits if turn == 1 else (None, None)
        if dialectic is None and self._source.reader.is_ours:
            dialectic = 0.0  # its model may be slow; what it says is used when it is there
        return {
            name: left / 2 if wait is None else min(wait, left) for name, wait in ((BASE, base), (DIALECTIC, dialectic))
        }

    def _meet(self, turn: int, about: str | None, asked: str) -> None:
        """Handle the first question: assign the layers fetched ahead to its turn, or start to fetch them now."""
        self._about = about
        ahead = (self._layers[BASE], self._layers[DIALECTIC])
        for layer in ahead:
            layer.asked_for = turn
            if layer.fetched_for is not None:
                layer.fetched_for = turn
        if all(layer.task is None for layer in ahead):
            self._begin(turn, asked)

    def _forget_before(self, since: float) -> bool:
        """Drop results fetched before `since`, which may hold forgotten text; return True if there were any."""
        old = [layer for layer in self._layers.values() if layer.task is not None and layer.begun_at < since]
        for layer in old:
            layer.drop()
        if old:
            self._standing = ()
        return bool(old)

    def _begin(self, turn: int, question: str) -> None:
        base, dialectic = self._layers[BASE], self._layers[DIALECTIC]
        if dialectic.is_due(turn) and (question or not self._rewrites):
            warm = bool(base.sections)
            dialectic.fetch(turn, self._source.reader.now(), partial(self._think, question, warm=warm))
        if base.is_due(turn):
            base.fetch(turn, self._source.reader.now(), partial(self._fetch_base, question))

    def _begin_evidence(self, question: Question) -> None:
        """Fetch evidence for this message, and drop the evidence of earlier ones."""
        self._layers[EVIDENCE].drop()
        self._layers[EVIDENCE].fetch(
            question.turn, self._source.reader.now(), partial(self._find_evidence, question.text)
        )

    async def _finish(self) -> None:
        """Wait for running fetches; if cancelled, cancel them. Raises a layer's last failure, possibly of an earlier
        turn, until that layer works again."""
        ahead = (self._layers[BASE], self._layers[DIALECTIC])
        running = {layer.task for layer in ahead if layer.task is not None and layer.is_running}
        try:
            if running:
                await asyncio.wait(running)
        except asyncio.CancelledError:
            for task in running:
                task.cancel()
            raise
        for layer in ahead:
            if layer.failure is not None:
                raise layer.failure
            if layer.task is not None and layer.task.done() and not layer.task.cancelled():
                layer.task.result()  # a defect is raised, and named by the host

    async def _wait(self, layers: Sequence[RecallLayer], seconds: float) -> None:
        """Wait for layers that this turn should wait for, but not for those that were late or failed before."""
        waits = [layer for layer in layers if layer.is_awaited and not layer.made_wait and layer.failure is None]
        if waits and seconds > 0:
            await asyncio.wait({layer.task for layer in waits if layer.task is not None}, timeout=seconds)
        for layer in waits:
            layer.made_wait = True

    async def _fetch_base(self, question: str) -> tuple[Section, ...]:
        found = await self._source.base(self._tokens, question) if self._base_layers else ()
        longest = CARD_TOKENS * CHARS_PER_TOKEN
        cards = (USER_CARD, AI_CARD)
        return tuple(
            replace(section, text=cut_at_word(section.text, longest)) if section.layer in cards else section
            for section in found
            if section.layer in self._base_layers
        )

    async def _think(self, question: str, *, warm: bool) -> tuple[Section, ...]:
        """Ask about the person, in as many passes as needed."""
        about = self._about
        if about is None or await self._source.reader.is_floor() or not await self._source.may_answer(about):
            return ()
        answers: list[str] = []
        first = await self._rewrite(question) if self._rewrites else None
        for level in choose_levels(self._plan, len(question)):
            query = cut_at_word(word_pass(answers, warm=warm, first=first), self._plan.longest_question)
            answer = await self._source.answer(query, level, about, in_session=warm)
            if answer is None or is_floor_answer(answer):
                break
            answers.append(answer)
            if is_strong(answer):
                break
        return self._answer_section(answers[-1] if answers else "")

    async def _rewrite(self, message: str) -> str | None:
        """Return the first question, worded by the host's model; None if no model can."""
        try:
            until = self._source.reader.now() + REWRITE_SECONDS
            return clean_question(await self._ask_model(REWRITE, message[:MAX_REWRITE_CHARS], until))
        except ProviderError as error:
            log.info("the usual question is asked, no model could word one: %s", error.line())
            return None

    async def _find_evidence(self, question: str) -> tuple[Section, ...]:
        """Search with the message itself as the query."""
        found = await self._source.find_evidence(question)
        now, whose = self._source.reader.now(), self._source.whose
        lines, title = quote_standing(found.standing), f"Keep in mind about {whose.user or whose.guest}"
        self._standing = (Section(STANDING_LINES, title, "", now, quotes=lines),) if lines else ()
        nearest, others = split_nearest(quote_all(found, question, whose.ai), question, whose.ai)
        given = (
            (NEAREST, NEAREST_TITLE if found.is_told else UNKNOWN_ANSWER_TITLE, nearest),
            (EVIDENCE, TITLE if found.is_told or nearest else UNKNOWN_ANSWER_TITLE, others),
        )
        return tuple(Section(layer, title, "", now, quotes=tuple(quotes)) for layer, title, quotes in given if quotes)

    def _answer_section(self, answer: str) -> tuple[Section, ...]:
        text = cut_at_word(answer, self._plan.longest_answer)
        return (Section(SUPPLEMENT, "What matters now", text, self._source.reader.now()),) if text else ()
