"""honcho-projects.json: chats of one gateway stored in separate workspaces.

    {"projects": {"<workspace>": {"sessions": {"<end of a gateway key's name>": "<session>"}}}}

The longest end that matches a chat's key on whole segments wins. The file is in the folder of the honcho.json in
force, or where that would be created.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec
from msgspec import Struct, field

from hermes.errors import SettingsError
from hermes.files import read_file
from hermes.honcho.names import clean, fit

FILE = "honcho-projects.json"
MAX_FILE_BYTES = 1024 * 1024


class Project(Struct, frozen=True):
    """The workspace of a chat, and its session's name there."""

    workspace: str
    session: str


class Projects(Struct, frozen=True):
    """Projects by the end of a gateway key's plain name."""

    chats: Mapping[str, Project] = field(default_factory=dict)

    def find(self, gateway_key: str | None) -> Project | None:
        """Return the project of a gateway key; None if the chat belongs to the configured workspace."""
        name = clean(gateway_key or "")
        ends = [end for end in self.chats if name == end or name.endswith(f"-{end}")]
        return self.chats[max(ends, key=len)] if ends else None

    @property
    def workspaces(self) -> Mapping[str, int]:
        """Return the workspaces, each with its number of chats."""
        names = [project.workspace for project in self.chats.values()]
        return {name: names.count(name) for name in sorted(set(names))}


NO_PROJECTS = Projects()


# Both names are required: a misspelt one would put chats into the wrong workspace without a word.
class _ProjectChats(Struct):
    sessions: dict[str, str]


class _ProjectsFile(Struct):
    projects: dict[str, _ProjectChats]


def read_projects(path: Path) -> Projects:
    """Read the file; a missing one is empty. Raises SettingsError for an invalid file: a partly read one would store
    chats in the wrong workspace."""
    try:
        raw = read_file(path, MAX_FILE_BYTES)
        document = msgspec.json.decode(raw, type=_ProjectsFile)
    except (FileNotFoundError, NotADirectoryError):
        return NO_PROJECTS
    except OSError as error:
        raise SettingsError(f"cannot read {path}: {error.strerror}", hint="Check its owner and permissions") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path} is invalid: {error}", hint="Correct it, or remove it") from error
    chats: dict[str, Project] = {}
    for workspace, given in document.projects.items():
        for end, session in given.sessions.items():
            _add(chats, path, end, Project(fit(workspace), fit(session)))
    return Projects(chats)


def _add(chats: dict[str, Project], path: Path, end: str, project: Project) -> None:
    key = clean(end)
    if not key or not project.workspace or not project.session:
        what = "a chat, a workspace and a session need letters, digits, `-` or `_`"
        raise SettingsError(f"{path}: {what} ({end!r})", hint="Correct it, or remove it")
    if chats.setdefault(key, project) != project:
        both = f"{chats[key].workspace}/{chats[key].session} and {project.workspace}/{project.session}"
        raise SettingsError(f"{path}: {end!r} is kept both in {both}", hint="Leave one of them out")
