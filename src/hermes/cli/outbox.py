"""`hermes memory outbox`: what a memory provider has not been told yet, and a process that tells it."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from dataclasses import asdict
from typing import Annotated

import typer

from hermes.app import App
from hermes.assembly import open_provider
from hermes.cli.output import note, say_json, show_time
from hermes.cli.start import AsJson, load_app, with_store
from hermes.cli.table import print_table
from hermes.db import leases
from hermes.db.engine import Tx
from hermes.db.owners import is_gone, new_owner
from hermes.db.queue_items import items, queues, stats
from hermes.errors import UsageError
from hermes.logs import start_log
from hermes.memory.deliveries import Deliveries
from hermes.memory.outbox import queue_name
from hermes.settings import API_KEY, LOG_FORMAT, LOG_LEVEL
from hermes.store.store import Store

LEASE = "memory-deliverer"
TTL = 90.0
LANES_AT_ONCE = 4
PATIENCE = 60.0
"""Seconds without any progress after which a deliverer gives up; what is left waits for the next one."""
app = typer.Typer(help="What the memory provider has not been told yet.", no_args_is_help=True, rich_markup_mode=None)


@app.command()
def deliver(ctx: typer.Context) -> int:
    """Tell the memory provider what it has not been told, then end. One runs per home; others do this by themselves."""
    found = load_app(ctx)
    start_log(
        found.home.log_file,
        level=found.settings.get(LOG_LEVEL),
        form=found.settings.get(LOG_FORMAT),
        secrets=[found.settings.get(API_KEY)],
    )
    return with_store(found, lambda store: _deliver(found, store))
