"""Checks an installation and reports problems with their fixes. It changes nothing.

A new check is a function that yields `Finding`s, and a line in `examine`. A finding that programs should recognise has
a `code`, which docs/repair.md explains.
"""

from __future__ import annotations

import os
import platform
import shutil
import sqlite3
import stat
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Literal, TypeVar

from hermes import __version__
from hermes.agent.prompt import read_persona
from hermes.audit.audit import StoreAudit, audit_store
from hermes.audit.log import LogAudit, audit_log
from hermes.clock import Clock
from hermes.config_file import LED_NOWHERE, load_env, read_entries
from hermes.configuration import MAX_LISTED_KEYS, ForeignSetting, configure, name_foreign, read_configuration
from hermes.db.engine import Tx
from hermes.db.queue import FAILED
from hermes.errors import HermesError, SettingsError
from hermes.files import check_room
from hermes.home import Home
from hermes.memory.notes import FILES, Notes
from hermes.memory.plugin_host import CommandHost, acquaintances, invited, look_over
from hermes.memory.registry import NONE, provider_names
from hermes.scope import OWNER
from hermes.settings import ALLOW, MEMORY_LIMIT, PROVIDER, TABLE, USER_LIMIT
from hermes.store.health import StoreHealth, Undecodable, inspect, lend_tables, open_unchanged
from hermes.store.memory_rows import get_health
from hermes.store.people import describe_unmarked, find_unmarked
from hermes.store.reviews import MAX_ATTEMPTS, given_up

T = TypeVar("T")
Level = Literal["ok", "warn", "fail"]
LOW_SPACE_BYTES = 200 * 1024 * 1024
MAX_NAMED_ROWS = 10
"""Maximum number of rows named in one finding."""
MARK_HINT = "`hermes gateway people` lists them; --me PLATFORM:ID and --guest PLATFORM:ID mark them"
LOCK_TIMEOUT_SECONDS = 5.0
"""Fixed, since the doctor must work with broken settings too."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Result of one check. `code` identifies a problem for programs; `remedy` describes what a repair would do."""

    check: str
    level: Level
    detail: str
    fix: str = ""
    code: str = ""
    sessions: tuple[str, ...] = ()
    remedy: str = ""


def examine(home: Home, clock: Clock) -> Iterator[Finding]:
    """Run every check in turn; a failed check does not stop the others."""
    versions = f"Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}"
    yield Finding("version", "ok", f"hermes {__version__}, {versions}")
    log = audit_log(home.log_file)
    checks: tuple[tuple[str, Callable[[], Iterator[Finding]]], ...] = (
        ("home", lambda: _check_home(home)),
        ("home", lambda: _check_links(home)),
        ("settings", lambda: _check_settings(home)),
        ("memory", lambda: _check_provider(home, clock)),
        ("notes", lambda: _check_notes(home)),
        ("log", lambda: _check_log(log)),
        ("store", lambda: _check_store(home, clock, log)),
        ("people", lambda: _check_people(home)),
        ("reviews", lambda: _check_reviews(home)),
    )
    for name, check in checks:
        try:
            yield from check()
        except HermesError as error:
            yield Finding(name, "fail", error.message, error.hint)


def _check_home(home: Home) -> Iterator[Finding]:
    if not home.path.exists():
        yield Finding("home", "ok", f"{home.path} does not exist yet; it is created when first needed")
        return
    if not os.access(home.path, os.R_OK | os.W_OK | os.X_OK):
        yield Finding("home", "fail", f"no read/write permission for {home.path}", "Check its owner")
        return
    try:
        check_room(home.path)
    except OSError as error:
        yield Finding("home", "fail", f"{home.path}: nothing can be written ({error.strerror})", "Free some space")
        return
    free = shutil.disk_usage(home.path).free
    space = f"{free / 1e9:.1f} GB free"
    if free < LOW_SPACE_BYTES:
        yield Finding("home", "warn", f"{home.path}: only {space}", "Free some space")
    else:
        yield Finding("home", "ok", f"{home.path}, {space}")


def _check_links(home: Home) -> Iterator[Finding]:
    """Yield broken links, which otherwise look like missing files and are silently ignored."""
    notes = _notes(home)
    for path in (home.state_file, home.config_file, home.env_file, home.soul_file, *map(notes.path, FILES)):
        if path.is_symlink() and not path.exists():
            detail = f"{path} is a link to {path.readlink()}, which does not exist"
            yield Finding("home", "fail", detail, LED_NOWHERE)


def _check_provider(home: Home, clock: Clock) -> Iterator[Finding]:
    """Check that the chosen provider exists and is configured, and pass on its warnings."""
    try:
        settings = read_configuration(home).settings
    except SettingsError:
        return  # reported by the check of the settings
    name = settings.get(PROVIDER)
    if name == NONE:
        return
    if name not in (known := provider_names(home.plugins)):
        detail = f"memory.provider is '{name}', but there is no such provider; known: {', '.join(known)}"
        yield Finding("memory", "fail", detail, "`hermes config set memory.provider NAME` chooses one")
        return
    troubles: list[str] = []
    host = CommandHost(home.path, home.profile, load_env(home), clock, troubles.append, settings.is_given(PROVIDER))
    allowed = settings.get(ALLOW)
    people = _read(home, lambda tx: acquaintances(tx, allowed)) if home.state_file.exists() else invited(allowed)
    found = look_over(name, home.plugins, host, people)
    choice = "chosen" if host.is_chosen else "there by default"
    if found.is_configured:
        yield Finding("memory", "ok", f"{name} is {choice} and configured")
    else:
        yield Finding("memory", "fail", f"{name} is {choice} but not configured", f"`hermes memory setup {name}`")
    for line in (*troubles, *found.remarks):
        yield Finding("memory", "warn", line)
    if home.state_file.exists():
        yield from _check_deliveries(home, name)


def _check_deliveries(home: Home, provider: str) -> Iterator[Finding]:
    """Check that deliveries to the provider arrive."""
    health = _read(home, lambda tx: get_health(tx, provider))
    if health.failing_since is not None:
        since = datetime.fromtimestamp(health.failing_since).strftime("%Y-%m-%d %H:%M")
        detail = f"deliveries to {provider} have failed since {since}: {health.last_error}"
        yield Finding("memory", "fail", detail, "`hermes memory status` shows details")


def _read(home: Home, look: Callable[[Tx], T]) -> T:
    """Return the result of `look` on the store, without creating or changing anything."""
    with open_unchanged(home.state_file, lock_timeout=LOCK_TIMEOUT_SECONDS) as tx:
        lend_tables(tx)
        return look(tx)


def _check_notes(home: Home) -> Iterator[Finding]:
    for problem in _notes(home).read_all().problems:
        yield Finding("notes", "fail", problem.message, problem.hint)
    if persona := read_persona(home.soul_file):
        yield Finding("persona", "ok", f"{home.soul_file}, {len(persona):,} characters")


def _notes(home: Home) -> Notes:
    return Notes(home.path, OWNER, {"memory": MEMORY_LIMIT.default, "user": USER_LIMIT.default})


def _check_settings(home: Home) -> Iterator[Finding]:
    entries = read_entries(home.config_file)
    configuration = configure(entries, load_env(home))
    for problem in configuration.problems:
        yield Finding("settings", "fail", problem.message, problem.hint)
    if not configuration.problems:
        there = "" if home.config_file.exists() else " (does not exist; defaults are in force)"
        yield Finding("settings", "ok", f"{home.config_file}{there}")
    yield from _check_foreign(home, configuration.foreign)
    secrets = {key for setting in TABLE if setting.secret for key in setting.keys}
    holds_secrets = any(entry.key in secrets for entry in entries)
    for path in (home.env_file, home.state_file, *([home.config_file] if holds_secrets else [])):
        if _others_can_read(path):
            yield Finding("settings", "warn", f"{path} can be read by other users", f"chmod 600 {path}")


def _check_foreign(home: Home, foreign: Sequence[ForeignSetting]) -> Iterator[Finding]:
    """Report foreign keys. They are fine, except one that is very similar to ours, which is probably a typo."""
    for slip in (one for one in foreign if one.meant):
        yield Finding(
            "settings", "warn", f"{slip.where}: {slip}", "It is ignored; correct its name if it is meant for hermes"
        )
    if rest := [one for one in foreign if not one.meant]:
        yield Finding("settings", "ok", f"{home.config_file}: {name_foreign(rest, MAX_LISTED_KEYS)}")


def _check_log(log: LogAudit) -> Iterator[Finding]:
    for line in log.unreadable:
        yield Finding("log", "warn", f"cannot read {line}", "Check its owner; the audit continues without it")
    for anomaly in log.anomalies:
        level: Level = "fail" if anomaly.ours else "warn"
        fix = "This is a defect of this version: report it" if anomaly.ours else "An older version did this"
        yield Finding("log", level, anomaly.detail, fix, anomaly.code, anomaly.sessions)
    if log.unfinished:
        yield Finding(
            "log", "ok", f"{len(log.unfinished)} compressions have no end in the log: given up, interrupted, or running"
        )
    if (ended := len(log.operations) - len(log.unfinished)) and not log.anomalies:
        yield Finding("log", "ok", f"{ended} compressions, each in its own session")


def _check_store(home: Home, clock: Clock, log: LogAudit) -> Iterator[Finding]:
    path = home.state_file
    if path.is_symlink() and not path.exists():
        return  # reported by the check of the home
    if not path.exists():
        yield Finding("store", "ok", f"{path} does not exist yet; it is created with the first session")
        return
    health = inspect(path, lock_timeout=LOCK_TIMEOUT_SECONDS, now=clock.now())
    for line in health.damage:
        yield Finding("store", "fail", f"{path}: {line}", "Restore a backup; do not write to this file")
    if health.version > health.known_version:
        yield Finding("store", "fail", f"{path} has version {health.version}, newer than this hermes", "Upgrade hermes")
    if not health.damage:
        yield Finding("store", "ok", f"{path}: intact, {health.sessions} sessions, {health.messages} messages")
    yield from _check_contents(health)
    if not health.damage and health.version <= health.known_version:
        yield from _check_conversations(audit_store(home, log, lock_timeout=LOCK_TIMEOUT_SECONDS))


def _check_people(home: Home) -> Iterator[Finding]:
    """Report people who were allowed but not marked. They count as guests, and the owner may be among them."""
    if not home.state_file.exists():
        return
    allowed = read_configuration(home).settings.get(ALLOW)
    if unmarked := _read(home, lambda tx: find_unmarked(tx, allowed)):
        yield Finding("people", "warn", describe_unmarked(unmarked), MARK_HINT, "unmarked-people")


def _check_reviews(home: Home) -> Iterator[Finding]:
    """Report sessions without notes because their background review failed too often."""
    if not home.state_file.exists():
        return
    if sessions := _read(home, given_up):
        detail = f"the background review failed {MAX_ATTEMPTS} times; sessions that wait for a new message: {sessions}"
        yield Finding("reviews", "warn", detail, "agent.log has the reasons", "reviews-given-up")


def _check_conversations(audit: StoreAudit) -> Iterator[Finding]:
    for damage in audit.damage:
        fix = "`hermes doctor --repair` repairs it"
        yield Finding("sessions", "fail", damage.detail, fix, damage.code, damage.sessions, damage.remedy)
    for notice in audit.notices:
        level: Level = "warn" if notice.fix else "ok"
        yield Finding("sessions", level, notice.detail, notice.fix, notice.code, notice.sessions)


def _check_contents(health: StoreHealth) -> Iterator[Finding]:
    if health.version and health.journal_mode != "wal":
        yield Finding(
            "store", "warn", f"journal mode is {health.journal_mode}, not wal", "Is the home on a network disk?"
        )
    if health.orphans:
        yield Finding("store", "warn", f"{health.orphans} messages belong to no session", "They are kept but not shown")
    if health.dangling_routes:
        yield Finding("store", "warn", f"{health.dangling_routes} session keys are bound to deleted sessions")
    if health.undecodable:
        yield _name_undecodable(health.undecodable)
    if health.unindexed:
        yield Finding("search", "ok", f"messages that the next search will index: {health.unindexed}")
    for name, stats in health.queues.items():
        detail = f"{name}: {stats.waiting} waiting, {stats.dead} {FAILED}"
        if stats.dead:
            yield Finding("queue", "warn", f"{detail}; last reason: {stats.last_reason}")
        else:
            yield Finding("queue", "ok", detail)


def _name_undecodable(rows: Sequence[Undecodable]) -> Finding:
    named = [f"{row.table} {row.key}" for row in rows[:MAX_NAMED_ROWS]]
    more = f" and {len(rows) - MAX_NAMED_ROWS} more" if len(rows) > MAX_NAMED_ROWS else ""
    sessions = tuple(dict.fromkeys(row.session_id for row in rows))
    detail = f"text that is not UTF-8, written by another program: {', '.join(named)}{more}"
    return Finding("store", "warn", detail, "It is shown with \ufffd where it cannot be read", "not-utf8", sessions)


def _others_can_read(path: Path) -> bool:
    if os.name == "nt":
        return False
    try:
        return bool(path.stat().st_mode & (stat.S_IRGRP | stat.S_IROTH))
    except FileNotFoundError:
        return False
    except OSError as error:
        raise SettingsError(f"cannot inspect {path}: {error.strerror}") from error
