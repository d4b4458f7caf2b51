"""Text with secrets is shown without them."""

from __future__ import annotations

from urllib.parse import quote, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.redaction import hide_passwords, hide_tokens, hide_url


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("https://api.example.com/v1", "https://api.example.com/v1"),
        ("https://bob:s3cret@host:8080/v1", "https://bob:(hidden)@host:8080/v1"),
        ("https://key-alone@host/v1", "https://(hidden)@host/v1"),
        ("https://:s3cret@host", "https://:(hidden)@host"),
        ("https://bob:p@ss@host/a@b", "https://bob:(hidden)@host/a@b"),
        ("GET http://a:b@c/d and ftp://e:f@g.", "GET http://a:(hidden)@c/d and ftp://e:(hidden)@g."),
        ("write to bob@example.com", "write to bob@example.com"),
        ("https://host/@bob:x@y", "https://host/@bob:x@y"),
    ],
)
def test_passwords_in_urls_are_hidden_and_nothing_else(text: str, shown: str) -> None:
    assert hide_passwords(text) == shown
    assert hide_tokens(text) == shown


@pytest.mark.contract("8.4")
def test_tokens_of_a_sign_in_are_hidden_whole() -> None:
    for token in ("hch-at-a", "hch-rt-Zm9v.YmFy~baz+/=", "hch-at-eyJhbGciOi.eyJz.sig_-"):
        assert hide_tokens(f"it is '{token}', {token}.") == "it is '(hidden)', (hidden)"


def test_a_url_without_its_scheme_is_hidden_up_to_the_host() -> None:
    assert hide_url("bob:s3cret@host/v1") == "(hidden)@host/v1"
    assert hide_url("host/v1") == "host/v1"


@given(st.text("abc:@%!$&*+=~", max_size=12), st.text("xyz:@%!$&*+=~", min_size=1, max_size=12))
def test_no_password_is_shown_however_it_is_written(user: str, password: str) -> None:
    for written in (password, quote(password, safe="")):
        url = f"https://{quote(user, safe='')}:{written}@host.example/v1"
        shown = hide_url(url)
        assert urlsplit(shown).password == "(hidden)"
        assert urlsplit(shown).hostname == "host.example"
