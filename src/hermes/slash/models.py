"""`/model`: show the model of a session, and switch to another one of the same endpoint."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from difflib import get_close_matches

from hermes.agent.agent import Agent
from hermes.agent.loop import unless_stopped
from hermes.errors import ModelError, UsageError
from hermes.llm.discover import ListedModel, ModelOffer
from hermes.scope import OWNER
from hermes.slash.context import Beginning, CommandContext, Word
from hermes.store.session_settings import ChosenModel, set_chosen_model

DEFAULT = "default"
"""The word that restores the configured model."""
MAX_NAME_CHARS, MAX_QUOTED_CHARS = 200, 60
MAX_LISTED, MAX_SUGGESTIONS = 40, 3
NO_MODEL = "no model is configured"
HOW_TO_GET_ONE = "`hermes model` finds one on this machine"
STOPPED = "Stopped; the same model answers as before."
OWNERS = "the model is the owner's business"
HOW_TO_SEE = "`/model` lists what there is"
HOW_TO_KEEP = "`hermes config set model.default NAME` changes the default."


async def model(here: CommandContext, name: str) -> str:
    place = await here.place()
    if here.surface == "chat" and isinstance(place, Agent) and place.scope != OWNER:
        raise UsageError(OWNERS)
    answered = await unless_stopped(_switch(place, name) if name else _show(place), here.stop)
    return STOPPED if answered is None else answered


async def _switch(place: Agent | Beginning, name: str) -> str:
    remark = await choose_model(place, name)
    assert place.offer is not None, "else there is nothing to choose"
    if name in (DEFAULT, place.offer.default):
        default = await _default_of(place.offer) or "The endpoint's first model"
        return f"{default} answers from your next message on: the default again."
    told = (f"{name} answers in this session from your next message on.", remark, HOW_TO_KEEP)
    return " ".join(part for part in told if part)


async def model_words(here: CommandContext, _typed: str) -> Sequence[Word]:
    """Return the endpoint's models as completions. Typing does not wait for them."""
    offer = (await here.place()).offer
    if offer is None:
        return ()
    try:
        listed = await offer.list()
    except ModelError:  # there is nothing to offer; `/model` says why
        return ()
    return [*((one.name, _length(one)) for one in listed), (DEFAULT, "The configured one.")]


async def choose_model(place: Agent | Beginning, name: str, *, how_to_see: str = HOW_TO_SEE) -> str:
    """Let another model answer in a session, from the next message on and in every process; return a notice or "".

    Raises UsageError for a name that the endpoint does not list, with the hint `how_to_see`. If the endpoint lists no
    models, any name is accepted.
    """
    offer = place.offer
    if offer is None:
        raise UsageError(NO_MODEL, hint=HOW_TO_GET_ONE)
    chosen, remark = (None, "") if name in (DEFAULT, offer.default) else await find_model(offer, name, how_to_see)
    await _keep(place, chosen)
    return remark


async def find_model(offer: ModelOffer, name: str, how_to_see: str) -> tuple[ChosenModel, str]:
    """Find a model by name; return it with a notice or "". Raises UsageError as `choose_model` does."""
    if len(name) > MAX_NAME_CHARS or not name.isprintable() or " " in name:
        raise UsageError("that cannot be a model's name", hint=how_to_see)
    try:
        listed = await offer.list()
    except ModelError as error:
        return ChosenModel(name, offer.endpoint), f"Whether {name} exists could not be checked ({error.line()})."
    found = next((one for one in listed if one.name == name), None)
    if found is not None:
        return ChosenModel(name, offer.endpoint, found.context_length), ""
    if not listed:
        return ChosenModel(name, offer.endpoint), f"Whether {name} exists could not be checked: no model is listed."
    near = " or ".join(_near(name, listed))
    meant = f" (did you mean {near}?)" if near else ""
    raise UsageError(f"{offer.endpoint} has no model '{name[:MAX_QUOTED_CHARS]}'{meant}", hint=how_to_see)


def _near(name: str, listed: Sequence[ListedModel]) -> list[str]:
    """Return names that contain the typed text, then similar ones."""
    names, typed = [one.name for one in listed], name.lower()
    holding = [known for known in names if typed in known.lower()]
    like = [known for known in get_close_matches(name, names, n=MAX_SUGGESTIONS, cutoff=0.5) if known not in holding]
    return [*holding, *like][:MAX_SUGGESTIONS]


async def _keep(place: Agent | Beginning, chosen: ChosenModel | None) -> None:
    if isinstance(place, Beginning):
        place.model = chosen
        return
    session_id = place.session_id
    await place.store.write(lambda tx: set_chosen_model(tx, session_id, chosen))
    place.speak_with(chosen)


async def _show(place: Agent | Beginning) -> str:
    offer = place.offer
    if offer is None:
        return f"No model answers: {NO_MODEL}. {HOW_TO_GET_ONE}."
    try:
        listed = list(await offer.list())
    except ModelError as error:
        return f"{_answering(place, offer)}\nWhat else there is could not be asked: {error.line()}"
    lines = [f"  {one.name}{' · ' if one.context_length else ''}{_length(one)}" for one in listed[:MAX_LISTED]]
    if len(listed) > MAX_LISTED:
        lines.append(f"  … and {len(listed) - MAX_LISTED:,} more, which Tab completes")
    how = f"`/model NAME` switches this session, `/model {DEFAULT}` goes back. {HOW_TO_KEEP}"
    has = f"{offer.endpoint} has:" if lines else f"{offer.endpoint} lists none."
    return "\n".join([_answering(place, offer), has, *lines, how])


async def _default_of(offer: ModelOffer) -> str:
    """Return the model that answers by default; "" if the endpoint lists none."""
    if not offer.answering:
        with suppress(ModelError):  # its turn says why
            await offer.list()
    return offer.answering


def _answering(place: Agent | Beginning, offer: ModelOffer) -> str:
    default = offer.answering or "the endpoint's first one"
    if isinstance(place, Beginning):
        chosen = place.model
        return (
            f"{chosen.name} will answer; the default is {default}." if chosen else f"The default, {default}, answers."
        )
    name, length = place.model.name or "The endpoint's first model", place.model.context_length
    is_default = place.model is place.configured_model
    tools = f" Tools: {offer.tool_use.describe(place.model.name or offer.answering)}." if offer.tool_use else ""
    return f"{name} answers here ({length:,} tokens){'' if is_default else f'; the default is {default}'}.{tools}"


def _length(one: ListedModel) -> str:
    return f"{one.context_length:,} tokens" if one.context_length else ""
