"""The text of a PDF's page, also of one that does not say which fonts it uses."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pypdf import PageObject
    from pypdf.generic import DictionaryObject

USED_FONT = re.compile(rb"/([^\s/<>\[\]()]{1,127})\s+[-+.\d]{1,20}\s+Tf")
FONTS_PER_PAGE = 100
PLAIN = {"/Type": "/Font", "/Subtype": "/Type1", "/BaseFont": "/Helvetica", "/Encoding": "/WinAnsiEncoding"}


def read_page(page: PageObject) -> str:
    """The text. Letters of a font that is named and not described are read as plain ones."""
    from pypdf.generic import DictionaryObject, NameObject

    told = page.get_inherited("/Resources", default=None)
    described = None if told is None else told.get_object()
    if not isinstance(described, DictionaryObject) or not described:
        page[NameObject("/Resources")] = _plain_fonts(page)
    return page.extract_text()


def _plain_fonts(page: PageObject) -> DictionaryObject:
    from pypdf.generic import DictionaryObject, NameObject

    drawn = page.get_contents()
    used = [] if drawn is None else dict.fromkeys(USED_FONT.findall(drawn.get_data()))
    plain = DictionaryObject({NameObject(key): NameObject(value) for key, value in PLAIN.items()})
    names = [NameObject("/" + name.decode("latin-1")) for name in list(used)[:FONTS_PER_PAGE]]
    return DictionaryObject({NameObject("/Font"): DictionaryObject(dict.fromkeys(names, plain))})
