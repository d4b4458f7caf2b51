"""The second embedder of a memory folder, as the settings of the default home choose it."""

from __future__ import annotations

import logging
from pathlib import Path

from hermes.config_file import load_env, read_entries
from hermes.configuration import configure
from hermes.errors import HermesError
from hermes.home import Home
from hermes.memory_server.embedder import Embedder
from hermes.memory_server.endpoint import EmbeddingEndpoint
from hermes.memory_server.minilm import INSTALL, MiniLm, missing_packages
from hermes.settings import EMBEDDINGS_KEY, EMBEDDINGS_MODEL, EMBEDDINGS_URL, FINER_EMBEDDER

log = logging.getLogger("hermes.memory_server")


def choose_finer(home: Path) -> Embedder | None:
    """What makes finer vectors, or None. A wrong value is told in the log and does not keep memory from being served;
    what cannot be reached or is not installed is told by `/health`."""
    place = Home(home)
    wanted = [FINER_EMBEDDER, EMBEDDINGS_URL, EMBEDDINGS_MODEL, EMBEDDINGS_KEY]
    try:
        found = configure(read_entries(place.config_file), load_env(place), wanted)
    except HermesError as error:
        log.warning("memory server: %s", error.line())
        return None
    for problem in found.problems:
        log.warning("memory server: %s", problem.line())
    settings = found.settings
    kind, url = settings.get(FINER_EMBEDDER), settings.get(EMBEDDINGS_URL)
    if kind == "endpoint" and not url:
        log.warning("memory server: memory.finer_embedder is an endpoint, and memory.embeddings_url is empty")
        return None
    if kind == "endpoint":
        return EmbeddingEndpoint(url, settings.get(EMBEDDINGS_MODEL), settings.get(EMBEDDINGS_KEY))
    if kind == "minilm" and (missing := missing_packages()):
        log.warning("memory server: MiniLM is not installed (%s): %s", ", ".join(missing), INSTALL)
    return MiniLm() if kind == "minilm" else None
