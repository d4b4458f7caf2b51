"""Puts an agent together from a profile's settings: model, notes, memory provider, tools."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module

from hermes.agent.agent import Agent, Policy
from hermes.agent.delegate_tool import delegate_tool
from hermes.agent.loop import Speaker
from hermes.agent.memory_tool import memory_tool
from hermes.agent.prompt import PromptParts, build_system_prompt, read_soul
from hermes.agent.recall_tool import recollect, session_search_tool
from hermes.agent.tools import Tool, Toolbox
from hermes.app import App
from hermes.db.owners import new_owner
from hermes.gateway.agent_cache import NOBODY, AgentCache, Person
from hermes.gateway.gateway import Gateway, GatewayTerms
from hermes.gateway.platform import Platform
from hermes.gateway.platforms.api_terms import ApiTerms
from hermes.llm.discover import list_models
from hermes.llm.first_listed import FirstListed
from hermes.llm.floor import OfflineFloor
from hermes.llm.model import Model
from hermes.llm.openai_compatible import OpenAICompatible
from hermes.llm.patience import Timeouts
from hermes.memory.caller import Deadlines, Memory
from hermes.memory.notes import Notes
from hermes.memory.provider import MemoryProvider, NullProvider, ProviderContext
from hermes.memory.registry import find_provider
from hermes.memory.signature import SignatureWatch
from hermes.settings import (
    AGENT_IDLE,
    AGENT_NAME,
    ALLOW,
    API_CONNECTIONS,
    API_ENABLED,
    API_HOST,
    API_KEY,
    API_PORT,
    API_SERVER_KEY,
    API_TIMEOUT,
    AT_ONCE,
    BASE_URL,
    CACHED_AGENTS,
    COMPRESSION_DEADLINE,
    COMPRESSION_IDLE,
    COMPRESSION_THRESHOLD,
    CONTEXT_LENGTH,
    DRAIN,
    FIRST_DEADLINE,
    KEEP_TURNS,
    MAX_STEPS,
    MEMORY_DEADLINE,
    MEMORY_LIMIT,
    MODEL,
    MODEL_TIMEOUT,
    PROVIDER,
    REVIEW_EVERY,
    TOOLS_OFF,
    USER_LIMIT,
    Settings,
)
from hermes.store.store import Store
from hermes.types import Session

OPENAI = "https://api.openai.com/v1"
FLOOR_NOTICE = (
    "No model is configured, so answers come from memory alone. `hermes model` finds one on this machine; "
    "`hermes config set model.base_url URL` names any OpenAI-compatible endpoint."
)


def open_speaker(app: App, store: Store) -> Model:
    """The model that is configured, or the offline floor. Close it when nobody speaks with it any more."""
    return open_model(app.settings) or OfflineFloor(partial(recollect, store, open_notes(app)))


def open_agent(app: App, store: Store, model: Model, session: Session, owner: str, person: Person = NOBODY) -> Agent:
    """The agent for one session, of one person in a direct chat. It holds a provider's thread: close it."""
    notes = open_notes(app)
    return Agent(
        session_id=session.id,
        store=store,
        model=model,
        memory=open_memory(app, session, person),
        notes=notes,
        soul_file=app.home.soul_file,
        owner=owner,
        policy=Policy(
            max_steps=app.settings.get(MAX_STEPS),
            tools_off=tools_off(app.settings),
            review_every=app.settings.get(REVIEW_EVERY),
            compress_at=app.settings.get(COMPRESSION_THRESHOLD),
            keep_turns=app.settings.get(KEEP_TURNS),
            compress_deadline=app.settings.get(COMPRESSION_DEADLINE),
            compress_idle=app.settings.get(COMPRESSION_IDLE),
        ),
        tools=builtin_tools,
        answers_from_memory=isinstance(model, OfflineFloor),
    )


def open_gateway(app: App, store: Store, model: Model) -> Gateway:
    """The gateway of a profile. Its agents share one model."""
    owner = new_owner()

    async def make(session: Session, person: Person) -> Agent:
        return open_agent(app, store, model, session, owner, person)

    get = app.settings.get
    watch = SignatureWatch(get(PROVIDER), provider_factory(app), deadline=get(MEMORY_DEADLINE))
    agents = AgentCache(
        make=make,
        signature=watch.current,
        largest=get(CACHED_AGENTS),
        idle=get(AGENT_IDLE),
        now=app.clock.now,
        at_end=watch.close,
    )
    allow = frozenset(entry.strip() for entry in get(ALLOW).split(",") if entry.strip())
    terms = GatewayTerms(agent_name=get(AGENT_NAME), allow=allow, at_once=get(AT_ONCE), drain=get(DRAIN))
    return Gateway(store, agents, terms)


def open_platforms(app: App, store: Store, model: Model, gateway: Gateway) -> list[Platform]:
    """The platforms that are configured."""
    platforms: list[Platform] = []
    if app.settings.get(API_ENABLED):
        platforms.append(_open_api(app, store, model, gateway))
    return platforms


def _open_api(app: App, store: Store, model: Model, gateway: Gateway) -> Platform:
    """The HTTP API, loaded by name: only it needs a web server."""
    get = app.settings.get
    toolbox = Toolbox([session_search_tool(store)], off=tools_off(app.settings))
    terms = ApiTerms(
        host=get(API_HOST),
        port=get(API_PORT),
        key=get(API_SERVER_KEY),
        model_name=f"hermes-{app.home.profile}" if app.home.profile else "hermes",
        drain=get(DRAIN),
        patience=get(API_TIMEOUT),
        connections=get(API_CONNECTIONS),
        speaker=Speaker(model, toolbox, get(MAX_STEPS)),
        prompt=lambda: build_system_prompt(PromptParts(soul=read_soul(app.home.soul_file), started_at=app.clock.now())),
    )
    platform: Platform = import_module("hermes.gateway.platforms.http_api").HttpApi(gateway, app.clock, terms)
    return platform


def open_notes(app: App) -> Notes:
    """The profile's built-in notes."""
    return Notes(app.home.path, {"memory": app.settings.get(MEMORY_LIMIT), "user": app.settings.get(USER_LIMIT)})


def has_model(settings: Settings) -> bool:
    """Whether a model is configured."""
    return bool(settings.get(BASE_URL) or settings.get(API_KEY))


def open_model(settings: Settings) -> Model | None:
    """The model that is configured, or None. Nothing is asked of the network yet."""
    base_url, key = settings.get(BASE_URL) or OPENAI, settings.get(API_KEY) or None
    if not has_model(settings):
        return None
    patience, length = settings.get(MODEL_TIMEOUT), settings.get(CONTEXT_LENGTH)

    def make(name: str) -> OpenAICompatible:
        timeouts = Timeouts(first_byte=patience, idle=patience)
        return OpenAICompatible(base_url, name, api_key=key, context_length=length, timeouts=timeouts)

    named = make(settings.get(MODEL))
    return named if named.name else FirstListed(partial(list_models, base_url, key), make, length)


def open_memory(app: App, session: Session, person: Person = NOBODY) -> Memory:
    """The memory provider that is configured, not started yet: it starts with the first turn, in its own thread."""
    name = app.settings.get(PROVIDER)
    context = ProviderContext(
        home=app.home.path,
        profile=app.home.profile,
        session_id=session.id,
        platform=session.source,
        title=session.title,
        gateway_session_key=session.session_key,
        user_id=person.user_id or session.user_id,
        user_id_alt=person.user_id_alt,
        chat_type=session.chat_type,
    )
    deadlines = Deadlines(first_turn=app.settings.get(FIRST_DEADLINE), turn=app.settings.get(MEMORY_DEADLINE))
    return Memory(name, provider_factory(app), context, deadlines)


def provider_factory(app: App) -> Callable[[], MemoryProvider] | None:
    """How to make the provider that is configured; None for none. It finds and imports it only when it is called."""
    name = app.settings.get(PROVIDER)

    def make() -> MemoryProvider:
        return find_provider(name, app.home.plugins)()

    return None if name == NullProvider.name else make


def tools_off(settings: Settings) -> frozenset[str]:
    """The tools that the policy switches off."""
    return frozenset(name.strip() for name in settings.get(TOOLS_OFF).split(",") if name.strip())


def builtin_tools(agent: Agent) -> list[Tool]:
    """The tools every agent has. A sub-agent gets those that only read."""
    searching = session_search_tool(agent.store)
    allowed = [] if searching.spec.name in agent.policy.tools_off else [searching]
    return [
        memory_tool(agent.notes, agent.memory.note_written),
        searching,
        delegate_tool(agent.model, allowed, agent.clock, agent.policy.max_steps, agent.memory.delegated),
    ]
