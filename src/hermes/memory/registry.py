"""Finds providers in the entry-point group `hermes.memory_providers`, and in folders in `plugins/` of the home."""

from __future__ import annotations

import hashlib
import importlib.util
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import cast

from hermes.errors import ProviderError
from hermes.memory.provider import Host, MemoryPlugin

GROUP = "hermes.memory_providers"
FACTORY = "create_plugin"
"""The name that a plugin folder's `__init__.py` defines: a class or function that takes a Host and returns a
MemoryPlugin."""
NONE = "none"
"""The setting's value for no provider."""
NONE_CHOSEN = "no memory provider is chosen"
DOCS_PAGE = "docs/memory-providers.md"

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")
OLD_FACTORY = "create_provider"
OLD_WORDS = ("MemoryProvider", "ProviderContext", "FinishedTurn")
Factory = Callable[[Host], MemoryPlugin]


def find_provider(name: str, plugins: Path) -> Factory:
    """Return the factory of a provider. Raises ProviderError if it does not exist or cannot be loaded."""
    folder = plugins / name
    if NAME.fullmatch(name) and (folder / "__init__.py").is_file():
        return _load_folder(name, folder)
    from importlib.metadata import entry_points

    found = entry_points(group=GROUP, name=name)
    if not found:
        raise ProviderError(
            f"there is no memory provider '{name}'", hint=f"Known: {', '.join(provider_names(plugins))}"
        )
    try:
        made: object = next(iter(found)).load()
    except BaseException as error:  # see below
        raise _not_loaded(f"'{name}'", error) from error
    if isinstance(made, type) and hasattr(made, "sync_turn") and not issubclass(made, MemoryPlugin):
        raise _too_old(f"'{name}'")
    return cast(Factory, made)


def provider_names(plugins: Path) -> list[str]:
    from importlib.metadata import entry_points

    folders = [path.parent.name for path in plugins.glob("*/__init__.py") if NAME.fullmatch(path.parent.name)]
    return sorted({NONE, *folders, *(point.name for point in entry_points(group=GROUP))})


def _load_folder(name: str, folder: Path) -> Factory:
    # Two profiles of one process may have different plugins of one name.
    mark = hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:8]
    module_name = f"hermes_plugins.{name}_{mark}"
    spec = importlib.util.spec_from_file_location(
        module_name, folder / "__init__.py", submodule_search_locations=[str(folder)]
    )
    assert spec is not None, "a file that exists has a spec"
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module
    try:
        spec.loader.exec_module(module)
        if hasattr(module, OLD_FACTORY) and not hasattr(module, FACTORY):
            raise _too_old(f"'{name}' in {folder}")
        return cast(Factory, getattr(module, FACTORY))
    except ProviderError:
        del sys.modules[module_name]
        raise
    except BaseException as error:  # includes a plugin that calls sys.exit()
        del sys.modules[module_name]
        raise _not_loaded(f"'{name}' in {folder}", error) from error


def _not_loaded(which: str, error: BaseException) -> ProviderError:
    if isinstance(error, ImportError) and any(word in str(error) for word in OLD_WORDS):
        return _too_old(which)
    return ProviderError(f"memory provider {which} cannot be loaded: {type(error).__name__}: {error}")


def _too_old(which: str) -> ProviderError:
    return ProviderError(f"memory provider {which} is written for an older hermes; {DOCS_PAGE} describes what changed")
