"""Deliveries: the memory outbox's worker. Every process that talks with people runs one while it lasts."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence

from hermes.db.engine import Tx
from hermes.db.outcomes import Defect, Outcome, Postponed, Retry
from hermes.db.queue import Claim, backoff
from hermes.db.worker import QueueWorker, WorkerTerms
from hermes.memory.active import ActiveProvider
from hermes.memory.delivery import BASE, BATCH, CAP, LAST_REQUEST, LEASE, Batch, read_batch, settle_batch
from hermes.memory.outbox import is_waiting_lane
from hermes.memory.plugin_thread import Answer, Missed
from hermes.memory.values import Delivered, Later, Parked
from hermes.store.memory_rows import record_delivery

ADDRESS_EVERY = 60.0
"""Seconds between two looks at entries that have no address yet."""
NOT_NOW = 5.0
"""Seconds until a lane is tried again that could not be begun."""
OUTAGE = 3
"""Deliveries in a row that must fail before it is said."""
PAUSE = 15.0
"""Seconds for which no lane is tried when a provider says that its server is down, unless it says for how long."""
SAID = "delivery"
