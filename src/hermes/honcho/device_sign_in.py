"""Sign-in with a code that a person types on another device (RFC 8628): for SSH and containers."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from hermes.honcho.grant import TokenResponse
from hermes.honcho.oauth_endpoints import DEVICE_GRANT, Endpoints, SignInSource
from hermes.honcho.token_requests import TokenError, ask_token, check_private, post_form, printable

USUAL_INTERVAL_SECONDS, SLOWER_SECONDS, MAX_INTERVAL_SECONDS = 5.0, 5.0, 60.0
USUAL_LIFE_SECONDS, MAX_LIFE_SECONDS = 600.0, 3_600.0
ENDINGS = {
    "access_denied": "the sign-in was declined",
    "expired_token": "the code expired before anybody entered it",
}
PENDING = frozenset({"authorization_pending", "slow_down", "temporarily_unavailable", "server_error"})
"""Errors after which a device polls again; any other ends the sign-in (RFC 8628, 3.5)."""


def sign_in_by_code(
    endpoints: Endpoints,
    source: SignInSource,
    say: Callable[[str], object],
    sleep: Callable[[float], None] = time.sleep,
) -> TokenResponse:
    """Show a code, and wait until a person enters it on the server's page. Raises TokenError. Blocks."""
    asked = {"client_id": endpoints.client_id, "scope": endpoints.scope, "source": source}
    device = post_form(endpoints.device, asked)
    response: Mapping[str, Any] = device if isinstance(device, dict) else {}
    code, user_code, page = (str(response.get(name, "")) for name in ("device_code", "user_code", "verification_uri"))
    if not code or not user_code or not page:
        raise TokenError("the server sent no sign-in code")
    check_private(page)
    say(f"Open {printable(page)} in any browser, on this or another device, and type the code {printable(user_code)}")
    if whole := response.get("verification_uri_complete"):
        say(f"or open {printable(str(whole))}")
    say("Waiting until you have; Ctrl-C ends it.")
    form = {"grant_type": DEVICE_GRANT, "device_code": code, "client_id": endpoints.client_id}
    pause = _seconds(response.get("interval"), USUAL_INTERVAL_SECONDS, MAX_INTERVAL_SECONDS)
    end = time.monotonic() + _seconds(response.get("expires_in"), USUAL_LIFE_SECONDS, MAX_LIFE_SECONDS)
    while time.monotonic() < end:
        sleep(pause)
        try:
            return ask_token(endpoints.token, form)
        except TokenError as error:
            if error.code and error.code not in PENDING:
                raise TokenError(ENDINGS.get(error.code, error.message), error.code) from None
            if error.code != "authorization_pending":  # slow_down, or a failure that may pass
                pause = min(pause + SLOWER_SECONDS, MAX_INTERVAL_SECONDS)
    raise TokenError(ENDINGS["expired_token"], "expired_token")


def _seconds(given: object, usual: float, most: float) -> float:
    is_number = isinstance(given, int | float) and not isinstance(given, bool) and given > 0
    return min(float(given), most) if is_number else usual  # type: ignore[arg-type]
