"""Keys in request headers."""

from __future__ import annotations

import pytest

from hermes.loopback import shows_key


@pytest.mark.parametrize(
    ("authorization", "key", "shown"),
    [
        ("Bearer sesame", "sesame", True),
        ("bearer  sesame ", "sesame", True),
        ("Bearer sesame!", "sesame", False),
        ("Bearer sesam", "sesame", False),
        ("Bearer sés", "sesame", False),
        ("Basic sesame", "sesame", False),
        ("sesame", "sesame", False),
        ("Bearer", "sesame", False),
        ("Bearer ", "", False),
        ("", "", False),
        (None, "", False),
        (None, "sesame", False),
    ],
)
def test_key_is_shown_whole_and_as_a_bearer_token_alone(authorization: str | None, key: str, shown: bool) -> None:
    assert shows_key(authorization, key) is shown
