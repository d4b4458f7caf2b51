"""Puts an agent together from a profile's settings: model, notes, memory provider, tools."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from hermes.agent.agent import Agent, AgentMemory, Policy
from hermes.agent.delegate_tool import DelegateTerms, delegate_tool
from hermes.agent.memory_tool import memory_tool
from hermes.agent.notes_tool import read_notes_tool
from hermes.agent.recall_tool import recollect, session_search_tool
from hermes.agent.rendering import Renderings
from hermes.agent.tools import Tool
from hermes.app import App
from hermes.gateway.agent_cache import DIRECT, NOBODY, Person
from hermes.gateway.inbox import API
from hermes.llm.discover import list_models
from hermes.llm.first_listed import FirstListed
from hermes.llm.floor import OfflineFloor
from hermes.llm.model import Model
from hermes.llm.openai_compatible import OpenAICompatible
from hermes.llm.patience import Timeouts
from hermes.memory.active import ActiveProvider, Deadlines, Surroundings
from hermes.memory.caller import Memory
from hermes.memory.no_memory import NoMemory
from hermes.memory.notes import Notes
from hermes.memory.provider import Host, MemoryPlugin
from hermes.memory.registry import NONE, find_provider
from hermes.memory.values import Conversation, Speaker
from hermes.settings import (
    API_KEY,
    BASE_URL,
    COMPRESSION_DEADLINE,
    COMPRESSION_ENABLED,
    COMPRESSION_IDLE,
    COMPRESSION_THRESHOLD,
    CONTEXT_LENGTH,
    DELEGATE_STEPS,
    DELEGATE_TIMEOUT,
    FIRST_DEADLINE,
    KEEP_TURNS,
    LONGEST_REPLY,
    MAX_CALLS,
    MAX_STEPS,
    MEMORY_DEADLINE,
    MEMORY_LIMIT,
    MODEL,
    MODEL_SILENCE,
    MODEL_TIMEOUT,
    MODEL_TOTAL,
    PROVIDER,
    REVIEW_EVERY,
    TOOLS_OFF,
    USER_LIMIT,
    Settings,
)
from hermes.store.store import Store
from hermes.types import Session

OPENAI = "https://api.openai.com/v1"
TERMINAL = "cli"
"""The source of sessions that began in a terminal."""
FLOOR_NOTICE = (
    "No model is configured, so answers come from memory alone. `hermes model` finds one on this machine; "
    "`hermes config set model.base_url URL` names any OpenAI-compatible endpoint."
)


def open_speaker(app: App, store: Store) -> Model:
    """The model that is configured, or the offline floor. Close it when nobody speaks with it any more."""
    return open_model(app.settings) or OfflineFloor(partial(recollect, store, open_notes(app)))


def open_agent(
    app: App,
    store: Store,
    model: Model,
    session: Session,
    owner: str,
    provider: ActiveProvider | None = None,
    person: Person = NOBODY,
    renderings: Renderings | None = None,
) -> Agent:
    """The agent for one session, of one person in a direct chat. It may hold a session of the provider: close it.

    Agents of one process share their `provider` and their `renderings`.
    """
    notes = open_notes(app)
    return Agent(
        session_id=session.id,
        store=store,
        model=model,
        memory=open_memory(provider, session, person),
        notes=notes,
        soul_file=app.home.soul_file,
        owner=owner,
        policy=Policy(
            max_steps=app.settings.get(MAX_STEPS),
            max_calls=app.settings.get(MAX_CALLS),
            delegate_steps=app.settings.get(DELEGATE_STEPS),
            delegate_deadline=app.settings.get(DELEGATE_TIMEOUT),
            tools_off=tools_off(app.settings),
            review_every=app.settings.get(REVIEW_EVERY),
            compresses_itself=app.settings.get(COMPRESSION_ENABLED),
            compress_at=app.settings.get(COMPRESSION_THRESHOLD),
            keep_turns=app.settings.get(KEEP_TURNS),
            compress_deadline=app.settings.get(COMPRESSION_DEADLINE),
            compress_idle=app.settings.get(COMPRESSION_IDLE),
        ),
        tools=builtin_tools,
        answers_from_memory=isinstance(model, OfflineFloor),
        renderings=renderings or Renderings(),
    )


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
    silence, total = settings.get(MODEL_SILENCE), settings.get(MODEL_TOTAL)

    def make(name: str) -> OpenAICompatible:
        return OpenAICompatible(
            base_url,
            name,
            api_key=key,
            context_length=length,
            timeouts=Timeouts(first_byte=patience, idle=patience, silence=silence, total=total),
            longest_reply=settings.get(LONGEST_REPLY),
        )

    named = make(settings.get(MODEL))
    return named if named.name else FirstListed(partial(list_models, base_url, key), make, length)


def open_provider(app: App, store: Store) -> ActiveProvider | None:
    """The memory provider that is configured, once per process; None for none. It is found and imported only when it is
    first asked. Close it."""
    name = app.settings.get(PROVIDER)
    if name == NONE:
        return None

    def make(host: Host) -> MemoryPlugin:
        return find_provider(name, app.home.plugins)(host)

    return ActiveProvider(
        name,
        make,
        store,
        open_notes(app),
        Surroundings(app.home.path, app.home.profile, app.env),
        Deadlines(first_turn=app.settings.get(FIRST_DEADLINE), turn=app.settings.get(MEMORY_DEADLINE)),
    )


def open_memory(provider: ActiveProvider | None, session: Session, person: Person = NOBODY) -> AgentMemory:
    """The memory of a session's agent; the provider hears of it with the first turn."""
    return NoMemory() if provider is None else Memory(provider, conversation_of(session, person))


def conversation_of(session: Session, person: Person = NOBODY) -> Conversation:
    """A session as a provider knows it: whose it is, and how far it may read."""
    local, direct = session.source == TERMINAL, session.chat_type in DIRECT
    is_owner = local or session.source == API
    user_id = person.user_id or session.user_id
    return Conversation(
        session_id=session.id,
        platform=session.source,
        reach="everything" if is_owner else "own" if direct else "here",
        person=Speaker(user_id, person.user_id_alt, is_owner=is_owner) if local or direct else None,
        chat_type=session.chat_type,
        gateway_session_key=session.session_key,
        title=session.title,
        directory=_here() if local else None,
    )


def _here() -> Path | None:
    """Where the terminal stands; None in a folder that is gone."""
    try:
        return Path.cwd()
    except FileNotFoundError:
        return None


def tools_off(settings: Settings) -> frozenset[str]:
    """The tools that the policy switches off."""
    return frozenset(settings.get(TOOLS_OFF))


def builtin_tools(agent: Agent) -> list[Tool]:
    """The tools every agent has. A sub-agent gets those that only read."""
    reading = [session_search_tool(agent.store), read_notes_tool(agent.notes)]
    allowed = [tool for tool in reading if tool.spec.name not in agent.policy.tools_off]
    terms = DelegateTerms(agent.policy.delegate_steps, agent.policy.max_calls, agent.policy.delegate_deadline)
    return [
        memory_tool(agent.notes, agent.memory.note_written),
        reading[0],
        delegate_tool(agent.model, allowed, agent.clock, terms, agent.memory.delegated),
    ]
