"""The reference page of keys and commands agrees with the code."""

from __future__ import annotations

from scripts.write_honcho_reference import TARGET, render


def test_the_reference_names_every_key_and_command() -> None:
    assert TARGET.read_text(encoding="utf-8") == render(), "run `make docs`"
