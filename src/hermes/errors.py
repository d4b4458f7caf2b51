"""Errors that people can meet, as one tree.

    HermesError                 one clear line and what to do next; the process ends with `exit_code`
    ├── UsageError              the command or request is not possible as given
    ├── SettingsError           config.yaml, .env or an environment variable has an invalid value
    ├── HomeError               the home folder cannot be created, read or written
    ├── NotFoundError           a session, message, route or setting with that name does not exist
    ├── NoteError               a built-in note cannot be changed as requested
    ├── ProviderError           a memory provider cannot be found, loaded or started
    ├── MemoryServerError       the memory server of this home cannot be reached, started or stopped
    ├── TransferError           a memory cannot be exported or imported, because of its file or the server
    ├── BackupError             a home cannot be backed up, or a file is no whole backup of one
    ├── ModelError              a model's endpoint cannot be reached, or does not respond as one
    ├── GatewayRunningError     a gateway runs already for this home
    ├── SessionBusyError        another process keeps using the session
    ├── StaleError              a lease or an epoch was lost to another owner; the result is refused
    └── StoreError              the database cannot be read or written
        ├── StoreBusyError      another process held the lock for longer than the timeout
        ├── StoreFullError      no space on the disk; nothing of the write was stored
        ├── StoreStoppedError   a read exceeded its time limit, or was abandoned
        ├── StoreReadOnlyError  no write permission for the file or its folder
        ├── StoreDamagedError   the file is not a database, or its content is inconsistent
        ├── StoreNewerError     the file was written by a newer version
        ├── StoreUnreachableError  the database server did not respond within the timeout
        ├── StoreGoneError      the file was deleted, moved or replaced while it was in use
        ├── StoreMovedError     the memory is moving to another database, or moved there, and takes no writes
        └── StoreEmbedderError  the vectors were made by another embedder than the one in use

An error's message says what happened and where; its `hint` says what to do. People see no traceback. A new error needs
a class here, whose docstring says when it is raised, and a line in this tree.
"""

from __future__ import annotations


class HermesError(Exception):
    """An error that is shown to people as one line."""

    exit_code = 1
    default_hint = ""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = self.default_hint if hint is None else hint

    def line(self) -> str:
        """Return the one line that people see."""
        text = self.message.rstrip(".")
        end = "" if text.endswith(("?", "!", "…")) else "."
        return f"{text}{end} {self.hint}" if self.hint else text


class UsageError(HermesError):
    """The command or request is not possible as given."""

    exit_code = 2


class SettingsError(HermesError):
    """config.yaml, .env or an environment variable has an invalid value."""

    exit_code = 2
    default_hint = "`hermes config list` shows every setting and its allowed values"


class HomeError(HermesError):
    """The home folder cannot be created, read or written."""

    default_hint = "Check its owner and permissions, or set HERMES_HOME to another folder"


class NotFoundError(HermesError):
    """A session, message, route or setting with that name does not exist."""


class TransferError(HermesError):
    """A memory cannot be exported or imported, because of its file or the server."""


class BackupError(HermesError):
    """A home cannot be backed up, or a file is not a complete backup."""


class ModelError(HermesError):
    """A model's endpoint cannot be reached, or does not respond as one."""


class GatewayRunningError(HermesError):
    """A gateway runs already for this home."""

    default_hint = "`hermes gateway status` shows it, `hermes gateway stop` ends it"


class SessionBusyError(HermesError):
    """Another process keeps using the session."""

    default_hint = "Wait for it, stop it there, or begin another session with `/new`"


class StaleError(HermesError):
    """A lease or an epoch was lost to another owner; the result is refused."""


class NoteError(HermesError):
    """A built-in note cannot be changed as requested."""


class ProviderError(HermesError):
    """A memory provider cannot be found, loaded or started."""

    default_hint = "Conversations continue without it; `memory.provider` selects another"


class MemoryServerError(HermesError):
    """The memory server of this home cannot be reached, started or stopped."""

    default_hint = "`hermes memory status` shows details"


class StoreError(HermesError):
    """The database cannot be read or written."""

    default_hint = "`hermes doctor` examines it"


class StoreBusyError(StoreError):
    """Another process held the lock for longer than the timeout."""

    default_hint = (
        "Try again; if it persists, look for a process that holds the file (`store.lock_timeout` is the timeout)"
    )


class StoreFullError(StoreError):
    """No space on the disk; nothing of the write was stored."""

    default_hint = "Free some space and try again; what was saved before is untouched"


class StoreStoppedError(StoreError):
    """A read exceeded its time limit, or was abandoned."""

    default_hint = "Request less at once"


class StoreReadOnlyError(StoreError):
    """No write permission for the file or its folder."""

    default_hint = "Check the owner and permissions of the file and its folder"


class StoreDamagedError(StoreError):
    """The file is not a database, or its content is inconsistent."""

    default_hint = "Nothing was changed. Move the file away or restore a backup of it"


class StoreUnreachableError(StoreError):
    """The database server did not respond within the timeout."""

    default_hint = "Check that PostgreSQL runs and that the address is right"


class StoreGoneError(StoreError):
    """The file was deleted, moved or replaced while it was in use; later writes are lost."""

    default_hint = "Restore the file if you need it, then start again; messages since then were not stored"


class StoreMovedError(StoreError):
    """The memory is moving to another database with `hermes memory migrate`, or moved there, and takes no writes."""

    default_hint = "`hermes memory migrate` with the same FROM and TO continues; --undo allows writes again"


class StoreNewerError(StoreError):
    """The file was written by a newer version."""

    default_hint = "Upgrade hermes; nothing was changed"


class StoreEmbedderError(StoreError):
    """The vectors were made by another embedder than the one in use."""

    default_hint = "Use the embedder that it was written with, or another folder; nothing was changed"
