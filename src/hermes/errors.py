"""Every error a person can meet, as one tree.

    HermesError                 one clear line and what to do next; the process ends with `exit_code`
    ├── UsageError              what was asked for cannot be done that way
    ├── SettingsError           config.yaml, .env or a variable holds something that is not allowed
    ├── HomeError               the home folder cannot be made, read or written
    ├── NotFoundError           a session, message, route or setting by that name does not exist
    ├── NoteError               a built-in note cannot be changed that way
    ├── ProviderError           a memory provider cannot be found, loaded or started
    ├── MemoryServerError       the memory server of this home cannot be reached, started or ended
    ├── TransferError           a memory cannot be exported or imported: its file, or the server
    ├── ModelError              a model's endpoint cannot be reached, or does not answer as one
    ├── GatewayRunningError     a gateway is running for the same home
    ├── SessionBusyError        another process is talking in the same session
    ├── StaleError              a lease or an epoch was lost to another owner; the result is refused
    └── StoreError              the database
        ├── StoreBusyError      another process held the lock for longer than we wait
        ├── StoreFullError      no room on the disk; nothing of the write was kept
        ├── StoreStoppedError   a read took longer than it may, or nobody waited for it any more
        ├── StoreReadOnlyError  the file or its folder may not be written
        ├── StoreDamagedError   not a database, or one whose pages do not fit together
        ├── StoreNewerError     written by a newer version than this one
        ├── StoreUnreachableError  the server of the database did not answer for longer than we wait
        ├── StoreGoneError      deleted, moved or replaced while it was in use
        ├── StoreMovedError     a memory that is carried to another database, or was, and takes no writes
        └── StoreEmbedderError  its vectors were made by another embedder than the one in use

An error's message names what and where; its `hint` says what to do. Errors carry no traceback to a person. A new one is
a class here, whose docstring says when it happens, and its line in this tree.
"""

from __future__ import annotations


class HermesError(Exception):
    """Something a person should read as one line."""

    exit_code = 1
    default_hint = ""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = self.default_hint if hint is None else hint

    def line(self) -> str:
        """The one line that a person reads."""
        text = self.message.rstrip(".")
        end = "" if text.endswith(("?", "!", "…")) else "."
        return f"{text}{end} {self.hint}" if self.hint else text


class UsageError(HermesError):
    """What was asked for cannot be done that way."""

    exit_code = 2


class SettingsError(HermesError):
    """config.yaml, .env or a variable holds something that is not allowed."""

    exit_code = 2
    default_hint = "`hermes config list` shows every setting and what it takes"


class HomeError(HermesError):
    """The home folder cannot be made, read or written."""

    default_hint = "Check its owner and permissions, or set HERMES_HOME to another folder"


class NotFoundError(HermesError):
    """A session, message, route or setting by that name does not exist."""


class TransferError(HermesError):
    """A memory cannot be exported or imported: its file, or the server."""


class ModelError(HermesError):
    """A model's endpoint cannot be reached, or does not answer as one."""


class GatewayRunningError(HermesError):
    """A gateway is running for the same home."""

    default_hint = "`hermes gateway status` shows it, `hermes gateway stop` ends it"


class SessionBusyError(HermesError):
    """Another process is talking in the same session and does not come to an end."""

    default_hint = "Wait for it, stop it there, or begin another session with `/new`"


class StaleError(HermesError):
    """A lease or an epoch was lost to another owner; the result is refused."""


class NoteError(HermesError):
    """A built-in note cannot be changed that way."""


class ProviderError(HermesError):
    """A memory provider cannot be found, loaded or started."""

    default_hint = "Conversations go on without it; `memory.provider` chooses another"


class MemoryServerError(HermesError):
    """The memory server of this home cannot be reached, started or ended."""

    default_hint = "`hermes memory status` says more"


class StoreError(HermesError):
    """The database file."""

    default_hint = "`hermes doctor` looks closer"


class StoreBusyError(StoreError):
    """Another process held the lock for longer than we wait."""

    default_hint = (
        "Try again; if it stays, look for a process that holds the file (`store.lock_timeout` is how long we wait)"
    )


class StoreFullError(StoreError):
    """No room on the disk; nothing of the write was kept."""

    default_hint = "Free some space and try again; what was saved before is untouched"


class StoreStoppedError(StoreError):
    """A read took longer than it may, or nobody waited for it any more."""

    default_hint = "Ask for less"


class StoreReadOnlyError(StoreError):
    """The file or its folder may not be written."""

    default_hint = "Check the owner and permissions of the file and its folder"


class StoreDamagedError(StoreError):
    """Not a database, or one whose pages do not fit together."""

    default_hint = "Nothing was changed. Move the file away or restore a backup of it"


class StoreUnreachableError(StoreError):
    """The server of the database did not answer for longer than we wait."""

    default_hint = "Check that PostgreSQL runs and that the address is right"


class StoreGoneError(StoreError):
    """Deleted, moved or replaced while it was in use: what was written since is nowhere."""

    default_hint = "Bring it back or leave it so, then start again; what was said since is not kept"


class StoreMovedError(StoreError):
    """A memory that `hermes memory migrate` carries to another database, or has carried there: it takes no writes."""

    default_hint = "`hermes memory migrate` with the same FROM and TO goes on; with --undo it takes writes again"


class StoreNewerError(StoreError):
    """Written by a newer version than this one."""

    default_hint = "Upgrade hermes; nothing was changed"


class StoreEmbedderError(StoreError):
    """Its vectors were made by another embedder than the one in use."""

    default_hint = "Use the embedder that it was written with, or another folder; nothing was changed"
