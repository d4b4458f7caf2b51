"""Syntax highlighting: streamed by row, and never changes the text, whatever a lexer or reply does."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.cli.code_colors import (
    LANGUAGES,
    MAX_CONTEXT_CHARS,
    MAX_LEXED_CHARS,
    MAX_ROW_CHARS,
    CodeColors,
    WordKind,
    colors_for,
)
from hermes.cli.markdown import Markdown
from tests.cli.markdown_rows import plain, rows_of

pytestmark = pytest.mark.contract("10.53")

PIECES = (
    *(
        "def f(a):",
        "\n",
        "\n    ",
        "\n\n",
        '"""',
        "'",
        '"',
        "`",
        "/*",
        "*/",
        "//",
        "<!--",
        "-->",
        "#",
        "{",
        "}",
        "(",
        ")",
    ),
    *(
        "return 1",
        "<script>",
        "</script>",
        "$x",
        "<<EOF\n",
        "EOF\n",
        "\\",
        "=begin",
        "if x then",
        "漢字",
        "é",
        "\x0b",
        "@",
    ),
)


def block(code: str, language: str = "python") -> str:
    return f"```{language}\n{code}\n```"


def painted(code: str, language: str = "python") -> list[str]:
    return rows_of(block(code, language))[1:-1]


def test_code_in_a_language_that_is_known_has_its_colours() -> None:
    assert painted("@cache\ndef f(a: int):\n    return 'x', 1  # why") == [
        "\x1b[36m@cache\x1b[0m",
        "\x1b[35mdef\x1b[0m \x1b[1mf\x1b[0m(a: \x1b[36mint\x1b[0m):",
        "    \x1b[35mreturn\x1b[0m \x1b[32m'x'\x1b[0m, \x1b[36m1\x1b[0m  \x1b[2m# why\x1b[0m",
    ]


@pytest.mark.parametrize("info", ["Python", " python title=x", "{.python}", "py", "python:a.py"])
def test_the_language_is_the_first_word_after_the_fence(info: str) -> None:
    assert rows_of(f"```{info}\nimport os\n```")[1] == "\x1b[35mimport\x1b[0m os"


@pytest.mark.parametrize("info", ["", "text", "nosuch", "{}", "mermaid"])
def test_code_in_no_language_that_is_known_has_one_colour(info: str) -> None:
    assert rows_of(f"```{info}\nimport os\n```")[1] == "\x1b[36mimport os\x1b[0m"


def test_a_row_has_its_colours_before_it_ends() -> None:
    markdown = Markdown(lambda: 80, colored=True)
    assert markdown.feed("```js\n/*\n for (") == ["\x1b[2m```js\x1b[0m", "\x1b[2m/*\x1b[0m"]
    assert markdown.growing() == ["\x1b[2m for (\x1b[0m"]
    assert markdown.feed("x)\n*/ let") == ["\x1b[2m for (x)\x1b[0m"]
    assert markdown.growing() == ["\x1b[2m*/\x1b[0m \x1b[35mlet\x1b[0m"]


@pytest.mark.parametrize(
    ("language", "code", "style"),
    [
        ("python", 'x = """\nif so\n"""', "32"),
        ("js", "/**\n * if so\n */", "2"),
        ("js", "x = `\nif so\n`", "32"),
        ("java", "/**\nif so\n*/", "2"),
        ("c", "/*\nif so\n*/", "2"),
        ("css", "/*\nif so\n*/", "2"),
        ("go", "x := `\nif so\n`", "32"),
        ("rust", "/*\nif so\n*/", "2"),
        ("php", "/*\nif so\n*/", "2"),
        ("html", "<!--\nif <b>so\n-->", "2"),
        ("lua", "--[[\nif so\n]]", "2"),
        ("bash", "curl -d '{\nif so\n}'", "32"),
        ("sql", "SELECT 'a\nif so\n'", "32"),
    ],
)
def test_a_text_or_comment_of_several_rows_is_known_before_it_ends(language: str, code: str, style: str) -> None:
    middle = painted(code, language)[1]
    assert middle == f"\x1b[{style}m{code.split(chr(10))[1]}\x1b[0m"
    open_for_long = code.replace("\n", "\n" + "words and words\n" * 100, 1)
    assert middle in painted(open_for_long, language), "it was open all the while"


@pytest.mark.parametrize("code", ["def f():\n    return 1\n\n", "    return 1\n", "x = {\n    'a': 1,\n}\n"])
def test_in_a_long_block_every_row_has_its_colours(code: str) -> None:
    assert set(painted(code * 300)) == set(painted(code))


def test_scripts_and_styles_of_a_page_have_their_own_colours() -> None:
    script, style = "  const x = 1;\n  return;\n", "  a {\n    color: red;\n  }\n"
    page = f"<style>\n{style * 40}</style>\n<p>let it</p>\n<script>\n{script * 80}</script>\n<p>let it</p>\n"
    rows = painted(page, "html")
    assert set(rows[1:121]) <= {*painted(style, "css")}
    assert set(rows[124:284]) <= {*painted(script, "js")}
    assert rows[122] == rows[-2] == painted("<p>let it</p>", "html")[0]


@given(
    st.lists(st.sampled_from(PIECES), max_size=40).map("".join), st.sampled_from(sorted(LANGUAGES)), st.integers(1, 9)
)
def test_code_stays_as_it_was_written_however_it_was_cut(code: str, language: str, piece: int) -> None:
    whole = rows_of(block(code, language))
    assert rows_of(block(code, language), piece=piece) == whole
    assert "\n".join(plain(whole)) == "\n".join(
        [f"```{language}", *(line if line.strip() else "" for line in code.split("\n")), "```"]
    )


def test_every_language_that_is_named_is_known() -> None:
    assert [name for name in LANGUAGES if colors_for(name) is None] == []


@pytest.mark.parametrize(
    "long",
    ["x" * (MAX_ROW_CHARS + 1), '"""\n' + "words\n" * MAX_CONTEXT_CHARS + '"""', " x\n" * (MAX_LEXED_CHARS // 40)],
)
def test_what_is_too_long_goes_on_plain_and_whole(long: str) -> None:
    rows = painted(f"import a\n{long}\nimport b")
    assert rows[0] == "\x1b[35mimport\x1b[0m a"
    assert rows[-1] == "import b"
    assert plain(rows) == ["import a", *long.split("\n"), "import b"]


@pytest.mark.timeout(60)
def test_an_endless_row_is_shown_by_its_end_while_it_grows() -> None:
    markdown = Markdown(lambda: 80, colored=True)
    markdown.feed("```json\n")
    for _ in range(100):
        assert markdown.feed('["x"],' * 2000) == []
        assert len(markdown.growing()[0]) < 2 * MAX_ROW_CHARS
    assert plain(markdown.end()) == ['["x"],' * 200_000]


class Endless:
    """A lexer that never ends."""

    def get_tokens_unprocessed(self, text: str) -> Iterator[tuple[int, WordKind, str]]:
        while True:
            yield 0, ("Text",), ""


class Failing:
    def get_tokens_unprocessed(self, text: str) -> Iterator[tuple[int, WordKind, str]]:
        yield 0, ("Keyword",), text[:3]
        raise RecursionError


class Lying:
    """A lexer that returns words which are not in the text."""

    def get_tokens_unprocessed(self, text: str) -> Iterator[tuple[int, WordKind, str]]:
        yield 2, ("Keyword",), "\x1b[2J"
        yield 0, ("Comment",), "more"
        yield 9, ("Literal", "String"), text * 2


@pytest.mark.timeout(60)
@pytest.mark.parametrize("lexer", [Endless(), Failing()])
def test_a_lexer_that_fails_or_does_not_end_leaves_code_plain(
    lexer: Endless | Failing, caplog: pytest.LogCaptureFixture
) -> None:
    colors = CodeColors(lexer)
    assert [colors.end_row("import a"), colors.growing("imp"), colors.end_row("x")] == [
        [("import a", "")],
        [("imp", "")],
        [("x", "")],
    ]
    assert len(caplog.records) == isinstance(lexer, Failing), "it is told once, to who looks into the log"
    assert all(record.levelno == logging.WARNING for record in caplog.records)


def test_a_lexer_changes_no_letter() -> None:
    runs = CodeColors(Lying()).end_row("import a, b")
    assert "".join(text for text, _ in runs) == "import a, b"


@pytest.mark.processes
def test_lexers_are_imported_with_the_first_block_that_needs_one() -> None:
    code = """
import sys
from hermes.cli.markdown import Markdown
import hermes.cli.live_prompt, hermes.cli.terminal
for colored, text in ((False, "```python\\nx\\n```\\n"), (True, "`x`\\n```\\nx\\n```\\n"), (True, "```python\\n")):
    Markdown(lambda: 80, colored=colored).feed(text)
    print(any(name.startswith("pygments") for name in sys.modules))
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["False", "False", "True"]
