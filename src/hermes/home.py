"""Paths of everything in a profile's home."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping
from itertools import takewhile
from pathlib import Path

from msgspec import Struct

from hermes.errors import HomeError, NotFoundError, UsageError

PROFILES = "profiles"
DEFAULT = "default"
"""Name of the home that belongs to no profile."""
MEMORY = "memory"
PROFILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


def default_home(env: Mapping[str, str]) -> Path:
    """Return `HERMES_HOME`, or `~/.hermes` (`%LOCALAPPDATA%\\hermes` on Windows)."""
    if given := env.get("HERMES_HOME"):
        return _expand(given, env).absolute()
    if sys.platform == "win32":
        return Path(env.get("LOCALAPPDATA") or _expand("~", env) / "AppData" / "Local") / "hermes"
    return _expand("~", env) / ".hermes"


def _expand(given: str, env: Mapping[str, str]) -> Path:
    """Expand `~` by the environment that was passed, so that a process can inspect another's home."""
    path = Path(given)
    if path.parts[:1] == ("~",) and env.get("HOME"):
        return Path(env["HOME"], *path.parts[1:])
    try:
        return path.expanduser()
    except RuntimeError as error:
        raise HomeError(f"cannot tell which folder {given} is: {error}") from error


class Home(Struct, frozen=True):
    """The folder of one profile. Nothing is created until `ensure`."""

    path: Path
    profile: str | None = None

    @classmethod
    def find(cls, env: Mapping[str, str], profile: str | None = None) -> Home:
        """Return the home of `profile`, or the one in HERMES_HOME, which may be a profile's."""
        path = default_home(env)
        is_profile = path.parent.name == PROFILES and PROFILE_NAME.fullmatch(path.name)
        named = cls(path, path.name if is_profile else None)
        if profile is None:
            return named
        if profile == DEFAULT:
            return cls(named.shared)
        if not PROFILE_NAME.fullmatch(profile):
            raise UsageError(
                f"'{profile}' cannot be a profile's name",
                hint="Use letters, digits, '-' and '_', at most 64, and start with a letter or digit",
            )
        return cls(named.shared / PROFILES / profile, profile)

    @classmethod
    def find_existing(cls, env: Mapping[str, str], profile: str | None) -> Home:
        """Return the home of `profile` like `find`. Raises NotFoundError, with similar names, for an unknown profile;
        the default home may be missing."""
        home = cls.find(env, profile)
        if profile is None or home.profile is None or home.path.is_dir():
            return home
        from difflib import get_close_matches

        near = get_close_matches(profile, [other.name for other in home.all()], n=2, cutoff=0.5)
        meant = f" (did you mean {' or '.join(near)}?)" if near else ""
        hint = f"`hermes profiles` lists them; `hermes profiles create {profile}` makes it"
        raise NotFoundError(f"there is no profile '{profile}'{meant}", hint=hint)

    @property
    def name(self) -> str:
        """The profile's name, or that of the default home."""
        return self.profile or DEFAULT

    def all(self) -> Iterator[Home]:
        """Yield the default home and every profile's home, including this one."""
        yield Home(self.shared)
        for folder in sorted((self.shared / PROFILES).glob("*")):
            if folder.is_dir() and PROFILE_NAME.fullmatch(folder.name):
                yield Home(folder, folder.name)

    @property
    def shared(self) -> Path:
        """The default home, which holds what all profiles share: `X` for `X/profiles/NAME`."""
        return self.path if self.profile is None else self.path.parents[1]

    @property
    def memory(self) -> Path:
        """The default folder of the memory server, which all profiles share."""
        return self.shared / MEMORY

    def old_memories(self, file: str) -> list[Path]:
        """Return memory folders of single profiles, as early versions made them, that contain `file`."""
        return sorted(path.parent for path in self.shared.glob(f"{PROFILES}/*/{MEMORY}/{file}"))

    @property
    def config_file(self) -> Path:
        return self.path / "config.yaml"

    @property
    def env_file(self) -> Path:
        return self.path / ".env"

    @property
    def state_file(self) -> Path:
        return self.path / "state.db"

    @property
    def soul_file(self) -> Path:
        """The agent's persona, written by the person."""
        return self.path / "SOUL.md"

    @property
    def plugins(self) -> Path:
        return self.path / "plugins"

    @property
    def log_file(self) -> Path:
        return self.path / "logs" / "agent.log"

    @property
    def tool_verdicts_file(self) -> Path:
        """Results of the tool test of each model."""
        return self.path / "model-tools.json"

    @property
    def chat_history_file(self) -> Path:
        """Input history of the prompt, for the arrow keys."""
        return self.path / "chat_history"

    @property
    def old_routes_file(self) -> Path:
        """Session key bindings of early versions."""
        return self.path / "sessions" / "sessions.json"

    def ensure(self) -> None:
        """Create the folder, private to this user, if it does not exist."""
        try:
            # Singly: `parents=True` would give the folders above a profile the system's default permissions.
            for folder in reversed([self.path, *takewhile(lambda above: not above.exists(), self.path.parents)]):
                folder.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise HomeError(f"cannot create the home folder {self.path}: {error.strerror}") from error
        if not os.access(self.path, os.R_OK | os.W_OK | os.X_OK):
            raise HomeError(f"no read/write permission for the home folder {self.path}")
