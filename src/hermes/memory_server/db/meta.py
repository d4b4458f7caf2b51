"""What a folder says of itself: how its rows are written, and which embedder made its vectors."""

from __future__ import annotations

from sqlalchemy import insert, select

from hermes.errors import StoreEmbedderError, StoreNewerError
from hermes.memory_server.db.database import Tx
from hermes.memory_server.db.tables import meta
from hermes.memory_server.embedder import Space

FORMAT = "1"
"""What columns hold beyond their types: vectors as half floats, times as microseconds, metadata as JSON text."""


def write_meta(tx: Tx, space: Space) -> None:
    """Say it in a new folder."""
    said = {"format": FORMAT, "embedder": space.embedder, "dimension": str(space.dimension)}
    tx.execute(insert(meta), [{"name": name, "value": value} for name, value in said.items()])


def check_meta(tx: Tx, space: Space, where: str) -> None:
    """Refuse a folder that we would misread: vectors of two embedders cannot be compared."""
    said = {row.name: row.value for row in tx.execute(select(meta.c.name, meta.c.value))}
    if said.get("format") != FORMAT:
        raise StoreNewerError(f"{where} is written in format {said.get('format')}, and we read format {FORMAT}")
    stored = Space(said["embedder"], int(said["dimension"]))
    if stored != space:
        raise StoreEmbedderError(f"{where} holds vectors of {stored}, and the embedder in use is {space}")
