"""Third-party files of the page: unchanged, listed with their licence, and part of the package."""

from __future__ import annotations

import re
from hashlib import sha256

from hermes.web.drawing import HERE, templates

STATIC = HERE / "static"
OURS = {"app.css", "app.js", "charts.js", "icon.svg", "THIRD-PARTY.md"}


def test_third_party_files_are_listed_with_licence_and_hash() -> None:
    page = (STATIC / "THIRD-PARTY.md").read_text(encoding="utf-8")
    named = dict(re.findall(r"^\| `([\w.-]+)` \|.*`([0-9a-f]{64})` \|$", page, re.MULTILINE))
    assert named.keys() == {path.name for path in STATIC.iterdir()} - OURS
    assert {name: sha256((STATIC / name).read_bytes()).hexdigest() for name in named} == named
    assert "Zero-Clause BSD" in page
    assert "The MIT License (MIT)" in page


def test_every_template_can_be_read() -> None:
    for path in (HERE / "templates").iterdir():
        templates().get_template(path.name)


def test_no_template_has_an_inline_script_or_style() -> None:
    for path in (HERE / "templates").iterdir():
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"<script(?![^>]*\ssrc=)|<style|\sstyle=|\son\w+=|javascript:|\|safe\b", text), path.name
