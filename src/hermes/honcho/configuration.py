"""The configuration in force for one host: every key with its source, and the values derived from them."""

from __future__ import annotations

import getpass
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from itertools import takewhile
from pathlib import Path
from typing import Any, TypeVar, cast
from urllib.parse import urlsplit

from msgspec import Struct
from msgspec.structs import replace

from hermes.errors import SettingsError
from hermes.home import PROFILES
from hermes.honcho import keys
from hermes.honcho.config_file import FILE, GLOBAL, HOSTS, ConfigPlaces, Document, read_document
from hermes.honcho.grant import CLOUD as CLOUD
from hermes.honcho.grant import SignIn, is_access_token, read_sign_in
from hermes.honcho.guests import NO_GUESTS, GuestRecord, read_guests
from hermes.honcho.identity import FALLBACK, Identities
from hermes.honcho.keys import Key
from hermes.honcho.names import Naming, Strategy, clean
from hermes.honcho.projects import NO_PROJECTS, Projects, read_projects
from hermes.loopback import is_private_url
from hermes.redaction import hide_url
from hermes.settings.compound_kinds import OpenFields
from hermes.settings.kinds import plain
from hermes.settings.layers import DEFAULT, Layer, Resolved, Settings, environment, try_resolve
from hermes.settings.setting import nearest

T = TypeVar("T")
LOCAL = "http://localhost:8000"
VERSION_PATH = re.compile(r"(?:/v[1-3]/*|(?<!/)/+)$")
MIN_REQUEST_SECONDS = 1.0
MAX_NAMED_KEYS, MAX_NAME_CHARS = 10, 60
"""Unknown keys that one warning names, and characters of each name."""
HOST, ROOT, VARIABLE = "host block", "root", "environment"
BOTH = {"observeMe": True, "observeOthers": True}
PRESETS: Mapping[str, Mapping[str, Mapping[str, bool]]] = {
    "directional": {"user": BOTH, "ai": BOTH},
    "unified": {
        "user": {"observeMe": True, "observeOthers": False},
        "ai": {"observeMe": False, "observeOthers": True},
    },
}


class GivenKey(Struct, frozen=True):
    """A key of one layer (host block, root or environment), and the server that the same layer names, if any."""

    layer: str
    where: str
    key: str
    server: str
    """For a sign-in, the server that it was made for."""
    is_sign_in: bool = False

    def is_for(self, url: str) -> bool:
        """Return True if the key may be sent to a server. A key with a server beside it goes to that server alone. Any
        other goes to the cloud and to public servers; to a private one only from the host block."""
        if self.server:
            return self.server == url or (is_cloud_url(self.server) and is_cloud_url(url))
        return self.layer == HOST or not is_private_url(url)


class HonchoConfiguration(Struct, frozen=True, dict=True):
    """The configuration of one host. Invalid values are replaced by their defaults, so that `status` can show them;
    call `checked` before running with it."""

    host: str
    file: Path | None
    """The file that was read; None without a file."""
    settings: Settings
    problems: Sequence[SettingsError]
    remarks: Sequence[str]
    """Warnings: valid values that are probably mistakes."""
    given_keys: Sequence[GivenKey] = ()
    """API keys of all layers, the most important first. The value of `apiKey` is the first for the server in force."""
    login: str = FALLBACK
    is_chosen: bool = True
    """Whether a person chose Honcho. If not, the servers named here are ignored."""
    others: frozenset[str] = frozenset()
    """Peers of the owner and of agents that other host blocks name."""
    targets: frozenset[str] = frozenset()
    """Peers that aliases of any host block give."""
    agents: frozenset[str] = frozenset()
    """Peers of the agents of all profiles."""
    guests: GuestRecord = NO_GUESTS
    projects: Projects = NO_PROJECTS
    """Chats that are stored in other workspaces."""

    def get(self, key: Key[T]) -> T:
        """Return the value in force."""
        return self.settings.get(key)

    def checked(self) -> HonchoConfiguration:
        """Return self. Raises SettingsError for the first problem."""
        if self.problems:
            more = f" (and {len(self.problems) - 1} more)" if len(self.problems) > 1 else ""
            raise SettingsError(f"{self.problems[0].message}{more}", hint="`hermes honcho status` shows every key")
        return self

    @property
    def workspace(self) -> str:
        return self.get(keys.WORKSPACE) or self.host_name

    @property
    def withheld(self) -> list[str]:
        """Explain why keys with higher precedence are not sent to the server in force, and how to change that."""
        if self.get(keys.SERVER) == "embedded" or not self.is_chosen:
            return []
        url, reasons = named_server(self.get) or CLOUD, list[str]()
        for one in takewhile(lambda one: not one.is_for(url), self.given_keys):
            name = keys.API_KEY.env if one.layer == VARIABLE else f"the {one.layer}"
            if one.is_sign_in and one.server:
                reasons.append(
                    f"the sign-in of {name} was made for {hide_url(one.server)} and is not sent to {hide_url(url)}; "
                    "`hermes honcho login` signs in there"
                )
                continue
            belongs = f"belongs to {hide_url(one.server)} and is not sent to {hide_url(url)}"
            why = belongs if one.server else "is not sent to a local server"
            reasons.append(f"the key of {name} {why}; put apiKey beside baseUrl in hosts.{self.host}")
        return reasons

    @property
    def grant(self) -> Mapping[str, object] | None:
        """The sign-in whose token is in `apiKey`; it counts only if it comes from the same layer as the key."""
        beside = self.settings.where(keys.OAUTH) == self.settings.where(keys.API_KEY)
        return self.get(keys.OAUTH) if beside and is_access_token(self.get(keys.API_KEY)) else None

    @property
    def sign_in(self) -> SignIn | None:
        """The sign-in whose token is sent to the server in force."""
        return read_sign_in({keys.API_KEY.key: self.get(keys.API_KEY), keys.OAUTH.key: self.grant})

    @property
    def sign_in_layer(self) -> str:
        return self.settings.origin(keys.OAUTH)

    @property
    def has_foreign_sign_in(self) -> bool:
        """Return True if the sign-in stands where only other programs write: they renew it."""
        return self.sign_in_layer == ROOT and self.file is not None and self.file.parts[-2:] == GLOBAL.parts

    @property
    def host_name(self) -> str:
        return clean(self.host) or "hermes"

    @cached_property
    def identities(self) -> Identities:
        """The peers of people and agents. A pin without a name is ignored; so is a login name that equals the
        agent's."""
        ai = self.get(keys.AI_PEER) or self.host_name
        return Identities(
            owner=self.get(keys.PEER_NAME) or (self.login if self.login != ai else FALLBACK),
            ai=ai,
            pin=self.get(keys.PIN_USER_PEER) and bool(self.get(keys.PEER_NAME)),
            pin_guests=self.get(keys.PIN_GUESTS),
            aliases=self.get(keys.USER_PEER_ALIASES),
            prefix=self.get(keys.RUNTIME_PEER_PREFIX),
            others=self.others,
            targets=self.targets,
            guests=self.guests,
        )

    @cached_property
    def naming(self) -> Naming:
        return Naming(
            strategy=cast(Strategy, self.get(keys.SESSION_STRATEGY)),
            workspace=self.workspace,
            manual=self.get(keys.SESSIONS),
            peer_prefix=self.get(keys.SESSION_PEER_PREFIX),
            ai_prefix=self.identities.ai if self.get(keys.SESSION_AI_PEER_PREFIX) else "",
            rotate=self.get(keys.NEW_SESSION_POLICY) == "rotate",
        )

    @property
    def request_seconds(self) -> float | None:
        """The configured timeout of a request; None if unset, so that each request has its own."""
        given = self.get(keys.TIMEOUT)
        return max(given, MIN_REQUEST_SECONDS) if given else None

    @property
    def observation(self) -> Mapping[str, Mapping[str, bool]]:
        """Observation settings by peer: the preset, overridden by `observation`."""
        preset, given = PRESETS[self.get(keys.OBSERVATION_MODE)], self.get(keys.OBSERVATION)
        return {peer: {**preset[peer], **given.get(peer, {})} for peer in preset}

    @cached_property
    def signature(self) -> dict[str, Any]:
        """The values that open sessions keep, by `honcho.key`; a change reopens sessions."""
        frozen = {f"honcho.{row.key}": plain_text(self.get(row)) for row in keys.TABLE if row.frozen}
        chats = plain_text({end: [one.workspace, one.session] for end, one in self.projects.chats.items()})
        return {"honcho.host": self.host, "honcho.login": self.login, "honcho.projects": chats, **frozen}


def load(places: ConfigPlaces, env: Mapping[str, str], *, is_chosen: bool = True) -> HonchoConfiguration:
    """Read the configuration from the files. Raises nothing: errors are in `problems`."""
    path, broken = places.existing(), list[SettingsError]()
    try:
        document = read_document(path, places)
    except SettingsError as error:
        document, broken = Document({}, {}, places.host), [error]
    found = replace(resolve(document, path, places.host, env, broken), is_chosen=is_chosen)
    for other in _other_documents(places, path):
        others, targets = found.others.union(_named_elsewhere(other)), found.targets.union(_aliased_anywhere(other))
        found = replace(found, others=others, targets=targets, agents=found.agents.union(_agents(other)))
    try:
        return replace(
            found, guests=read_guests(places.guests, found.workspace), projects=read_projects(places.projects)
        )
    except SettingsError as error:
        return replace(found, problems=[*found.problems, error])


def resolve(
    document: Document, path: Path | None, host: str, env: Mapping[str, str], broken: Sequence[SettingsError] = ()
) -> HonchoConfiguration:
    """Return the configuration that a document and the environment give."""
    layers = [
        Layer.of(HOST, document.block, f"{path}, hosts.{document.host}"),
        Layer.of(ROOT, document.root, str(path)),
        environment(keys.TABLE, env),
    ]
    settings, problems = try_resolve(keys.TABLE, layers)
    given_keys, url = _given_keys(layers), named_server(settings.get) or CLOUD
    in_force = (Resolved(one.key, one.layer, one.where) for one in given_keys if one.is_for(url))
    settings = Settings({**settings.found, keys.API_KEY.key: next(in_force, Resolved("", DEFAULT, DEFAULT))})
    found = HonchoConfiguration(
        *(host, path, settings, [*broken, *problems], [], given_keys, login_name(env)),
        others=frozenset(_named_elsewhere(document)),
        targets=frozenset(_aliased_anywhere(document)),
        agents=frozenset(_agents(document)),
    )
    if found.identities.owner == found.identities.ai:
        both = f"you and the agent would both be the peer '{found.identities.ai}'"
        one = SettingsError(f"{path or 'honcho.json'}: {both}", hint="Set peerName or aiPeer to another name")
        found = replace(found, problems=[*found.problems, one])
    is_shared = path is not None and path.parts[-2:] == GLOBAL.parts
    return replace(found, remarks=list(_remarks(found, document, layers, is_shared=is_shared)))


def _other_documents(places: ConfigPlaces, path: Path | None) -> Iterator[Document]:
    """Yield the files of the default home and of other profiles, which may share the workspace. Invalid files are
    skipped; their own profile reports them."""
    for one in (places.default, *sorted(places.default.parent.glob(f"{PROFILES}/*/{FILE}"))):
        with suppress(SettingsError):
            if one != path:
                yield read_document(one, places)


def _named_elsewhere(document: Document) -> Iterator[str]:
    """Yield the peers of owners and agents named in the root and in every host block."""
    for host, block in _blocks(document):
        given = (block.get(keys.PEER_NAME.key), block.get(keys.AI_PEER.key), host)
        yield from (name for one in given if isinstance(one, str) and (name := clean(one)))


def _agents(document: Document) -> Iterator[str]:
    """Yield the agents' peers named in every host block."""
    common = document.root.get(keys.AI_PEER.key)
    given = (block.get(keys.AI_PEER.key) or common or host for host, block in _blocks(document) if host)
    yield from (name for one in given if isinstance(one, str) and (name := clean(one)))


def _aliased_anywhere(document: Document) -> Iterator[str]:
    """Yield the peers that aliases of the root and of every host block point to."""
    for _, block in _blocks(document):
        aliases = block.get(keys.USER_PEER_ALIASES.key)
        given = aliases.values() if isinstance(aliases, Mapping) else ()
        yield from (name for one in given if isinstance(one, str) and (name := clean(one)))


def _blocks(document: Document) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the root (as "") and every host block, by name."""
    hosts = document.root.get(HOSTS)
    blocks = hosts if isinstance(hosts, dict) else {}
    yield from (one for one in (("", document.root), *blocks.items()) if isinstance(one[1], Mapping))


def named_server(get: Callable[[Key[str]], str]) -> str:
    """Return the URL of the server that `baseUrl` or `environment` names, "" for none."""
    return VERSION_PATH.sub("", get(keys.BASE_URL)) or (LOCAL if get(keys.ENVIRONMENT) == "local" else "")


def is_cloud_url(url: str) -> bool:
    """Return True if a URL leads to Honcho Cloud."""
    return urlsplit(url).hostname == urlsplit(CLOUD).hostname


def _given_keys(layers: Sequence[Layer]) -> list[GivenKey]:
    """List the key of each layer. An empty key in the host block hides the root's, but not the variable's. A layer
    whose server is invalid has no key: its owner is unknown."""
    found, of_host = list[GivenKey](), layers[0].find(keys.API_KEY)
    hides_root = of_host is not None and not str(of_host.value).strip()
    for layer in layers:
        own, problems = try_resolve([keys.API_KEY, keys.BASE_URL, keys.ENVIRONMENT], [layer])
        if (key := own.get(keys.API_KEY)) and not problems and not (hides_root and layer.name == ROOT):
            sign_in = _sign_in_of(layer, key)
            server = (sign_in and sign_in.made_for) or named_server(own.get)
            found.append(GivenKey(layer.name, own.where(keys.API_KEY), key, server, sign_in is not None))
    return found


def _sign_in_of(layer: Layer, key: str) -> SignIn | None:
    grant = layer.find(keys.OAUTH)
    return None if grant is None else read_sign_in({keys.API_KEY.key: key, keys.OAUTH.key: grant.value})


def login_name(env: Mapping[str, str]) -> str:
    """Return the name of the logged-in user as a valid peer name."""
    given = next((env[name] for name in ("LOGNAME", "USER", "LNAME", "USERNAME") if env.get(name)), "")
    if not given:
        try:
            given = getpass.getuser()
        except (OSError, KeyError):  # nobody has a name here, as in some containers
            given = ""
    return clean(given)[:50] or FALLBACK


def plain_text(value: object) -> Any:
    """Return a list or map as JSON text that depends on its contents alone; other values unchanged."""
    return json.dumps(plain(value), sort_keys=True) if isinstance(value, list | tuple | Mapping) else value


def _remarks(
    found: HonchoConfiguration, document: Document, layers: Sequence[Layer], *, is_shared: bool
) -> Iterator[str]:
    """Yield warnings: an ignored block, unknown or misspelt keys, values that count as others, pins without effect."""
    if document.unread is not None:
        yield f"{found.file}: hosts.{document.unread} is ignored: hosts.{document.host} replaces it"
    for layer in layers[:2]:
        yield from _unknown(layer, is_shared=layer.name == ROOT and is_shared)
    for row in keys.TABLE:
        given = next((one for layer in layers if (one := layer.find(row)) is not None), None)
        if given is not None and (warning := row.counted_as(given.value)) is not None:
            yield f"{given.where}: {warning}"
    depth, levels = found.get(keys.DIALECTIC_DEPTH), found.get(keys.DIALECTIC_DEPTH_LEVELS)
    if levels is not None and len(levels) > depth:
        count = "only the first counts" if depth == 1 else f"the first {depth} count"
        yield f"dialecticDepthLevels has {len(levels)} levels, but dialecticDepth is {depth}: {count}"
    for user_id, peer in found.identities.aliases.items():
        if peer == found.identities.ai:
            yield f"{found.settings.where(keys.USER_PEER_ALIASES)}: userPeerAliases makes {user_id} the agent, {peer}"
    if found.get(keys.PIN_USER_PEER) and not found.get(keys.PEER_NAME):
        where = found.settings.where(keys.PIN_USER_PEER)
        yield f"{where}: pinUserPeer is true but peerName is not set, so the pin is ignored"
    elif found.get(keys.PIN_GUESTS) and not found.get(keys.PIN_USER_PEER):
        yield f"{found.settings.where(keys.PIN_GUESTS)}: pinGuests is true, but pinUserPeer is not"


def _unknown(layer: Layer, *, is_shared: bool) -> Iterator[str]:
    """Yield warnings for keys that are not ours, the probably misspelt ones separately. The root of the shared file
    holds foreign keys of other programs, which are not listed."""
    meant = dict(_meant(layer))
    where = next((given.where for given in layer.values.values()), "")
    for name, key in meant.items():
        if key is not None:
            yield f"{where}: there is no key {name[:MAX_NAME_CHARS]} (did you mean {key}?)"
    foreign = [] if is_shared else [name for name, key in meant.items() if key is None]
    if foreign:
        names = ", ".join(name[:MAX_NAME_CHARS] for name in foreign[:MAX_NAMED_KEYS])
        more = f" and {len(foreign) - MAX_NAMED_KEYS} more" if len(foreign) > MAX_NAMED_KEYS else ""
        yield f"{where}: unknown keys, which are kept and not used: {names}{more}"


def _meant(layer: Layer) -> Iterator[tuple[str, str | None]]:
    """Yield every unknown key of a layer and every unknown name inside a key, each with the probably meant one."""
    rows = {name: row for row in keys.TABLE for name in row.keys}
    for name, given in layer.values.items():
        row = rows.get(name)
        if row is None and name != HOSTS:
            yield name, nearest(name, rows)
        elif row is not None and isinstance(row.kind, OpenFields):
            yield from row.kind.unknown(given.value, name)
