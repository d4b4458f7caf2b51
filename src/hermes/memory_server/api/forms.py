"""Forms of the sign-in pages: parsed within limits, and accepted only from our own pages.

A page of another site must not be able to press a button here. Each form carries a token that matches a cookie of the
same browser, the `Origin` of the request must be ours, and its `Host` a name that no other site can use."""

from __future__ import annotations

import hmac
import ipaddress
import secrets
from urllib.parse import parse_qsl

from fastapi import Request
from starlette.requests import ClientDisconnect

from hermes.loopback import OWN_SITES, read_host
from hermes.memory_server import limits
from hermes.memory_server.api.server import Options, Server
from hermes.memory_server.faults import Invalid, Stranger, TooLarge

FORM_TYPE = "application/x-www-form-urlencoded"
MAX_FIELDS = 30
COOKIE = "hermes_sign_in"
COOKIE_BYTES = 16
FormFields = dict[str, str]


async def read_form(request: Request) -> FormFields:
    """Return the fields of a submitted form. Each may occur once (RFC 6749, 3.1)."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != FORM_TYPE:
        raise Invalid(f"Send the parameters as {FORM_TYPE}")
    body = b""
    try:
        async for part in request.stream():
            body += part
            if len(body) > limits.FORM_BYTES:
                raise TooLarge(f"A form can have at most {limits.FORM_BYTES} bytes")
    except ClientDisconnect as error:  # nobody reads this
        raise Invalid("The request has no end") from error
    return parse_form(body.decode("latin-1"))


def parse_form(text: str) -> FormFields:
    """Return the fields of a query string or a form body."""
    try:
        pairs = parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=MAX_FIELDS)
    except ValueError as error:
        raise Invalid("The parameters cannot be read: use UTF-8 and at most 30 of them") from error
    form = dict(pairs)
    if len(form) != len(pairs):
        raise Invalid("A parameter is given twice")
    for name, value in form.items():
        if len(value) > limits.OAUTH_CHARS or "\0" in value:
            raise Invalid(f"{name[:40]} is longer than {limits.OAUTH_CHARS} characters, or holds NUL")
    return form


def find_site(request: Request, options: Options) -> str:
    """Return the origin of this server, as people reach it. Refuse host names that another site could point here."""
    if options.public_url:
        return options.public_url
    host = request.headers.get("host", "").lower()
    try:
        if (name := read_host(host)) != "localhost":
            ipaddress.ip_address(name)
    except ValueError:
        raise Stranger(
            "The `Host` header is not an address of this server; "
            "set AUTH_PUBLIC_URL to the URL at which people reach it"
        ) from None
    return f"{request.url.scheme}://{host}"


def refuse_foreign_view(request: Request, options: Options) -> None:
    """Refuse to show a page in a frame, or to load it as an image or script."""
    find_site(request, options)
    if request.headers.get("sec-fetch-dest", "document") != "document":
        raise Stranger("This page cannot be shown in a frame; open it in a browser window")


def refuse_foreign_form(request: Request, options: Options) -> None:
    """Refuse a form that was not submitted by one of our pages."""
    own = find_site(request, options)
    is_own = request.headers.get("sec-fetch-site", "same-origin") in OWN_SITES
    if request.headers.get("origin", "").lower() != own or not is_own:
        raise Stranger(f"This form was not sent by a page of {own}")


def read_browser(request: Request) -> str:
    """Return the id of this browser from its cookie; "" if it has none."""
    value = request.cookies.get(COOKIE, "")
    return value if len(value) == 2 * COOKIE_BYTES and set(value) <= set("0123456789abcdef") else ""


def new_browser() -> str:
    """Return a new id for the cookie of a browser."""
    return secrets.token_hex(COOKIE_BYTES)


def form_token(here: Server, browser: str, about: str) -> str:
    """Return the token that a form in this browser must carry for this request."""
    return here.options.token_key.mac(f"form:{browser}:{about}").hex()


def check_form_token(here: Server, request: Request, form: FormFields, about: str) -> str:
    """Return the browser in which a form was shown. Refuse a form that was shown in another one."""
    browser = read_browser(request)
    expected = form_token(here, browser, about)
    if not browser or not hmac.compare_digest(expected.encode(), form.get("token", "").encode()):
        raise Stranger("This form was not shown in this browser, or the browser kept no cookie; load the page again")
    return browser
