"""Builds an agent from a profile's settings: model, notes, memory provider, tools."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any, cast

from msgspec.structs import replace

from hermes import settings as table
from hermes.agent.agent import Agent, Policy, TemporaryAgent
from hermes.agent.builtin_tools import builtin_tools
from hermes.agent.loop import Responder
from hermes.agent.offline import SAVED, OfflineModel, recollect_nothing
from hermes.agent.tools import Toolbox, ToolVerdicts
from hermes.app import App
from hermes.db.engine import Tx
from hermes.errors import ProviderError
from hermes.gateway.agent_cache import NOBODY, Person
from hermes.llm.connection import Timeouts
from hermes.llm.discover import ConfiguredModel, ModelOffer, list_models
from hermes.llm.metered import Metered, Spending
from hermes.llm.model import Model
from hermes.llm.openai_compatible import OpenAICompatible
from hermes.llm.tool_use import ToolAbility, ToolSwitch
from hermes.memory.active import ActiveProvider, Deadlines, Surroundings
from hermes.memory.caller import Memory
from hermes.memory.no_memory import NoMemory
from hermes.memory.notes import Notes, NotesFile
from hermes.memory.provider import Host, MemoryPlugin
from hermes.memory.registry import NONE, find_provider
from hermes.memory.values import Conversation, Reach, Speaker
from hermes.scope import TERMINAL, Group, Guest, Owner, Scope
from hermes.settings import Settings
from hermes.store.memory_rows import title_for_providers
from hermes.store.people import People
from hermes.store.store import Store
from hermes.types import Session

OPENAI = "https://api.openai.com/v1"
GUESTS = "guests"
MAX_OWNER_NAME_CHARS = 60
REACH: dict[str, Reach] = {"owner": "everything", "guest": "own", "group": "here"}
ONE_SHOT_MEMORY_SECONDS = 8.0
"""Maximum time for memory in the only turn of a process, unless set: our own server may have to start first."""
FLOOR_NOTICE = (
    "No model is configured, so answers come from memory alone. `hermes model` finds one on this machine; "
    "`hermes config set model.base_url URL` names any OpenAI-compatible endpoint."
)


def open_speaker(app: App, offer: ModelOffer | None = None) -> Model:
    """Return the configured model, or an offline one that knows nothing until it is scoped. The caller must close
    it."""
    return open_model(app, offer) or OfflineModel(recollect_nothing)


def scoped(app: App, store: Store, model: Model, scope: Scope, fate: str = SAVED) -> Model:
    """Return the model for a scope. An offline model answers from what the scope reaches, and reports `fate` for
    messages."""
    if not isinstance(model, OfflineModel):
        return model
    from hermes.agent.recollection import recollect  # only where no model answers

    return OfflineModel(partial(recollect, store, open_notes(app, scope)), fate, app.clock.now)


def open_people(app: App) -> People:
    """Return the directory of people, as this profile's settings define it."""
    return People(api_guests=app.settings.get(table.API_USERS) == GUESTS)


def open_agent(
    app: App,
    store: Store,
    model: Model,
    session: Session,
    scope: Scope,
    owner: str,
    provider: ActiveProvider | None = None,
    person: Person = NOBODY,
    offer: ModelOffer | None = None,
) -> Agent:
    """Return the agent for one session, or for one person in a direct chat, limited to `scope`. It may hold a session
    of the provider, so the caller must close it.

    Agents of one process share their `provider`, and the `offer` of models that a session can be switched to.
    """
    notes, spending, speaker = open_notes(app, scope), Spending(), scoped(app, store, model, scope)
    get = app.settings.get
    return Agent(
        session_id=session.id,
        store=store,
        model=speaker if isinstance(speaker, OfflineModel) else Metered(speaker, spending),
        memory=NoMemory() if provider is None else Memory(provider, conversation_of(session, scope, person), notes),
        notes=notes,
        soul_file=app.home.soul_file,
        owner=owner,
        policy=Policy(
            max_steps=get(table.MAX_STEPS),
            max_calls=get(table.MAX_CALLS),
            max_requests=get(table.MAX_REQUESTS),
            delegate_steps=get(table.DELEGATE_STEPS),
            delegate_deadline=get(table.DELEGATE_TIMEOUT),
            tools_off=frozenset(get(table.TOOLS_OFF)),
            review_every=get(table.REVIEW_EVERY),
            tells_notes=get(table.MEMORY_NOTICES),
            titles="soon" if get(table.AUTO_TITLE) else "never",
            compresses_itself=get(table.COMPRESSION_ENABLED),
            compress_at=get(table.COMPRESSION_THRESHOLD),
            keep_turns=get(table.KEEP_TURNS),
            compress_deadline=get(table.COMPRESSION_DEADLINE),
            compress_idle=get(table.COMPRESSION_IDLE),
        ),
        tools=builtin_tools,
        answers_from_memory=isinstance(model, OfflineModel),
        offer=offer,
        spending=spending,
    )


def open_notes(app: App, scope: Scope) -> Notes:
    """Return the built-in notes of a scope in this profile."""
    get = app.settings.get
    limits: dict[NotesFile, int] = {"memory": get(table.MEMORY_LIMIT), "user": get(table.USER_LIMIT)}
    return Notes(app.home.path, scope, limits)


def has_model(settings: Settings) -> bool:
    return bool(settings.get(table.BASE_URL) or settings.get(table.API_KEY))


def open_model(app: App, offer: ModelOffer | None = None) -> Model | None:
    """Return the configured model, or None, without a request to the network. A caller that has the `offer` already
    passes it, so that the list of models is requested once."""
    asked = offer or open_offer(app)
    if asked is None:
        return None
    is_guess = not app.settings.is_given(table.CONTEXT_LENGTH)
    return ConfiguredModel(asked, app.settings.get(table.CONTEXT_LENGTH), is_guess=is_guess)


def open_offer(app: App) -> ModelOffer | None:
    """Return the models that the configured endpoint offers, or None without an endpoint. Makes no request to the
    network. Call it once per process."""
    settings = app.settings
    if not has_model(settings):
        return None
    where = table.BASE_URL.shown(settings.get(table.BASE_URL)) or OPENAI
    find = partial(list_models, settings.get(table.BASE_URL) or OPENAI, settings.get(table.API_KEY) or None)
    tool_use = ToolAbility(where, partial(_tool_switch, settings), ToolVerdicts(app.home.tool_verdicts_file), app.clock)
    return ModelOffer(where, settings.get(table.MODEL), find, partial(_open_named, settings), app.clock, tool_use)


def _tool_switch(settings: Settings, name: str) -> ToolSwitch:
    """Return the tool setting of a model: its own value, or that for all others. While the name is "", no value
    applies."""
    given = settings.get(table.MODEL_TOOLS)
    switch = given if isinstance(given, str) else given.get(name, given.get("*", "auto") if name else "auto")
    return cast(ToolSwitch, switch)


def _open_named(settings: Settings, name: str, context_length: int | None = None) -> OpenAICompatible:
    """Return a model of the configured endpoint. An unknown context length is taken from the settings."""
    timeout = settings.get(table.MODEL_TIMEOUT)
    silence, total = settings.get(table.MODEL_SILENCE), settings.get(table.MODEL_TOTAL)
    return OpenAICompatible(
        settings.get(table.BASE_URL) or OPENAI,
        name,
        api_key=settings.get(table.API_KEY) or None,
        context_length=context_length or settings.get(table.CONTEXT_LENGTH),
        timeouts=Timeouts(first_byte=timeout, idle=timeout, silence=silence, total=total),
        longest_reply=settings.get(table.MAX_REPLY_CHARS),
    )


def open_provider(app: App, store: Store, *, for_one_turn: bool = False) -> ActiveProvider | None:
    """Return the configured memory provider, or None. Call it once per process, and close it. The provider is imported
    at its first use. With `for_one_turn` the turn waits longer, since no later turn can use late results."""
    settings = app.settings
    name = settings.get(table.PROVIDER)
    if name == NONE:
        return None
    waits = for_one_turn and not settings.is_given(table.FIRST_DEADLINE)
    first = ONE_SHOT_MEMORY_SECONDS if waits else settings.get(table.FIRST_DEADLINE)

    def make(host: Host) -> MemoryPlugin:
        return find_provider(name, app.home.plugins)(host)

    return ActiveProvider(
        name,
        make,
        store,
        Surroundings(
            app.home.path,
            app.home.profile,
            app.env,
            settings.is_given(table.PROVIDER),
            _model_asker(app),
            " ".join(settings.get(table.OWNER_NAME).split())[:MAX_OWNER_NAME_CHARS],
        ),
        Deadlines(first_turn=first, turn=first if for_one_turn else settings.get(table.MEMORY_DEADLINE)),
    )


def _model_asker(app: App) -> Callable[[str, str], Coroutine[Any, Any, str]] | None:
    """Return a function that asks the configured model once, for a provider; None without a model."""
    offer = open_offer(app)
    if offer is None:
        return None

    async def ask(instructions: str, text: str) -> str:
        model = open_model(app, offer)
        assert model is not None, "there is an offer"
        try:
            agent = TemporaryAgent(Responder(model, Toolbox([]), 1), instructions)
            outcome = await agent.run(text, now=app.clock.now())
        finally:
            await model.close()
        if not outcome.ok:
            raise ProviderError(f"the model did not answer: {outcome.text}", hint="")
        return outcome.text

    return ask


def conversation_of(session: Session, scope: Scope, person: Person = NOBODY) -> Conversation:
    """Return a session as a provider sees it: whose it is, and how far it may read."""
    local = session.source == TERMINAL
    return Conversation(
        session_id=session.id,
        platform=session.source,
        reach=REACH[scope.kind],
        person=_person_of(session, scope, person),
        chat_type=session.chat_type,
        gateway_session_key=session.session_key,
        title=session.title,
        directory=_here() if local else None,
    )


def earlier_conversation(people: People, store: Store, tx: Tx, session: Session) -> Conversation:
    """Return a closed session as a provider sees it: whose it was, and the directory where it began, if known."""
    person = Person(session.user_id, store.messages.last_alt(tx, session.id, session.user_id))
    found = conversation_of(session, people.scope_of(tx, session), person)
    title = title_for_providers(tx, session.id, session.title)
    return replace(found, directory=store.unsynced.directory(tx, session.id), title=title)


def _person_of(session: Session, scope: Scope, person: Person) -> Speaker | None:
    """Return the partner of a conversation; None for a group. Messages of others do not change whose it is."""
    match scope:
        case Group():
            return None
        case Guest(user_id=user_id):
            return Speaker(user_id or None, person.user_id_alt if person.user_id == user_id else None)
        case Owner():
            return Speaker(person.user_id or session.user_id, person.user_id_alt, is_owner=True)


def _here() -> Path | None:
    """Return the current directory; None if it was deleted."""
    try:
        return Path.cwd()
    except FileNotFoundError:
        return None
