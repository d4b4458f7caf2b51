"""Which Honcho server is meant, how it is reached, and a client of the official SDK for it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from hermes.config_file import read_env_file, write_setting
from hermes.embedded.connect import connect, find_running
from hermes.embedded.place import Place, find_place
from hermes.errors import HermesError, ProviderError
from hermes.home import Home
from hermes.honcho import keys
from hermes.honcho.config_file import ConfigPlaces
from hermes.honcho.configuration import CLOUD, HonchoConfiguration, is_cloud_url, load, named_server
from hermes.honcho.grant import SignIn
from hermes.honcho.names import workspace_path
from hermes.honcho.renewal import LOGIN, Renewal, RenewalTerms
from hermes.honcho.token_requests import ERRNO
from hermes.loopback import is_loopback_url
from hermes.redaction import hide_tokens, hide_url
from hermes.settings import PROVIDER

if TYPE_CHECKING:
    from honcho import Honcho

    from hermes.honcho.renewing_auth import RenewingAuth

NO_KEY = "local"
"""What is sent as a key where none is needed: without one the SDK would look for one in the environment."""
PATIENCE = 10.0
"""Seconds that a command waits for a server."""
REFUSALS, BROKEN = (401, 403), 500

ServerKind = Literal["embedded", "cloud", "self-hosted", "local"]


class HonchoServer(Struct, frozen=True):
    """A server and the key for it. `url` is empty for our own, whose address is known once it runs."""

    kind: ServerKind
    url: str
    key: str = ""
    sign_in: SignIn | None = None
    """The sign-in that the key is the token of."""

    @property
    def shown(self) -> str:
        """For people, without secrets."""
        return "our own memory server" if self.kind == "embedded" else f"{self.kind} at {hide_url(self.url)}"

    @property
    def without_tokens(self) -> HonchoServer:
        """The same whichever token of a sign-in is in force."""
        if self.sign_in is None:
            return self
        made = (self.sign_in.client_id, self.sign_in.granted_at)
        return HonchoServer(self.kind, self.url, f"signed in: {made}")

    @property
    def lacks_key(self) -> bool:
        """Whether it cannot work without a key, and has none. A server of one's own may do without."""
        return self.kind == "cloud" and not self.key

    @property
    def is_overheard(self) -> bool:
        """Whether the connection to another machine is not encrypted."""
        return self.url.startswith("http://") and not is_loopback_url(self.url)


def find_server(config: HonchoConfiguration) -> HonchoServer:
    """The server that is used: what the configuration means, but our own while nobody chose Honcho."""
    return meant_server(config) if config.is_chosen else HonchoServer("embedded", "")


def meant_server(config: HonchoConfiguration) -> HonchoServer:
    """The server that the configuration means, with the key that belongs to it."""
    url, key = named_server(config.get), config.get(keys.API_KEY)
    if config.get(keys.SERVER) == "embedded" or not (url or key):
        return HonchoServer("embedded", "")
    if not url or is_cloud_url(url):
        return HonchoServer("cloud", url or CLOUD, key, config.sign_in)
    return HonchoServer("self-hosted" if config.get(keys.BASE_URL) else "local", url, key, config.sign_in)


class Machine(Struct, frozen=True):
    """This machine as a profile sees it: where honcho.json and our own memory server are found."""

    home: Home
    env: Mapping[str, str]
    is_chosen: bool = True
    """Whether a person chose Honcho here, or it is the default."""

    @property
    def memory(self) -> Place:
        """The memory that all profiles share; the default home's `.env` may say where it is."""
        return find_place(self.home, {**read_env_file(self.home.shared / self.home.env_file.name), **self.env})

    @property
    def places(self) -> ConfigPlaces:
        return ConfigPlaces.find(self.home.path, self.home.profile, self.env)

    def choose(self) -> None:
        """The person wants Honcho: where it was only the default it is set now, and follows its configuration."""
        if not self.is_chosen:
            write_setting(self.home.config_file, PROVIDER, PROVIDER.default)

    def load(self) -> HonchoConfiguration:
        """The configuration as the files are now, with what is wrong."""
        return load(self.places, self.env, is_chosen=self.is_chosen)


def reachable(config: HonchoConfiguration, machine: Machine) -> HonchoServer:
    """The server that is meant, with its address; our own is started where it does not run. Blocks."""
    meant = find_server(config)
    if meant.kind != "embedded":
        return meant
    found = connect(machine.memory)
    return HonchoServer("embedded", found.base_url, found.api_key)


@contextmanager
def open_client(config: HonchoConfiguration, machine: Machine) -> Iterator[Honcho]:
    """A client for commands, which repeats nothing by itself. Everything is told to it, so that no variable decides.
    What the SDK raises in the block becomes a ProviderError, in words."""
    import httpx
    from honcho import Honcho  # heavy: only who talks with a server pays for it

    server, seconds = reachable(config, machine), config.request_seconds or PATIENCE
    auth, trust_env = make_auth(server, machine), not is_loopback_url(server.url)
    with httpx.Client(base_url=server.url, timeout=seconds, trust_env=trust_env, auth=auth) as http, in_words(server):
        yield Honcho(
            api_key=server.key or NO_KEY,
            environment="local" if server.kind == "local" else "production",
            base_url=server.url,
            workspace_id=config.workspace,
            timeout=seconds,
            max_retries=0,
            http_client=http,
        )


def make_auth(server: HonchoServer, machine: Machine) -> RenewingAuth:
    """Return what lets a command's requests in. A sign-in that is tried before it is saved is not renewed."""
    from hermes.honcho.renewing_auth import RenewingAuth

    renewal = None
    if server.sign_in is not None:
        saved = machine.load().sign_in
        if saved is not None and saved.granted_at == server.sign_in.granted_at:
            renewal = Renewal(machine.places, machine.load, time.time, RenewalTerms())
    return RenewingAuth(server.key or NO_KEY, renewal)


def try_server(config: HonchoConfiguration, machine: Machine) -> str:
    """Reach the server and its workspace, which is made if it is not there; "" when that went well, else why not."""
    try:
        with open_client(config, machine) as client:
            client.get_metadata()
    except HermesError as error:
        return error.line()
    return ""


def look_at(config: HonchoConfiguration, machine: Machine, timeout: float = PATIENCE) -> str:
    """How the server is, in words: whether anything answers there, and takes the key. Nothing is made or started."""
    server = find_server(config)
    if server.kind == "embedded":
        return _look_at_own(machine)
    import httpx

    try:
        answer = httpx.get(
            f"{server.url}{workspace_path(config.workspace)}/queue/status",
            headers={"Authorization": f"Bearer {server.key or NO_KEY}"},
            timeout=timeout,
            trust_env=not is_loopback_url(server.url),
        )
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        why = ERRNO.sub("", hide_tokens(str(error))) or type(error).__name__
        return f"it does not answer: {why}"
    if answer.status_code in REFUSALS and server.sign_in is not None:
        if server.sign_in.has_ended(time.time()):
            return "it answers, but refuses the sign-in's token, which is renewed when memory is used"
        return f"it answers, but refuses the sign-in for the workspace {config.workspace}; {LOGIN}"
    if answer.status_code in REFUSALS:
        return "it answers, but refuses the key" if server.key else "it answers, but wants a key"
    return f"it answers, but fails ({answer.status_code})" if answer.status_code >= BROKEN else "it answers"


def _look_at_own(machine: Machine) -> str:
    try:
        running = find_running(machine.memory)
    except HermesError as error:
        return f"it does not answer: {error.line()}"
    return "it is not running and starts when it is needed" if running is None else f"it answers at {running.url}"


@contextmanager
def in_words(server: HonchoServer) -> Iterator[None]:
    """Let what the SDK raises leave as a ProviderError."""
    from honcho.http.exceptions import AuthenticationError, HonchoError, PermissionDeniedError

    try:
        yield
    except (AuthenticationError, PermissionDeniedError) as error:
        what, hint = ("key", "Check `apiKey`") if server.sign_in is None else ("sign-in", LOGIN)
        raise ProviderError(f"the server refuses the {what} ({hide_tokens(str(error))})", hint=hint) from error
    except HonchoError as error:
        if isinstance(error.__context__, HermesError):  # the SDK took what renewing raised for its own
            raise error.__context__ from None
        why = ERRNO.sub("", hide_tokens(str(error)))
        raise ProviderError(f"the server did not answer well: {why}", hint="") from error
