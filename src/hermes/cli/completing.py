"""Shell completion: `hermes __complete WORDS…` prints the completions of the last word.

One line per completion: the word, a tab and its meaning; `:files` asks the shell for file names. A shell cannot show
errors, so anything unreadable yields no completions. Imports are few, because a key press waits for the result.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

TREE = Path(__file__).with_name("command_tree.json")
FILES = ":files"


class TypedWords(NamedTuple):
    """The words before the cursor, parsed: the command reached so far and what may follow."""

    node: dict[str, Any]
    profile: str | None
    option: dict[str, Any] | None
    """The option whose value is being typed."""
    arguments: list[str]
    """Arguments given so far."""
    only_arguments: bool
    """True after `--`: further words are arguments, even with a dash."""


def main(words: Sequence[str]) -> int:
    """Print the completions of the last of `words`."""
    for word, meaning in complete(words or [""]):
        sys.stdout.write(f"{word}\t{meaning}\n" if meaning else f"{word}\n")
    return 0


def complete(words: Sequence[str]) -> list[tuple[str, str]]:
    """Return the completions of the last word, each with its meaning."""
    tree = json.loads(TREE.read_text(encoding="utf-8"))
    *before, current = words
    typed = _parse(tree, before)
    if typed is None:
        return []
    offers = [
        (word, " ".join(meaning.split()))
        for word, meaning in _offers(tree, typed, current)
        if word.startswith(current) or word == FILES
    ]
    if typed.node is tree and typed.option is None and not offers:
        offers = [(name, "") for name in _provider().offered_names(typed.profile) if name.startswith(current)]
    return offers


def _parse(tree: dict[str, Any], words: Sequence[str]) -> TypedWords | None:
    """Parse the words before the cursor. Returns None if one is not a command."""
    node, profile, option, arguments, over = tree, None, None, list[str](), False
    for word in words:
        if option is not None:
            profile = word if option["wants"] == "profile" else profile
            option = None
        elif word == "--":
            over = True
        elif word.startswith("-") and not over:
            found = node["options"].get(word)
            option = found if found and found["takes"] else None
        elif "commands" in node:
            following = node["commands"].get(word)
            if following is None and node is tree:  # commands of a memory provider are not in the file
                following = _provider().offered_tree(word, profile)
            if following is None:
                return None
            node = following
        else:
            arguments.append(word)
    return TypedWords(node, profile, option, arguments, over)


def _provider() -> Any:
    return importlib.import_module("hermes.cli.provider_group")


def _offers(tree: dict[str, Any], typed: TypedWords, current: str) -> list[tuple[str, str]]:
    node = typed.node
    if typed.option is not None:
        return _values(tree, typed, typed.option["wants"], current)
    if current.startswith("-") and not typed.only_arguments:
        return [(name, option["help"]) for name, option in node["options"].items() if name.startswith("--")]
    if "commands" in node:
        return [(name, child["help"]) for name, child in node["commands"].items()]
    declared = node.get("arguments", [])
    if not declared or (len(typed.arguments) >= len(declared) and not declared[-1]["many"]):
        return []
    return _values(tree, typed, declared[min(len(typed.arguments), len(declared) - 1)]["wants"], current)


def _values(tree: dict[str, Any], typed: TypedWords, wants: Any, current: str) -> list[tuple[str, str]]:
    match wants:
        case list():
            return [(word, "") for word in wants]
        case "file":
            return [(FILES, "")]
        case "setting":
            return [(key, setting["help"]) for key, setting in tree["settings"].items()]
        case "value":
            setting = tree["settings"].get(typed.arguments[0]) if typed.arguments else None
            return [(word, "") for word in setting["values"]] if setting else []
        case "session" | "profile":
            values = importlib.import_module("hermes.cli.completion")
            offered: list[tuple[str, str]] = (
                values.profiles() if wants == "profile" else values.sessions(typed.profile, current)
            )
            return offered
        case _:
            return []
