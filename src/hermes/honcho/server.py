"""The Honcho server in force: its address and key, its reachability, and an official SDK client for it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from hermes.config_file import read_env_file, write_setting
from hermes.embedded.connect import connect, find_running
from hermes.embedded.rendezvous import Place, find_place
from hermes.errors import HermesError, ProviderError
from hermes.home import Home
from hermes.honcho import keys
from hermes.honcho.config_file import ConfigPlaces
from hermes.honcho.configuration import CLOUD, HonchoConfiguration, is_cloud_url, load, named_server
from hermes.honcho.grant import SignIn
from hermes.honcho.names import workspace_path
from hermes.honcho.oauth import ERRNO
from hermes.honcho.renewal import LOGIN, Renewal, RenewalTimings
from hermes.loopback import is_loopback_url
from hermes.redaction import hide_tokens, hide_url
from hermes.settings import PROVIDER

if TYPE_CHECKING:
    from honcho import Honcho

    from hermes.honcho.renewing_auth import RenewingAuth

NO_KEY = "local"
"""The key sent if none is needed; without one the SDK would read the environment."""
COMMAND_TIMEOUT_SECONDS = 10.0
"""Timeout of a command's requests."""
REFUSAL_STATUSES, MIN_FAILURE_STATUS = (401, 403), 500

ServerKind = Literal["embedded", "cloud", "self-hosted", "local"]


class HonchoServer(Struct, frozen=True):
    """A server and its key. `url` is "" for our own server, whose address is known once it runs."""

    kind: ServerKind
    url: str
    key: str = ""
    sign_in: SignIn | None = None
    """The sign-in whose token is the key."""

    @property
    def shown(self) -> str:
        """The server's kind and address, without secrets."""
        return "our own memory server" if self.kind == "embedded" else f"{self.kind} at {hide_url(self.url)}"

    @property
    def without_tokens(self) -> HonchoServer:
        """A copy that is equal for all tokens of one sign-in."""
        if self.sign_in is None:
            return self
        made = (self.sign_in.client_id, self.sign_in.granted_at)
        return HonchoServer(self.kind, self.url, f"signed in: {made}")

    @property
    def lacks_key(self) -> bool:
        """Whether a required key is missing. Only the cloud requires one."""
        return self.kind == "cloud" and not self.key

    @property
    def is_overheard(self) -> bool:
        """Whether the connection to another machine is unencrypted."""
        return self.url.startswith("http://") and not is_loopback_url(self.url)


def find_server(config: HonchoConfiguration) -> HonchoServer:
    """Return the server in use: the configured one, or our own if nobody chose Honcho."""
    return configured_server(config) if config.is_chosen else HonchoServer("embedded", "")


def configured_server(config: HonchoConfiguration) -> HonchoServer:
    """Return the server that the configuration names, with its key."""
    url, key = named_server(config.get), config.get(keys.API_KEY)
    if config.get(keys.SERVER) == "embedded" or not (url or key):
        return HonchoServer("embedded", "")
    if not url or is_cloud_url(url):
        return HonchoServer("cloud", url or CLOUD, key, config.sign_in)
    return HonchoServer("self-hosted" if config.get(keys.BASE_URL) else "local", url, key, config.sign_in)


class Machine(Struct, frozen=True):
    """This machine from a profile's point of view: the locations of honcho.json and of our memory server."""

    home: Home
    env: Mapping[str, str]
    is_chosen: bool = True
    """Whether a person chose Honcho here, rather than it being the default."""

    @property
    def memory(self) -> Place:
        """The location of the memory that all profiles share; the default home's `.env` may set it."""
        return find_place(self.home, {**read_env_file(self.home.shared / self.home.env_file.name), **self.env})

    @property
    def places(self) -> ConfigPlaces:
        return ConfigPlaces.find(self.home.path, self.home.profile, self.env)

    def choose(self) -> None:
        """Set Honcho as the memory provider if it is only the default, so that its configuration takes effect."""
        if not self.is_chosen:
            write_setting(self.home.config_file, PROVIDER, PROVIDER.default)

    def load(self) -> HonchoConfiguration:
        """Read the configuration from the files; errors are in `problems`."""
        return load(self.places, self.env, is_chosen=self.is_chosen)


def connect_server(config: HonchoConfiguration, machine: Machine) -> HonchoServer:
    """Return the server in use, with its address; our own is started if it does not run. Blocks."""
    meant = find_server(config)
    if meant.kind != "embedded":
        return meant
    found = connect(machine.memory)
    return HonchoServer("embedded", found.base_url, found.api_key)


@contextmanager
def open_client(config: HonchoConfiguration, machine: Machine) -> Iterator[Honcho]:
    """Yield an SDK client for commands, without retries. Every option is set, so that no variable decides. SDK
    errors in the block become ProviderErrors with readable messages."""
    import httpx
    from honcho import Honcho  # heavy: only who talks with a server pays for it

    server, seconds = connect_server(config, machine), config.request_seconds or COMMAND_TIMEOUT_SECONDS
    auth, trust_env = make_auth(server, machine), not is_loopback_url(server.url)
    with (
        httpx.Client(base_url=server.url, timeout=seconds, trust_env=trust_env, auth=auth) as http,
        readable_errors(server),
    ):
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
    """Return the credentials for a command's requests. An unsaved sign-in is not renewed."""
    from hermes.honcho.renewing_auth import RenewingAuth

    renewal = None
    if server.sign_in is not None:
        saved = machine.load().sign_in
        if saved is not None and saved.granted_at == server.sign_in.granted_at:
            renewal = Renewal(machine.places, machine.load, time.time, RenewalTimings())
    return RenewingAuth(server.key or NO_KEY, renewal)


def try_server(config: HonchoConfiguration, machine: Machine) -> str:
    """Connect to the server and create its workspace if missing; return "" on success, else the error."""
    try:
        with open_client(config, machine) as client:
            client.get_metadata()
    except HermesError as error:
        return error.line()
    return ""


def describe_server(config: HonchoConfiguration, machine: Machine, timeout: float = COMMAND_TIMEOUT_SECONDS) -> str:
    """Describe whether the server answers and accepts the key. Creates and starts nothing."""
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
    if answer.status_code in REFUSAL_STATUSES and server.sign_in is not None:
        if server.sign_in.has_ended(time.time()):
            return "it answers, but refuses the sign-in's token, which is renewed when memory is used"
        return f"it answers, but refuses the sign-in for the workspace {config.workspace}; {LOGIN}"
    if answer.status_code in REFUSAL_STATUSES:
        return "it answers, but refuses the key" if server.key else "it answers, but wants a key"
    return f"it answers, but fails ({answer.status_code})" if answer.status_code >= MIN_FAILURE_STATUS else "it answers"


def _look_at_own(machine: Machine) -> str:
    try:
        running = find_running(machine.memory)
    except HermesError as error:
        return f"it does not answer: {error.line()}"
    return "it is not running and starts when it is needed" if running is None else f"it answers at {running.url}"


@contextmanager
def readable_errors(server: HonchoServer) -> Iterator[None]:
    """Convert SDK errors of the block to ProviderErrors with readable messages."""
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
        raise ProviderError(f"the request to the server failed: {why}", hint="") from error
