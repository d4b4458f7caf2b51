"""Addresses of PostgreSQL databases: read from a URL, and shown without the password."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError

from hermes.errors import UsageError

VARIABLE = "HERMES_MEMORY_DATABASE"
EXAMPLE = "postgresql://USER@HOST/DATABASE"


@dataclass(frozen=True, slots=True)
class DatabaseAddress:
    """A PostgreSQL database. Its string form names the database and the host, never the password."""

    url: URL = field(repr=False)

    @classmethod
    def parse(cls, text: str, source: str) -> DatabaseAddress:
        """Parse a URL. `source` names the option or variable in errors, which never quote the URL."""
        try:
            url = make_url(text.strip())
        except (ArgumentError, ValueError):
            raise UsageError(f"{source} is not a URL", hint=f"Write {EXAMPLE}") from None
        if url.get_backend_name() not in ("postgresql", "postgres"):
            raise UsageError(f"{source} is not a URL of a PostgreSQL database", hint=f"Write {EXAMPLE}")
        if not url.database:
            raise UsageError(f"{source} names no database", hint=f"Write {EXAMPLE}")
        return cls(url.set(drivername="postgresql+psycopg"))

    def __str__(self) -> str:
        query = self.url.query
        host = query.get("host") or self.url.host or "the local socket"
        port = query.get("port") or self.url.port
        where = host if isinstance(host, str) else ",".join(host)
        return f"database {self.url.database} on {where}{f':{port}' if isinstance(port, (str, int)) else ''}"


def find_address(option: str | None, env: Mapping[str, str]) -> DatabaseAddress | None:
    """Return the database that `--database` or HERMES_MEMORY_DATABASE names; None for a folder."""
    if option is None:
        return DatabaseAddress.parse(given, VARIABLE) if (given := env.get(VARIABLE, "").strip()) else None
    return parse_shown(option, "--database")


def parse_shown(text: str, source: str) -> DatabaseAddress:
    """Parse a URL from the command line. It must hold no password, because every user can list command lines."""
    address = DatabaseAddress.parse(text, source)
    if address.url.password or "password" in address.url.query:
        raise UsageError(
            f"{source} holds a password, which every user of this machine could read in the list of processes",
            hint=f"Set {VARIABLE} to the whole URL, or keep the password in PGPASSFILE or PGPASSWORD",
        )
    return address
