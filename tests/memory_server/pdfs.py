"""Hand-written PDF files."""

from __future__ import annotations


def make_pdf(*pages: str, extra: bytes = b"") -> bytes:
    """Return a PDF with one page per text."""
    kids = " ".join(f"{4 + 2 * number} 0 R" for number in range(len(pages)))
    font = "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>"
    things = ["<< /Type /Catalog /Pages 2 0 R >>", f"<< /Type /Pages /Kids [{kids}] /Count {len(pages)} >>", font]
    for number, text in enumerate(pages):
        shown = "".join(f"({line}) Tj T* " for line in text.splitlines())
        stream = f"BT /F1 12 Tf 14 TL 72 720 Td {shown}ET"
        things.append(
            "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] "
            f"/Resources << /Font << /F1 3 0 R >> >> /Contents {5 + 2 * number} 0 R >>"
        )
        things.append(f"<< /Length {len(stream)} >>\nstream\n{stream}\nendstream")
    out = b"%PDF-1.4\n"
    places = b"0000000000 65535 f \n"
    for number, thing in enumerate(things, start=1):
        places += b"%010d 00000 n \n" % len(out)
        out += f"{number} 0 obj\n{thing}\nendobj\n".encode("cp1252")
    size = len(things) + 1
    end = b"trailer\n<< /Size %d /Root 1 0 R %s >>\nstartxref\n%d\n%%%%EOF\n" % (size, extra, len(out))
    return out + b"xref\n0 %d\n%s%s" % (size, places, end)
