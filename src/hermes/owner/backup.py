"""A backup of a home: one zip file with all its files, a sound copy of each database, and a manifest of checksums.

    home · memory folder · files of providers ──> archive ── read back whole ──> given its name

Nothing has to be stopped: SQLite copies each database as it is at one moment.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import tempfile
import time
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import IO

import msgspec
from msgspec import Struct, field

from hermes import __version__
from hermes.app import App
from hermes.audit.repair import UNFINISHED, check_sound, copy_into, open_copy
from hermes.config_file import load_shared_env
from hermes.embedded.rendezvous import find_place, try_lock
from hermes.errors import BackupError, HermesError, StoreError, UsageError
from hermes.files import FREE_SPACE, NO_ROOM, check_file
from hermes.home import Home
from hermes.memory.plugin_host import CommandHost, make_plugin
from hermes.memory.registry import NONE
from hermes.settings import PROVIDER
from hermes.store.health import open_unchanged

SHARED_MEMORY = "the memory that all profiles share: `hermes -p default backup` saves it"
FORMAT_VERSION = 1
MANIFEST = "hermes-backup.json"
HOME, MEMORY, OUTSIDE = "home", "memory", "outside"
"""The folders of an archive: the home, the memory folder, and a provider's files that are in neither."""
WORKSHOP, HELD = ".hermes-unfinished-", "held"
"""Prefix of work folders, and the name of the lock file in them."""
SQLITE = b"SQLite format 3\0"
LEFT_OUT_ENDS = (".lock", "-wal", "-shm", "-journal", UNFINISHED)
LEFT_OUT_STARTS = ("state.db.backup-", ".outline-", WORKSHOP, "server.json")
"""Files that are not backed up: locks, database logs, older backups, and state of the running memory server."""
COUNTED = {"state.db": ("sessions", "messages"), "memory.db": ("peers", "messages", "conclusions")}
"""Tables whose rows are counted, by database name."""
MAX_FILES = 200_000
MAX_MANIFEST_BYTES = 64 * 1024 * 1024
MAX_NAME_CHARS = 1000
UNSAFE = set('\\:*?"<>|' if os.name == "nt" else "\\")
CHUNK_BYTES = 1024 * 1024
BACKUP_LOCK_TIMEOUT_SECONDS = 5.0
NOT_OURS = "Only a file that `hermes backup` wrote can be restored"
BackupProgress = Callable[[int, str], None]
"""Receives the number of bytes done and the current file."""


class SavedFile(Struct, frozen=True):
    """A file of an archive. `rows` counts a database's tables."""

    name: str
    bytes: int
    sha256: str
    is_executable: bool = False
    rows: dict[str, int] = {}


class Manifest(Struct, frozen=True):
    """The contents of an archive and the home they came from. `outside` maps files of neither folder to their paths."""

    hermes_backup: int
    version: str
    made_at: float
    home: str
    profile: str | None
    files: list[SavedFile]
    skipped: list[str] = field(default_factory=list)
    outside: dict[str, str] = field(default_factory=dict)

    @property
    def total_bytes(self) -> int:
        return sum(one.bytes for one in self.files)

    def count_rows(self, database: str) -> dict[str, int]:
        """Return the total row counts of all databases with this name."""
        held = [one.rows for one in self.files if PurePosixPath(one.name).name == database and one.rows]
        return {table: sum(rows.get(table, 0) for rows in held) for table in (held[0] if held else ())}


class BackupSource(Struct, frozen=True):
    """A file to save, and its name in the archive."""

    path: Path
    name: str


def make_backup(app: App, target: Path, *, replace: bool, progress: BackupProgress) -> tuple[Path, Manifest]:
    """Write a backup of the home to `target`, mode 0600. The file gets its name after the archive was read back and
    verified. Raises BackupError or UsageError and leaves nothing behind."""
    target = _check_target(app.home, target, replace=replace)
    try:
        with make_workshop(target.parent) as folder:
            archive = folder / target.name
            made = _write_archive(app, archive, folder, progress)
            read_archive(archive, None, progress)
            _sync(archive)
            if not replace and target.exists():
                raise _is_there(target)
            archive.replace(target)
    except OSError as error:
        hint = FREE_SPACE if error.errno in NO_ROOM else "Name another file: `hermes backup FILE`"
        raise BackupError(f"cannot write the backup {target}: {error.strerror or error}", hint=hint) from error
    return target, made


def _check_target(home: Home, target: Path, *, replace: bool) -> Path:
    """Return the file to write: `target`, or a new name in it if it is a folder."""
    target = target.expanduser().absolute()
    if target.is_dir():
        target /= f"hermes-backup-{home.name}-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}.zip"
    if target.resolve().is_relative_to(home.path.resolve()):
        raise UsageError(f"{target} is inside the home", hint="Name a file elsewhere: `hermes backup FILE`")
    if target.exists() and not (replace and target.is_file()):
        raise _is_there(target)
    return target


def _is_there(target: Path) -> UsageError:
    return UsageError(f"{target} is there already", hint="`--force` replaces it")


@contextmanager
def make_workshop(parent: Path) -> Iterator[Path]:
    """Yield a private work folder and remove it at the end. Work folders of killed processes are removed first."""
    for left in parent.glob(f"{WORKSHOP}*"):
        with suppress(HermesError, OSError):
            if (left / f"{HELD}.lock").exists():
                with try_lock(left / HELD) as is_free:
                    if is_free:
                        shutil.rmtree(left, ignore_errors=True)
    folder = Path(tempfile.mkdtemp(prefix=WORKSHOP, dir=parent))
    try:
        with try_lock(folder / HELD):
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _write_archive(app: App, archive: Path, folder: Path, progress: BackupProgress) -> Manifest:
    skipped: list[str] = []
    files: list[SavedFile] = []
    outside: dict[str, str] = {}
    done = 0
    handle = os.open(archive, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
    with os.fdopen(handle, "w+b") as raw, zipfile.ZipFile(raw, "w", zipfile.ZIP_DEFLATED, compresslevel=3) as zipped:
        for source in _find_sources(app, skipped):
            if not is_safe(source.name):
                skipped.append(f"{source.path}: its name cannot stand in an archive")
                continue
            progress(done, source.name)
            try:
                saved = _save(zipped, source, folder)
            except FileNotFoundError:  # it was there a moment ago: a file that somebody replaced
                continue
            if source.name.startswith(f"{OUTSIDE}/"):
                outside[source.name] = str(source.path)
            files.append(saved)
            done += saved.bytes
        if len(files) > MAX_FILES:
            raise BackupError(f"{app.home.path} has {len(files):,} files, and a backup at most {MAX_FILES:,}")
        now, home = app.clock.now(), app.home
        made = Manifest(FORMAT_VERSION, __version__, now, str(home.path), home.profile, files, skipped, outside)
        zipped.writestr(MANIFEST, msgspec.json.format(msgspec.json.encode(made), indent=1))
    return made


def _find_sources(app: App, skipped: list[str]) -> Iterator[BackupSource]:
    """Yield every file of the home, then of the memory folder, then of providers. The home comes first: an entry that
    its outbox marks as delivered must be in the copy of the memory; a second delivery is ignored."""
    home, env = app.home, load_shared_env(app.home)
    place = find_place(home, env)
    yield from _walk(home.path, HOME, (place.folder,), skipped)
    covered = [home.path]
    if home.profile is None:
        yield from _walk(place.folder, MEMORY, (), skipped)
        covered.append(place.folder)
        if env.get("HERMES_MEMORY_DATABASE"):
            skipped.append("the memory in PostgreSQL (HERMES_MEMORY_DATABASE): `pg_dump` saves it")
    elif place.folder.exists():
        skipped.append(SHARED_MEMORY)
    for number, path in enumerate(_provider_paths(app, skipped)):
        if path.is_file() and not any(path.resolve().is_relative_to(one.resolve()) for one in covered):
            yield BackupSource(path, f"{OUTSIDE}/{number}/{path.name}")


def _walk(top: Path, part: str, without: Sequence[Path], skipped: list[str]) -> Iterator[BackupSource]:
    """Yield the files of a folder. Links to files are followed; other links, pipes and sockets are skipped."""
    for folder, names, files in os.walk(top, onerror=_refuse):
        here = Path(folder)
        for name in list(names):
            if here / name in without or name.startswith(WORKSHOP):
                names.remove(name)
            elif (here / name).is_symlink():
                skipped.append(f"{here / name}: a link to a folder")
        for name in sorted(files):
            path = here / name
            if name.endswith(LEFT_OUT_ENDS) or name.startswith(LEFT_OUT_STARTS):
                continue
            if path.is_file():
                yield BackupSource(path, f"{part}/{path.relative_to(top).as_posix()}")
            else:
                skipped.append(f"{path}: {'a link that leads nowhere' if path.is_symlink() else 'no file'}")


def _refuse(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise BackupError(f"cannot read {error.filename}: {error.strerror}", hint="Check its owner and permissions")


def _provider_paths(app: App, skipped: list[str]) -> Iterator[Path]:
    """Return the `backup_paths` of the providers of all saved profiles, each path once."""
    seen = set[Path]()
    for home in app.home.all() if app.home.profile is None else [app.home]:
        try:
            one = App.load(home.name)
            name = one.settings.get(PROVIDER)
            if name == NONE:
                continue
            host = CommandHost(one.home.path, one.home.profile, one.env, one.clock, lambda _: None, True)
            paths = make_plugin(name, one.home.plugins, host).backup_paths()
        except HermesError as error:
            skipped.append(f"what the provider of profile {home.name} wants saved: {error.line()}")
            continue
        yield from (path for path in paths if path not in seen)
        seen.update(paths)


def _save(zipped: zipfile.ZipFile, source: BackupSource, folder: Path) -> SavedFile:
    """Add one file to the archive; a database is added as a consistent copy."""
    with source.path.open("rb") as file:
        is_database = file.read(len(SQLITE)) == SQLITE
        if not is_database:
            file.seek(0)
            mode = os.fstat(file.fileno()).st_mode
            return _put(zipped, source.name, file, is_executable=bool(mode & stat.S_IXUSR))
    copy = folder / "copy.db"
    try:
        with open_unchanged(source.path, lock_timeout=BACKUP_LOCK_TIMEOUT_SECONDS) as tx:
            tx.execute("ROLLBACK")  # the copy takes a snapshot of its own
            copy_into(tx, copy)
        check_sound(copy)
    except StoreError as error:
        text = error.message.replace(str(copy), str(source.path))
        raise BackupError(f"{source.path} cannot be saved: {text}", hint="`hermes doctor` looks closer") from error
    with copy.open("rb") as file:
        saved = _put(zipped, source.name, file)
    rows = count_rows(copy, source.path.name)
    copy.unlink()
    return msgspec.structs.replace(saved, rows=rows)


def _put(zipped: zipfile.ZipFile, name: str, file: IO[bytes], *, is_executable: bool = False) -> SavedFile:
    digest, size = hashlib.sha256(), 0
    with zipped.open(name, "w", force_zip64=True) as entry:
        while chunk := file.read(CHUNK_BYTES):
            digest.update(chunk)
            size += len(chunk)
            entry.write(chunk)
    return SavedFile(name, size, digest.hexdigest(), is_executable)


def count_rows(copy: Path, database: str) -> dict[str, int]:
    """Count the rows of the main tables of a database copy; empty for a foreign database."""
    with closing(open_copy(copy)) as tx:
        there = {str(row[0]) for row in tx.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        tables = [table for table in COUNTED.get(database, ()) if table in there]
        return {table: int(tx.execute(f"SELECT count(*) FROM {table}").fetchone()[0]) for table in tables}


def is_safe(name: str) -> bool:
    """Return True if the name stays below one of the archive folders on every operating system."""
    parts = name.split("/")
    is_plain = name.isprintable() and not UNSAFE & set(name) and len(name) <= MAX_NAME_CHARS
    return is_plain and len(parts) > 1 and parts[0] in (HOME, MEMORY, OUTSIDE) and not {"", ".", ".."} & set(parts)


def read_manifest(path: Path) -> Manifest:
    """Read the manifest of an archive. Raises BackupError for a file that `hermes backup` did not write."""
    with _opened(path) as zipped:
        return _manifest_of(zipped, path)


def read_archive(path: Path, into: Path | None, progress: BackupProgress) -> Manifest:
    """Read the whole archive and compare it with the manifest; with `into`, also extract the files there. Raises
    BackupError for a damaged archive."""
    done = 0
    with _opened(path) as zipped:
        found = _manifest_of(zipped, path)
        for one in found.files:
            progress(done, one.name)
            _take(zipped, one, path, None if into is None else into / one.name)
            done += one.bytes
    return found


@contextmanager
def _opened(path: Path) -> Iterator[zipfile.ZipFile]:
    try:
        check_file(path)
        raw = path.open("rb")
    except OSError as error:
        raise BackupError(f"cannot read {path}: {error.strerror}", hint=NOT_OURS) from error
    try:
        with raw, zipfile.ZipFile(raw) as zipped:
            yield zipped
    except (zipfile.BadZipFile, RuntimeError, EOFError, zlib.error) as error:
        raise BackupError(f"{path} is no whole backup: {str(error) or 'it ends too early'}", hint=NOT_OURS) from error


def _manifest_of(zipped: zipfile.ZipFile, path: Path) -> Manifest:
    names = zipped.namelist()
    if MANIFEST not in names:
        raise BackupError(f"{path} is no backup of hermes: it has no {MANIFEST}", hint=NOT_OURS)
    with zipped.open(MANIFEST) as entry:
        raw = entry.read(MAX_MANIFEST_BYTES + 1)
    try:
        if len(raw) > MAX_MANIFEST_BYTES:
            raise msgspec.ValidationError(f"more than {MAX_MANIFEST_BYTES:,} bytes")
        found = msgspec.json.decode(raw, type=Manifest)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BackupError(f"{path}: {MANIFEST} cannot be read: {error}", hint=NOT_OURS) from error
    if found.hermes_backup != FORMAT_VERSION:
        made_by = f"version {found.version} of hermes"
        raise BackupError(f"{path} has format {found.hermes_backup}, by {made_by}", hint="Restore it with that version")
    listed = [one.name for one in found.files]
    if bad := next((name for name in listed if not is_safe(name)), None):
        raise BackupError(f"{path} names a file outside of a home: {bad[:80]!r}", hint=NOT_OURS)
    if len(listed) > MAX_FILES or sorted([*listed, MANIFEST]) != sorted(names):
        raise BackupError(f"{path} holds other files than its manifest lists", hint=NOT_OURS)
    return found


def _take(zipped: zipfile.ZipFile, one: SavedFile, path: Path, target: Path | None) -> None:
    """Extract one file to `target`, reading at most the size in the manifest."""
    digest, left = hashlib.sha256(), one.bytes
    with zipped.open(one.name) as entry, _written(target, is_executable=one.is_executable) as file:
        while chunk := entry.read(min(CHUNK_BYTES, left + 1)):
            left -= len(chunk)
            if left < 0:
                break
            digest.update(chunk)
            file.write(chunk)
    if left or digest.hexdigest() != one.sha256:
        raise BackupError(f"{path} is damaged: {one.name} is not what was saved", hint="Take another backup")


@contextmanager
def _written(target: Path | None, *, is_executable: bool) -> Iterator[IO[bytes]]:
    """Open a new file with mode 0600 that is synced to disk at the end; without `target`, discard the data."""
    if target is None:
        with open(os.devnull, "wb") as nowhere:  # noqa: PTH123 - the device has no path to open on Windows
            yield nowhere
        return
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle = os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o700 if is_executable else 0o600)
    with os.fdopen(handle, "wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())


def _sync(path: Path) -> None:
    with path.open("rb+") as file:
        os.fsync(file.fileno())
