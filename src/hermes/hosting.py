"""Builds a gateway from a profile's settings: its agents, and the platforms that are switched on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import cast

from hermes import settings as table
from hermes.agent.agent import Agent
from hermes.agent.builtin_tools import session_search_tool
from hermes.agent.loop import Responder
from hermes.agent.offline import NOT_KEPT, OfflineModel, recollect_nothing
from hermes.agent.prompt import PromptParts, build_system_prompt, read_persona
from hermes.agent.tools import Toolbox
from hermes.app import App
from hermes.assembly import open_agent, open_offer, open_people, open_provider, scoped
from hermes.db.leases import new_owner
from hermes.gateway.agent_cache import AgentCache, Person
from hermes.gateway.gateway import Gateway, GatewayOptions
from hermes.gateway.notices import NoticeOptions
from hermes.gateway.platform import Platform
from hermes.gateway.platforms import switched_on
from hermes.gateway.platforms.api_options import ApiMemory, ApiOptions
from hermes.gateway.platforms.discord import Discord, DiscordOptions
from hermes.gateway.platforms.slack import Slack, SlackOptions
from hermes.gateway.platforms.telegram import Telegram, TelegramOptions
from hermes.llm.model import Model
from hermes.memory.active import ActiveProvider
from hermes.memory.deliveries import Deliveries
from hermes.scope import Scope
from hermes.store.store import Store
from hermes.types import Session

MAX_OUTBOX_LANES = 8
"""Number of memory outbox lanes that a gateway delivers at the same time."""


def open_agents(app: App, store: Store, model: Model, owner: str, provider: ActiveProvider | None) -> AgentCache:
    """Return the agents of a process that serves many sessions. They share one model and one provider."""
    offer = open_offer(app)

    async def make(session: Session, scope: Scope, person: Person) -> Agent:
        agent = open_agent(app, store, model, session, scope, owner, provider, person, offer)
        await agent.take_up_choice()
        return agent

    get = app.settings.get
    return AgentCache(
        make=make,
        signature=None if provider is None else provider.signature,
        largest=get(table.CACHED_AGENTS),
        idle=get(table.AGENT_IDLE),
        now=app.clock.now,
    )


def open_gateway(app: App, store: Store, model: Model) -> Gateway:
    """Return the gateway of a profile. Its agents share one model."""
    owner, provider, get = new_owner(), open_provider(app, store), app.settings.get
    agents = open_agents(app, store, model, owner, provider)
    options = GatewayOptions(
        agent_name=get(table.AGENT_NAME),
        allow=frozenset(get(table.ALLOW)),
        agents=frozenset(get(table.AGENTS)),
        agent_replies=get(table.AGENT_REPLIES),
        at_once=get(table.MAX_CONCURRENT_CHATS),
        drain=get(table.DRAIN),
        people=open_people(app),
        notices=NoticeOptions(notices=get(table.CHAT_NOTICES), notes=get(table.MEMORY_NOTICES)),
    )
    deliveries = None if provider is None else Deliveries(provider, owner, MAX_OUTBOX_LANES)
    return Gateway(store, agents, options, deliveries)


def open_platforms(app: App, store: Store, model: Model, gateway: Gateway) -> list[Platform]:
    return [OPENERS[name](app, store, model, gateway) for name in switched_on(app.settings)]


def _open_telegram(app: App, _store: Store, _model: Model, _gateway: Gateway) -> Platform:
    get = app.settings.get
    options = TelegramOptions(
        token=get(table.TELEGRAM_TOKEN),
        base_url=get(table.TELEGRAM_BASE_URL),
        mentions_only=get(table.TELEGRAM_MENTIONS),
        webhook_url=get(table.TELEGRAM_WEBHOOK_URL),
        webhook_secret=get(table.TELEGRAM_WEBHOOK_SECRET),
        webhook_port=get(table.TELEGRAM_WEBHOOK_PORT),
    )
    return Telegram(options, app.clock)


def _open_discord(app: App, _store: Store, _model: Model, _gateway: Gateway) -> Platform:
    get = app.settings.get
    options = DiscordOptions(
        token=get(table.DISCORD_TOKEN),
        base_url=get(table.DISCORD_BASE_URL).rstrip("/"),
        mentions_only=get(table.DISCORD_MENTIONS),
        agents=_agents_of(app, "discord"),
        marks_late=get(table.LATE_MESSAGES) == "mark",
    )
    return Discord(options, app.clock)


def _agents_of(app: App, platform: str) -> frozenset[str]:
    """Return the ids of the other agents that are answered on a platform."""
    named = (entry.partition(":") for entry in app.settings.get(table.AGENTS))
    return frozenset(user_id for name, _, user_id in named if name == platform)


def _open_slack(app: App, _store: Store, _model: Model, _gateway: Gateway) -> Platform:
    get = app.settings.get
    options = SlackOptions(
        bot_token=get(table.SLACK_TOKEN),
        app_token=get(table.SLACK_APP_TOKEN),
        base_url=get(table.SLACK_BASE_URL),
        mentions_only=get(table.SLACK_MENTIONS),
        agents=_agents_of(app, "slack"),
        marks_late=get(table.LATE_MESSAGES) == "mark",
    )
    return Slack(options, app.clock)


def _open_api(app: App, store: Store, model: Model, gateway: Gateway) -> Platform:
    """Return the HTTP API, imported late: only it needs a web server."""
    get, offer = app.settings.get, open_offer(app)

    def speaker(scope: Scope, reads: bool) -> Responder:
        may_use = True
        if offer is not None and offer.tool_use is not None:
            offer.tool_use.begin(model, offer)
            may_use = offer.tool_use.is_offered(model.name or offer.answering) is True
        tools = [session_search_tool(store, scope)] if reads else []
        toolbox = Toolbox(tools, off=get(table.TOOLS_OFF), offered=may_use)
        alone = scoped(app, store, model, scope, NOT_KEPT)
        if not reads and isinstance(alone, OfflineModel):
            alone = OfflineModel(recollect_nothing, NOT_KEPT)
        return Responder(alone, toolbox, get(table.MAX_STEPS), get(table.MAX_CALLS))

    def prompt(scope: Scope) -> str:
        return build_system_prompt(PromptParts(read_persona(app.home.soul_file), app.clock.now(), scope))

    options = ApiOptions(
        host=get(table.API_HOST),
        port=get(table.API_PORT),
        key=get(table.API_SERVER_KEY),
        model_name=f"hermes-{app.home.profile}" if app.home.profile else "hermes",
        drain=get(table.DRAIN),
        timeout_seconds=get(table.API_TIMEOUT),
        connections=get(table.API_CONNECTIONS),
        user_guests=open_people(app).api_guests,
        memory=cast(ApiMemory, get(table.API_MEMORY)),
        store=store,
        speaker=speaker,
        prompt=prompt,
    )
    platform: Platform = import_module("hermes.gateway.platforms.http_api").HttpApi(gateway, app.clock, options)
    return platform


OPENERS: Mapping[str, Callable[[App, Store, Model, Gateway], Platform]] = {
    "api": _open_api,
    "discord": _open_discord,
    "slack": _open_slack,
    "telegram": _open_telegram,
}
"""The function that opens each platform of `SWITCHES`."""
