"""Measurements. A home that says nothing of memory or titles has none here, so that each measures what it names."""

from __future__ import annotations

import os

os.environ["HERMES_MEMORY_PROVIDER"] = "none"
os.environ["HERMES_AUTO_TITLE"] = "false"
os.environ["HERMES_MODEL_TOOLS"] = "on"
