"""Uploaded files as texts of messages: text, PDF and JSON."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

from hermes.memory_server import limits
from hermes.memory_server.faults import Invalid, TooLarge, UnknownFileType

BREAKS = ("\n\n", "\n", ". ", " ")


def read_file(content: bytes, content_type: str) -> list[str]:
    """The texts, each small enough for a message, in order."""
    if len(content) > limits.FILE_BYTES:
        raise TooLarge(f"File exceeds maximum of {limits.FILE_BYTES} bytes")
    kind = content_type.partition(";")[0].strip().lower()
    if kind == "application/pdf":
        text = _read_pdf(content)
    elif kind == "application/json":
        text = _read_json(content)
    elif kind.startswith("text/"):
        text = _decode(content)
    else:
        raise UnknownFileType(f"Unsupported file type: {kind or 'none given'}")
    return list(split_text(text.replace("\0", "")))


def split_text(text: str, size: int = limits.MESSAGE_CHARS) -> Iterator[str]:
    """Parts of at most `size` characters, cut at paragraphs, lines, sentences or spaces where there are any."""
    rest = text.strip()
    while len(rest) > size:
        cut = _find_cut(rest, size)
        yield rest[:cut].rstrip()
        rest = rest[cut:].lstrip()
    if rest:
        yield rest


def _find_cut(text: str, size: int) -> int:
    for mark in BREAKS:
        at = text.rfind(mark, size // 2, size)
        if at > 0:
            return at + len(mark)
    return size


def _decode(content: bytes) -> str:
    # Without a mark at its beginning, any two bytes would pass for UTF-16.
    marked = content.startswith((b"\xff\xfe", b"\xfe\xff"))
    try:
        return content.decode("utf-16" if marked else "utf-8-sig")
    except UnicodeDecodeError:
        return content.decode("latin-1")


def _read_json(content: bytes) -> str:
    try:
        return json.dumps(json.loads(_decode(content)), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError) as error:
        raise Invalid(f"The file is not JSON: {error}") from error


def _read_pdf(content: bytes) -> str:
    from pypdf import PdfReader
    from pypdf.errors import PyPdfError

    # It tells its worries to the log; whoever sent the file reads the one that counts in the answer.
    logging.getLogger("pypdf").setLevel(logging.CRITICAL)
    try:
        pages = [page.extract_text() for page in PdfReader(io.BytesIO(content)).pages]
    except (PyPdfError, ValueError, KeyError, TypeError, RecursionError, IndexError, AttributeError) as error:
        raise Invalid(f"The file is not a PDF that can be read: {error}") from error
    return "\n\n".join(f"[Page {number}]\n{text}" for number, text in enumerate(pages, start=1))
