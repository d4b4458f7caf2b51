"""Model settings of a memory folder: its file `model.json`, which `hermes memory model` writes."""

from __future__ import annotations

import errno
import logging
import os
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct, field
from msgspec.structs import asdict

from hermes.errors import SettingsError
from hermes.llm.model import Endpoint

log = logging.getLogger(__name__)
FILE = "model.json"
ModelClass = Literal["point", "compose"]
"""`point`: answers yes/no and which. `compose`: also writes answers and summaries from numbered quotes."""
ModelSource = Literal["off", "own", "host", "env"]
"""Where the address comes from: this file, the host's model (copied here after consent), or the environment."""
NO_URL = "the environment sets no URL of a memory model"
OPENAI_URL = "https://api.openai.com/v1"
MAX_FILE_BYTES = 1024 * 1024
MIN_WINDOW_TOKENS, MAX_WINDOW_TOKENS = 1024, 100_000_000
GUESSED_WINDOW_TOKENS = 8192
"""Window of an endpoint that does not report its context length."""
VARIABLES: Mapping[str, tuple[str, ...]] = {
    "name": ("HERMES_MEMORY_MODEL_NAME", "DERIVER_MODEL"),
    "window": ("HERMES_MEMORY_MODEL_WINDOW",),
    "model_class": ("HERMES_MEMORY_MODEL_CLASS",),
    "cap_calls": ("HERMES_MEMORY_MODEL_CAP_CALLS",),
    "cap_tokens": ("HERMES_MEMORY_MODEL_CAP_TOKENS",),
}
"""Environment variables by field; the first one that is set counts. Honcho's names follow ours."""
ADDRESSES = (
    ("HERMES_MEMORY_MODEL_URL", "HERMES_MEMORY_MODEL_KEY"),
    ("LLM_OPENAI_COMPATIBLE_BASE_URL", "LLM_OPENAI_COMPATIBLE_API_KEY"),
)
"""Environment variables of an address and of the key for it; the key is never sent elsewhere. Without an address,
Honcho's `LLM_OPENAI_API_KEY` is sent to OpenAI."""


class ModelSettings(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """The model of a folder, or of one of its workspaces. Caps apply per workspace and day (UTC)."""

    source: ModelSource = "off"
    url: str = ""
    name: str = ""
    """Empty for the first chat model in the endpoint's list."""
    key: str = ""
    key_env: str = ""
    """Environment variable that holds the key, instead of `key`."""
    window: int | None = None
    """Context length in tokens; None to use the length that the endpoint reports."""
    model_class: ModelClass | None = None
    """Class of the model; None to determine it by a self-test at the first use."""
    cap_calls: int = 2_000
    cap_tokens: int = 2_000_000
    guests: bool = False
    """True if words of people other than the owner may be sent."""
    workspaces: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Settings that differ in single workspaces, by the workspace's name."""

    def __repr__(self) -> str:
        return f"ModelSettings({self.source}, {self.name})"

    def check(self, where: str = "the memory model") -> None:
        """Raise SettingsError for an invalid value; the error names the place, field, value and allowed values."""
        if self.source == "off":
            return
        if self.source != "env" and not self.url:
            raise SettingsError(f"{where}: `url` is missing", hint="`hermes memory model --url URL` sets one")
        if self.window is not None and not MIN_WINDOW_TOKENS <= self.window <= MAX_WINDOW_TOKENS:
            allowed = f"{MIN_WINDOW_TOKENS:,} to {MAX_WINDOW_TOKENS:,} tokens"
            raise SettingsError(f"{where}: `window` is {self.window:,}; allowed are {allowed}", hint="")
        for name in ("cap_calls", "cap_tokens"):
            if (cap := getattr(self, name)) < 1:
                hint = "`hermes memory model --off` sends nothing at all"
                raise SettingsError(f"{where}: `{name}` is {cap:,}; allowed is 1 or more", hint=hint)
        if self.url:
            try:
                Endpoint.parse(self.url, self.key or None)
            except SettingsError as error:
                raise SettingsError(f"{where}: {error}", hint=error.hint) from error

    def check_all(self, where: str) -> None:
        """Check the settings of the folder and of every workspace."""
        self.check(where)
        for name in self.workspaces:
            self.for_workspace(name).check(f"{where}, workspace '{name}'")

    def for_workspace(self, name: str) -> ModelSettings:
        """Return the settings of one workspace. Raise SettingsError for invalid values."""
        found = self.workspaces.get(name)
        if not found:
            return self
        own = _convert({**asdict(self), **found, "workspaces": {}}, f"of workspace '{name}'")
        if own.url == self.url or is_same_place(own.url, self.url):
            return own
        # A key is sent only to the server for which it was given.
        return msgspec.structs.replace(own, key=found.get("key", ""), key_env=found.get("key_env", ""))

    def resolved(self, env: Mapping[str, str]) -> ModelSettings:
        """Return the settings completed from the environment. Raise SettingsError as `check` does."""
        if self.source == "env":
            given = {name: value for name, names in VARIABLES.items() if (value := first_set(env, names))}
            found = _convert({**asdict(self), **given, **_address(env)}, "in the environment", strict=False)
            found.check("the memory model in the environment")
        elif self.key_env and not env.get(self.key_env):
            hint = "Set it, in the environment or the home's .env, or give another key with `hermes memory model`"
            raise SettingsError(f"the memory model's key is in {self.key_env}, which is not set", hint=hint)
        else:
            found = msgspec.structs.replace(self, key=env[self.key_env]) if self.key_env else self
        found.check()
        return found


def is_same_place(url: str, other: str) -> bool:
    """Return True if two URLs belong to the same server."""
    return bool(other) and Endpoint.parse(url).netloc == Endpoint.parse(other).netloc


def _address(env: Mapping[str, str]) -> dict[str, str]:
    """Return the URL and key that the environment defines."""
    for url, key in ADDRESSES:
        if address := env.get(url, "").strip():
            return {"url": address, "key": env.get(key, "").strip()}
    if key := first_set(env, ("HERMES_MEMORY_MODEL_KEY", "LLM_OPENAI_API_KEY")):
        return {"url": OPENAI_URL, "key": key}
    hint = "Set HERMES_MEMORY_MODEL_URL, or use `hermes memory model --url URL`"
    raise SettingsError(NO_URL, hint=hint)


def first_set(env: Mapping[str, str], names: tuple[str, ...]) -> str:
    """Return the first variable that is not empty, else ""."""
    return next((value for name in names if (value := env.get(name, "").strip())), "")


def _convert(value: Mapping[str, Any], where: str, *, strict: bool = True) -> ModelSettings:
    try:
        return msgspec.convert(value, ModelSettings, strict=strict)
    except msgspec.ValidationError as error:
        raise SettingsError(f"the memory model's settings {where} are wrong: {error}", hint="") from error


def read_settings(folder: Path) -> ModelSettings | None:
    """Read the folder's file; None if it does not exist. Raise SettingsError if it is invalid, or holds a key and is
    readable by others."""
    path = folder / FILE
    try:
        found = path.stat()
        if not stat.S_ISREG(found.st_mode) or found.st_size > MAX_FILE_BYTES:
            raise OSError(errno.EINVAL, "it is not a settings file")
        settings = msgspec.json.decode(path.read_bytes(), type=ModelSettings)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        hint = "Correct it, or replace it with `hermes memory model --off` (or --url, --host, --env)"
        raise SettingsError(f"cannot use {path}: {why}", hint=hint) from error
    has_key = settings.key or any(one.get("key") for one in settings.workspaces.values())
    if has_key and os.name != "nt" and found.st_mode & 0o077:
        raise SettingsError(f"{path} holds a key and can be read by others", hint=f"chmod 600 {path}")
    settings.check_all(str(path))
    return settings


def to_json(settings: ModelSettings) -> str:
    """Return the contents of the settings file."""
    return msgspec.json.format(msgspec.json.encode(settings)).decode() + "\n"


class SettingsFile:
    """The current settings of a folder: each use checks whether the file has changed. Without a folder the model is
    off."""

    def __init__(
        self,
        folder: Path | None,
        env: Callable[[], Mapping[str, str]] = dict,
        default: ModelSettings = ModelSettings(),  # noqa: B008 - frozen
    ) -> None:
        """`env` returns the variables that may hold keys and settings; `default` applies if the file does not exist."""
        self._folder = folder
        self._env = env
        self._default = default
        self._seen: tuple[int, ...] | None = None
        self._version = 0
        self._settings = ModelSettings()
        self._by_workspace: dict[str, ModelSettings | None] = {}
        self.problem: str | None = None
        """The reason why the settings are invalid; no model is used then."""

    @property
    def settings(self) -> ModelSettings:
        """The folder's settings, even while they are invalid."""
        self.version()
        return self._settings

    def version(self) -> int:
        """Return the number of file states seen, starting at 1. A changed file is read."""
        state = self._state()
        if state == self._seen:
            return self._version
        self._version += 1
        self._seen, self._by_workspace, self.problem = state, {}, None
        try:
            found = None if self._folder is None else read_settings(self._folder)
            self._settings = self._default if found is None else found
        except SettingsError as error:
            self._settings = ModelSettings()
            self._complain(error)
        return self._version

    def find(self, workspace: str) -> ModelSettings | None:
        """Return the settings of a workspace, with keys resolved; None if it may use no model."""
        self.version()
        if workspace not in self._by_workspace:
            self._by_workspace[workspace] = self._resolve(workspace)
        return self._by_workspace[workspace]

    def _resolve(self, workspace: str) -> ModelSettings | None:
        try:
            settings = self._settings.for_workspace(workspace)
            return None if settings.source == "off" else settings.resolved(self._env())
        except SettingsError as error:
            self._complain(error)
            return None

    def _complain(self, error: SettingsError) -> None:
        if self.problem is None:
            log.warning("memory server: no model is used: %s", error.line())
        self.problem = error.line()

    def _state(self) -> tuple[int, ...]:
        try:
            found = (self._folder / FILE).stat() if self._folder is not None else None
        except OSError:
            found = None
        return () if found is None else (found.st_mtime_ns, found.st_size, found.st_ino, found.st_mode)
