"""Configurations for tests, each in a separate home and user folder."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hermes.honcho.config_file import ConfigPlaces
from hermes.honcho.configuration import HonchoConfiguration, load


@dataclass
class Machine:
    """A user's folder with a default home and profiles."""

    folder: Path
    env: dict[str, str] = field(default_factory=dict)

    @property
    def home(self) -> Path:
        return self.folder / ".hermes"

    def profile(self, name: str | None) -> Path:
        return self.home if name is None else self.home / "profiles" / name

    def places(self, profile: str | None = None, host: str = "") -> ConfigPlaces:
        env = {"HOME": str(self.folder), "LOGNAME": "ann", "HERMES_HONCHO_HOST": host, **self.env}
        return ConfigPlaces.find(self.profile(profile), profile, env)

    def load(self, profile: str | None = None, host: str = "") -> HonchoConfiguration:
        env = {"HOME": str(self.folder), "LOGNAME": "ann", **self.env}
        return load(self.places(profile, host), env)

    def write(self, value: Mapping[str, Any] | str, path: Path | None = None) -> Path:
        target = path or self.home / "honcho.json"
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(value if isinstance(value, str) else json.dumps(value), encoding="utf-8")
        return target

    def read(self, path: Path | None = None) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((path or self.home / "honcho.json").read_text(encoding="utf-8"))
        return found
