"""The configured model, and what its endpoint reports about it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from hermes.clock import SystemClock
from hermes.errors import ModelError
from hermes.llm.discover import ConfiguredModel, ListedModel, ModelOffer
from hermes.llm.events import Completed, Reply
from hermes.llm.model import ModelRequest
from tests.llm.scripted import ScriptedModel

GUESS, TOLD = 128_000, 4_096


def offering(answer: asyncio.Future[Sequence[ListedModel]]) -> ModelOffer:
    """Return an offer whose model "small" replies, and whose models are listed once `answer` is set."""

    async def find() -> Sequence[ListedModel]:
        return await answer

    return ModelOffer(
        "here", "small", find, lambda name, _: ScriptedModel([Reply("a"), Reply("b")], name=name), SystemClock()
    )


async def ask(model: ConfiguredModel) -> None:
    events = [event async for event in model.stream(ModelRequest([]))]
    assert isinstance(events[-1], Completed)


@pytest.mark.contract("10.30")
@pytest.mark.parametrize(("is_guess", "length"), [(True, TOLD), (False, GUESS)])
async def test_a_named_model_answers_before_its_context_length_is_listed(is_guess: bool, length: int) -> None:
    answer: asyncio.Future[Sequence[ListedModel]] = asyncio.get_running_loop().create_future()
    offer = offering(answer)
    model = ConfiguredModel(offer, GUESS, is_guess=is_guess)
    await ask(model)
    assert model.context_length == GUESS
    answer.set_result([ListedModel("large", 99), ListedModel("small", TOLD)])
    await offer.list()
    assert model.context_length == length
    await model.close()


async def test_a_named_model_answers_though_its_endpoint_lists_nothing() -> None:
    answer: asyncio.Future[Sequence[ListedModel]] = asyncio.get_running_loop().create_future()
    answer.set_exception(ModelError("no list"))
    model = ConfiguredModel(offering(answer), GUESS, is_guess=True)
    await ask(model)
    await ask(model)
    assert model.context_length == GUESS
    await model.close()
