"""Files as messages: supported kinds, splitting, and refusals."""

from __future__ import annotations

import io
import json
import random
import sqlite3
from typing import Any

import httpx
import pytest
from pypdf import PdfReader, PdfWriter

from hermes.memory_server.db.schema import FILE
from tests.memory_server.pdfs import make_pdf
from tests.memory_server.serving import Served
from tests.scale import scale

LOCKED = (
    b"/ID [<00> <00>] /Encrypt << /Filter /Standard /V 5 /R 6 /Length 256 /P -4 /O <%s> /U <%s> /OE <%s> /UE <%s>"
    b" /Perms <%s> /CF << /StdCF << /CFM /AESV3 /AuthEvent /DocOpen /Length 32 >> >> /StmF /StdCF /StrF /StdCF >>"
) % (b"00" * 48, b"00" * 48, b"00" * 32, b"00" * 32, b"00" * 16)
"""The encryption dictionary of a PDF that uses AES."""


def encrypt(pdf: bytes, user: str) -> bytes:
    writer = PdfWriter(clone_from=io.BytesIO(pdf))
    writer.encrypt(user, owner_password="owner", algorithm="RC4-128")
    out = io.BytesIO()
    writer.write(out)
    return out.getvalue()


def upload(http: httpx.Client, content: bytes, kind: str, **fields: str) -> httpx.Response:
    given = {"peer_id": "ann", **fields}
    return http.post("/sessions/s/messages/upload", files={"file": ("notes", content, kind)}, data=given)


def texts(answer: httpx.Response) -> list[str]:
    assert answer.status_code == 201, answer.text
    return [message["content"] for message in answer.json()]


def test_pages_of_a_pdf_are_read_in_order_and_empty_ones_passed_over(http: httpx.Client) -> None:
    pdf = make_pdf("Grüße aus Malta\nsecond line", "", "the last page")
    assert len(PdfReader(io.BytesIO(pdf)).pages) == 3
    (text,) = texts(upload(http, pdf, "application/pdf"))
    assert text == "[Page 1]\nGrüße aus Malta\nsecond line\n\n[Page 3]\nthe last page"


def test_long_pdf_becomes_several_messages_that_together_hold_every_line(http: httpx.Client) -> None:
    pages = ["\n".join(f"page {page} line {line} of a long story" for line in range(60)) for page in range(1, 31)]
    parts = texts(upload(http, make_pdf(*pages), "application/pdf"))
    assert len(parts) > 1
    assert all(len(part) <= 25_000 for part in parts)
    whole = "\n".join(parts)
    assert [line for line in whole.splitlines() if line.startswith("page")] == "\n".join(pages).splitlines()
    assert whole.count("[Page ") == 30


def test_pdf_that_anyone_may_open_is_read_and_one_with_a_password_is_not(http: httpx.Client) -> None:
    pdf = make_pdf("hello")
    assert texts(upload(http, encrypt(pdf, ""), "application/pdf")) == ["[Page 1]\nhello"]
    for locked in (encrypt(pdf, "secret"), make_pdf("hello", extra=LOCKED)):
        refused = upload(http, locked, "application/pdf")
        assert refused.status_code == 422
        assert "encrypted" in refused.json()["detail"]


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (make_pdf("", ""), "application/pdf"),
        (b"", "application/pdf"),
        (b"%PDF-1.4 nonsense", "application/pdf"),
        (b"{", "application/json"),
        (b'"\\ud800"', "application/json"),
        (b"[" * 200_000, "application/json"),
    ],
)
def test_file_that_cannot_be_read_is_refused_and_makes_nothing(http: httpx.Client, content: bytes, kind: str) -> None:
    refused = upload(http, content, kind)
    assert refused.status_code == 422, refused.text
    assert isinstance(refused.json()["detail"], str)
    assert http.post("/sessions/list").json()["total"] == 0


@pytest.mark.parametrize("content", [b"", b" \n"])
def test_json_file_without_content_is_one_message(http: httpx.Client, content: bytes) -> None:
    assert texts(upload(http, content, "application/json")) == [content.decode()]


@pytest.mark.stress
def test_broken_pdf_never_breaks_the_server(http: httpx.Client) -> None:
    chance = random.Random(5)
    good = encrypt(make_pdf("one", "two"), "")
    for _ in range(scale(12, 5_000)):
        broken = bytearray(good)
        for _ in range(chance.choice([1, 2, 10])):
            at = chance.randrange(len(broken))
            broken[at : at + chance.randrange(8)] = chance.choice([b"", b"<<", b"0", b"/V 9", b"-1", b"\xff", b"1 0 R"])
        assert upload(http, bytes(broken), "application/pdf").status_code in (201, 422)


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        ("Grüße ✓".encode(), "text/plain"),
        ("Grüße ✓".encode("utf-8-sig"), "text/markdown"),
        ("Grüße ✓".encode("utf-16"), "text/plain"),
        ("Grüße ✓".encode("utf-32"), "text/plain"),
        (b"\xfe\xff" + "Grüße ✓".encode("utf-16-be"), "text/plain"),
        ("Grüße ✓".encode("utf-16-le"), "text/plain; charset=utf-16-le"),
        ("Grüße ✓".encode(), "text/plain; charset=ascii"),
        ("Grüße ✓".encode(), "text/plain; charset=hex"),
        ("Grüße ✓".encode(), 'text/plain; charset="no such"'),
        (json.dumps("Grüße ✓").encode(), "application/json"),
        (json.dumps("Grüße ✓", ensure_ascii=False).encode("utf-16"), "application/json; charset=x"),
    ],
)
def test_text_is_read_in_the_encoding_it_is_in(http: httpx.Client, content: bytes, kind: str) -> None:
    (text,) = texts(upload(http, content, kind))
    assert text.strip('"') == "Grüße ✓"


@pytest.mark.parametrize("text", ["", " \n ", "  first\n\tsecond  \n", "a\r\nb"])
def test_text_is_kept_as_it_was_sent_also_without_a_letter(http: httpx.Client, text: str) -> None:
    assert texts(upload(http, text.encode(), "text/plain")) == [text]


def test_json_is_kept_on_one_line_with_its_letters(http: httpx.Client) -> None:
    given = '{"b":\n  [1,2.0,null],\t"a":"Gr\\u00fc\\u00dfe"}'
    assert texts(upload(http, given.encode(), "application/json")) == ['{"b": [1, 2.0, null], "a": "Grüße"}']


def test_page_of_a_pdf_that_does_not_describe_its_fonts_is_read(http: httpx.Client) -> None:
    fonts = b"/Resources << /Font << /F1 3 0 R >> >>"
    for bare in (b"", b"/Resources << >>", b"/Resources null"):
        pdf = make_pdf("hello there", "second page").replace(fonts, bare.ljust(len(fonts)))
        assert texts(upload(http, pdf, "application/pdf")) == ["[Page 1]\nhello there\n\n[Page 2]\nsecond page"]


def test_text_of_other_scripts_is_read_as_the_request_says(http: httpx.Client) -> None:
    for text, charset in (("Привет", "windows-1251"), ("こんにちは", "shift_jis"), ("Grüße", "iso-8859-1")):
        assert texts(upload(http, text.encode(charset), f"text/plain; charset={charset}")) == [text]
    assert texts(upload(http, "Grüße".encode("latin-1"), "text/plain")) == ["Grüße"]


@pytest.mark.parametrize("unit", ["A paragraph.\n\n", "A line\n", "A sentence. ", "word ", "x"])
def test_long_text_is_cut_where_it_hurts_least_and_nothing_is_lost(http: httpx.Client, unit: str) -> None:
    text = unit * (60_000 // len(unit))
    parts = texts(upload(http, text.encode(), "text/plain"))
    assert len(parts) == 3
    assert all(0 < len(part) <= 25_000 for part in parts)
    assert "".join(parts) == text
    assert all(part.endswith(unit) for part in parts)


def test_every_part_carries_what_was_sent_with_the_file(http: httpx.Client, server: Served) -> None:
    said: dict[str, Any] = {"source": "diary", "deep": {"n": [1, None]}}
    made = upload(
        http,
        ("line\n" * 8000).encode(),
        "text/plain",
        metadata=json.dumps(said),
        configuration='{"reasoning": {"enabled": false}}',
        created_at="2020-01-02T03:04:05Z",
    ).json()
    assert len(made) == 2
    assert [message["metadata"] for message in made] == [said, said]
    assert {message["created_at"] for message in made} == {"2020-01-02T03:04:05Z"}
    assert {message["peer_id"] for message in made} == {"ann"}
    listed = http.post("/sessions/s/messages/list").json()["items"]
    assert [message["id"] for message in listed] == [message["id"] for message in made]
    assert http.get("/queue/status").json()["total_work_units"] == 0
    connection = sqlite3.connect(server.folder / FILE)
    query = "SELECT file FROM messages WHERE public_id IN (?, ?) ORDER BY seq"
    facts = [json.loads(row[0]) for row in connection.execute(query, [message["id"] for message in made])]
    connection.close()
    shared = {"filename": "notes", "content_type": "text/plain", "size": 40_000, "parts": 2}
    assert facts == [{**shared, "part": 0}, {**shared, "part": 1}]


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"metadata": "{"}, 422),
        ({"metadata": "[1]"}, 422),
        ({"metadata": '{"a": NaN}'}, 422),
        ({"metadata": json.dumps({str(n): n for n in range(101)})}, 422),
        ({"metadata": "[" * 100_000}, 422),
        ({"configuration": "7"}, 422),
        ({"created_at": "soon"}, 422),
        ({"created_at": "9999-12-31T23:59:59-01:00"}, 422),
        ({"peer_id": "a b"}, 422),
        ({"peer_id": ""}, 422),
        ({"metadata": "", "configuration": "", "created_at": ""}, 201),
    ],
)
def test_fields_sent_with_a_file_are_checked(http: httpx.Client, fields: dict[str, str], status: int) -> None:
    answer = upload(http, b"hello", "text/plain", **fields)
    assert answer.status_code == status, answer.text


def test_largest_file_is_taken_and_one_byte_more_is_not(http: httpx.Client) -> None:
    largest = b"lin\n" * 1_310_720
    assert len(largest) == 5_242_880
    assert upload(http, largest + b"x", "text/plain").status_code == 413
    assert "".join(texts(upload(http, largest, "text/plain"))) == largest.decode()


@pytest.mark.parametrize("kind", ["image/png", "application/octet-stream", "application/xml", "", "nonsense"])
def test_file_of_another_kind_is_refused(http: httpx.Client, kind: str) -> None:
    assert upload(http, b"hello", kind).status_code == 415


def test_upload_that_is_no_form_is_refused(http: httpx.Client) -> None:
    path = "/sessions/s/messages/upload"
    assert http.post(path, json={"peer_id": "ann"}).status_code == 422
    assert http.post(path, data={"peer_id": "ann", "file": "text"}).status_code == 422
    assert http.post(path, files={"file": ("a", b"x", "text/plain")}).status_code == 422
    for kind in ("multipart/form-data", "multipart/form-data; boundary=", "multipart/form-data; boundary=x"):
        assert http.post(path, content=b"--y\r\nnonsense", headers={"Content-Type": kind}).status_code in (400, 422)
