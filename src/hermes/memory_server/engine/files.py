"""Uploaded files as message texts: text, PDF and JSON; and the process that reads one:
`python -m hermes.memory_server.engine.files CONTENT_TYPE`.

The file comes on standard input. Its texts, or the reason for refusing it, go to standard output as JSON. A file can
make a parser run and take memory without end; here both have limits, and the caller can end the process.
"""

from __future__ import annotations

import codecs
import importlib.util
import io
import json
import logging
import os
import re
import sys
from collections.abc import Iterator
from email.message import Message
from typing import TYPE_CHECKING

from hermes.memory_server import limits
from hermes.memory_server.faults import Fault, Invalid, TooLarge, UnknownFileType

if TYPE_CHECKING:
    from pypdf import PageObject
    from pypdf.generic import DictionaryObject

BREAKS = ("\n\n", "\n", ". ", " ")
MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
"""The byte order marks that show a file's encoding; the longer ones first."""
CHARSETS = ("utf", "iso", "cp", "ascii", "koi8", "mac-", "gb", "big5", "euc", "shift", "hz", "johab", "tis")
"""Encodings that a request may name. Python has others that are not scripts (punycode) or not text (hex)."""


def read_file(content: bytes, content_type: str) -> list[str]:
    """Return the texts in order, each small enough for a message."""
    if len(content) > limits.FILE_BYTES:
        raise TooLarge(f"File exceeds maximum of {limits.FILE_BYTES} bytes")
    header = Message()
    header["Content-Type"] = content_type
    kind = content_type.partition(";")[0].strip().lower()
    if kind == "application/pdf":
        text = _read_pdf(content)
    elif kind == "application/json":
        text = _read_json(content)
    elif kind.startswith("text/"):
        text = _decode(content, header.get_content_charset())
    else:
        raise UnknownFileType(f"Unsupported file type: {kind or 'none given'}")
    return list(split_text(text.replace("\0", "")))


def split_text(text: str, size: int = limits.MESSAGE_CHARS) -> Iterator[str]:
    """Yield parts of at most `size` characters, cut after paragraphs, lines, sentences or spaces where possible.
    Joined, they are the text; a text without such a place is cut at `size`. An empty text gives one empty
    part.
    """
    start = 0
    while len(text) - start > size:
        cut = _find_cut(text, start, size)
        yield text[start:cut]
        start = cut
    yield text[start:]


def _find_cut(text: str, start: int, size: int) -> int:
    for mark in BREAKS:
        at = text.rfind(mark, start + size // 2, start + size)
        if at > 0:
            return at + len(mark)
    return start + size


def _decode(content: bytes, charset: str | None = None) -> str:
    """Return the text in the encoding that its mark or the request names, else UTF-8, else Latin-1."""
    # Without a mark at its beginning, any two bytes would pass for UTF-16.
    marked = next((name for mark, name in MARKS if content.startswith(mark)), None)
    for name in (marked, charset if charset and _is_charset(charset) else None, "utf-8-sig"):
        if name is not None:
            try:
                return content.decode(name)
            except UnicodeError:
                continue
    return content.decode("latin-1")


def _is_charset(name: str) -> bool:
    try:
        return codecs.lookup(name).name.startswith(CHARSETS)
    except (LookupError, ValueError):
        return False


def _read_json(content: bytes) -> str:
    if not content.strip():
        return _decode(content)
    try:
        return json.dumps(json.loads(_decode(content)), ensure_ascii=False)
    except (ValueError, RecursionError) as error:
        raise Invalid(f"The file is not JSON: {error}") from error


def _read_pdf(content: bytes) -> str:
    from pypdf import PdfReader
    from pypdf.errors import DependencyError, FileNotDecryptedError

    # Its warnings would fill the log; the sender gets the error that matters in the response.
    logging.getLogger("pypdf").setLevel(logging.CRITICAL)
    try:
        pages = [_read_page(page).strip() for page in PdfReader(io.BytesIO(content)).pages]
    except (DependencyError, FileNotDecryptedError) as error:
        raise Invalid("The PDF is encrypted; send it without a password") from error
    except Exception as error:  # the boundary to the parser: a broken file can break it in any way
        raise Invalid(f"The file is not a readable PDF: {error}") from error
    if not any(pages):
        raise Invalid("The PDF has no text; scanned pages cannot be read")
    return "\n\n".join(f"[Page {number}]\n{text}" for number, text in enumerate(pages, start=1) if text)


USED_FONT = re.compile(rb"/([^\s/<>\[\]()]{1,127})\s+[-+.\d]{1,20}\s+Tf")
MAX_FONTS_PER_PAGE = 100
PLAIN = {"/Type": "/Font", "/Subtype": "/Type1", "/BaseFont": "/Helvetica", "/Encoding": "/WinAnsiEncoding"}


def _read_page(page: PageObject) -> str:
    """Return the text of a PDF page. Fonts that are named but not described are read as plain ones."""
    from pypdf.generic import DictionaryObject, NameObject

    resources = page.get_inherited("/Resources", default=None)
    described = None if resources is None else resources.get_object()
    if not isinstance(described, DictionaryObject) or not described:
        page[NameObject("/Resources")] = _plain_fonts(page)
    return page.extract_text()


def _plain_fonts(page: PageObject) -> DictionaryObject:
    from pypdf.generic import DictionaryObject, NameObject

    drawn = page.get_contents()
    used = [] if drawn is None else dict.fromkeys(USED_FONT.findall(drawn.get_data()))
    plain = DictionaryObject({NameObject(key): NameObject(value) for key, value in PLAIN.items()})
    names = [NameObject("/" + name.decode("latin-1")) for name in list(used)[:MAX_FONTS_PER_PAGE]]
    return DictionaryObject({NameObject("/Font"): DictionaryObject(dict.fromkeys(names, plain))})


TOO_HEAVY = "Reading the file takes more time or memory than the server allows"


def missing_limits() -> str | None:
    """Return the resources that this system cannot limit for a process, or None if it can limit all."""
    if importlib.util.find_spec("resource") is None:
        return "neither the memory nor the processor time"
    return "the memory" if sys.platform == "darwin" else None  # its kernel accepts the limit and ignores it


def limit_this_process() -> None:
    """Limit memory and processor time, as far as the system can, and lower the priority."""
    if hasattr(os, "nice"):
        os.nice(10)
    if importlib.util.find_spec("resource") is not None:
        resource = importlib.import_module("resource")

        for kind, most in (
            (resource.RLIMIT_AS, limits.PARSER_MEMORY_BYTES),
            (resource.RLIMIT_CPU, limits.PARSER_CPU_SECONDS),
            (resource.RLIMIT_CORE, 0),
        ):
            _, hard = resource.getrlimit(kind)
            resource.setrlimit(kind, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))


def answer(content: bytes, content_type: str) -> dict[str, object]:
    """Return the texts of a file, or the class and reason of the fault."""
    try:
        texts = read_file(content, content_type)
        if sum(map(len, texts)) > limits.FILE_CHARS:
            raise Invalid(f"The file holds more than {limits.FILE_CHARS} characters of text")
    except Fault as fault:
        return {"fault": type(fault).__name__, "reason": fault.reason[: limits.TEXT_CHARS]}
    except MemoryError:
        return {"fault": Invalid.__name__, "reason": TOO_HEAVY}
    return {"texts": texts}


if __name__ == "__main__":
    limit_this_process()
    result = answer(sys.stdin.buffer.read(), sys.argv[1])
    sys.stdout.buffer.write(json.dumps(result).encode())
