"""Finds providers: the entry-point group `hermes.memory_providers`, and folders in `plugins/` of the home."""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import cast

from hermes.errors import ProviderError
from hermes.memory.provider import MemoryProvider, NullProvider

GROUP = "hermes.memory_providers"
FACTORY = "create_provider"
"""What a plugin folder's `__init__.py` defines: a function without arguments that returns a MemoryProvider."""

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")
Factory = Callable[[], MemoryProvider]


def find_provider(name: str, plugins: Path) -> Factory:
    """How to make the provider called `name`. Raises ProviderError when there is none or it cannot be loaded."""
    if name == NullProvider.name:
        return NullProvider
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
        return cast(Factory, next(iter(found)).load())
    except BaseException as error:  # see below
        raise ProviderError(f"memory provider '{name}' cannot be loaded: {type(error).__name__}: {error}") from error


def provider_names(plugins: Path) -> list[str]:
    """Every provider that could be chosen."""
    from importlib.metadata import entry_points

    folders = [path.parent.name for path in plugins.glob("*/__init__.py") if NAME.fullmatch(path.parent.name)]
    return sorted({NullProvider.name, *folders, *(point.name for point in entry_points(group=GROUP))})


def _load_folder(name: str, folder: Path) -> Factory:
    module_name = f"hermes_plugins.{name}"
    spec = importlib.util.spec_from_file_location(
        module_name, folder / "__init__.py", submodule_search_locations=[str(folder)]
    )
    assert spec is not None, "a file that exists has a spec"
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module
    try:
        spec.loader.exec_module(module)
        return cast(Factory, getattr(module, FACTORY))
    except BaseException as error:  # a plugin that calls sys.exit() is one that cannot be loaded
        del sys.modules[module_name]
        raise ProviderError(
            f"memory provider '{name}' in {folder} cannot be loaded: {type(error).__name__}: {error}"
        ) from error
