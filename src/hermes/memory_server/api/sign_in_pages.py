"""The sign-in pages as HTML. They run no script, load only one style sheet, and cannot be framed.

Forms of the sign-in pages: parsed within limits, and accepted only from our own pages.

A page of another site must not be able to press a button here. Each form carries a token that matches a cookie of the
same browser, the `Origin` of the request must be ours, and its `Host` a name that no other site can use.
"""

from __future__ import annotations

import hmac
import ipaddress
import re
import secrets
from html import escape
from importlib.resources import files
from typing import NamedTuple
from urllib.parse import parse_qsl, urlsplit

from fastapi import Request
from starlette.requests import ClientDisconnect
from starlette.responses import HTMLResponse, Response

from hermes.loopback import OWN_SITES, is_loopback, read_host
from hermes.memory_server import limits
from hermes.memory_server.api.server import Options, Server
from hermes.memory_server.db.database import Record
from hermes.memory_server.engine.sign_ins import label_of
from hermes.memory_server.faults import Invalid, Stranger, TooLarge

STYLE = "/oauth/style.css"
POLICY = "default-src 'none'; style-src 'self'; base-uri 'none'; frame-ancestors 'none'; form-action {targets}"
HEADERS = {
    "Cache-Control": "no-store",
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    # Forms must send their origin to our server; no other site may learn a URL with `state` in it.
    "Referrer-Policy": "same-origin",
}
DEFAULT_WORKSPACE = "hermes"
PLAIN = 'spellcheck="false" autocapitalize="none"'
NAME = f'maxlength="{limits.NAME_CHARS}" required {PLAIN}'
PERSON = f'maxlength="{limits.PERSON_CHARS}" autocomplete="name"'
CODE = f'maxlength="2000" required autocomplete="one-time-code" class="code" {PLAIN}'
USER_CODE = 'maxlength="20" required spellcheck="false" autocapitalize="characters" class="code"'
WITHOUT_SETTINGS = ("honcho-cli",)
"""Clients that store no settings: the page does not ask for the person's name."""


class ConsentFields(NamedTuple):
    """Values of the consent form: what was typed, and the error."""

    workspace: str = DEFAULT_WORKSPACE
    person: str = ""
    problem: str = ""


def show_page(title: str, body: str, status: int = 200, redirect: str = "") -> Response:
    """Return a page whose forms may be submitted to this server, and redirected to the client's `redirect`."""
    parts = urlsplit(redirect)
    # A policy cannot name an IPv6 address, so it names only the scheme.
    target = f"{parts.scheme}:" if "[" in parts.netloc else f"{parts.scheme}://{parts.netloc}"
    targets = f"'self' {target}" if redirect else "'self'"
    head = (
        '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta name="color-scheme" content="light dark"><title>{escape(title)}</title>'
        f'<link rel="stylesheet" href="{STYLE}">'
    )
    main = f'<main><p class="brand">Hermes memory</p><h1>{escape(title)}</h1>{body}</main>'
    html = f'<!doctype html><html lang="en"><head>{head}</head><body>{main}</body></html>'
    return HTMLResponse(html, status, headers={**HEADERS, "Content-Security-Policy": POLICY.format(targets=targets)})


def show_consent(
    sign_in: Record, token: str, fields: ConsentFields, *, has_terminal: bool = False, status: int = 200
) -> Response:
    """Return the page on which the owner allows or denies a request."""
    by_terminal = "The server's terminal shows it. So does" if has_terminal else "Run"
    where = f"{by_terminal} <code>hermes memory approve {escape(label_of(sign_in))}</code> on the server."
    inputs = [_field("workspace", "Workspace", fields.workspace, "It is created if it does not exist.", NAME)]
    if sign_in.client not in WITHOUT_SETTINGS:
        hint = "What the program calls you in memory. You can leave it empty."
        inputs.append(_field("person", "Your name", fields.person, hint, PERSON))
    inputs.append(_field("code", "One-time code", "", f"{where} An admin key works too.", CODE))
    body = f"""
<p class="lead"><strong>{escape(sign_in.client)}</strong> asks to use one workspace of your memory: to read, add, change
and delete everything in it. It gets nothing of other workspaces.</p>
<dl>{_facts(sign_in)}</dl>
{_problem(fields.problem)}
<form method="post" action="/authorize" autocomplete="off">
<input type="hidden" name="request" value="{escape(sign_in.public_id)}">
<input type="hidden" name="token" value="{escape(token)}">
{"".join(inputs)}
<div class="buttons"><button name="decision" value="allow">Allow</button>
<button name="decision" value="deny" class="quiet" formnovalidate>Deny</button></div>
</form>
<p class="note">Deny it if you did not start this yourself. <code>hermes memory clients revoke</code> takes it back
later.</p>"""
    return show_page("Allow this program?", body, status, sign_in.redirect_uri)


def show_code_entry(token: str, user_code: str = "", problem: str = "", status: int = 200) -> Response:
    """Return the page on which a person types the code of a device."""
    field = _field("user_code", "Code of the device", user_code[:20], "Eight letters, such as BCDF-GHJK.", USER_CODE)
    body = f"""
<p class="lead">Type the code that the program shows you. On the next page you see which program it is and decide.</p>
{_problem(problem)}
<form method="post" action="/device" autocomplete="off">
<input type="hidden" name="token" value="{escape(token)}">
{field}
<div class="buttons"><button>Continue</button></div>
</form>
<p class="note">Use only a code that a program of yours shows. If somebody sent it to you, close this page: they would
get your memory.</p>"""
    return show_page("Connect a device", body, status)


def show_result(title: str, text: str, status: int = 200) -> Response:
    """Return a page with the outcome of a request."""
    return show_page(title, f'<p class="lead">{_prose(text)}</p>', status)


def show_style() -> Response:
    """Return the style sheet of all pages."""
    css = files("hermes.memory_server.api").joinpath("sign_in.css").read_text("utf-8")
    return Response(css, media_type="text/css", headers={"Cache-Control": "max-age=3600"})


def _facts(sign_in: Record) -> str:
    address = sign_in.address
    facts = {"Asked from": f"this computer ({address}), or a proxy on it" if is_loopback(address) else address}
    if sign_in.source:
        facts["Started in"] = sign_in.source
    if sign_in.redirect_uri:
        facts["Goes back to"] = urlsplit(sign_in.redirect_uri).netloc
    else:
        facts["Goes back to"] = "the program that showed the code"
    if sign_in.config_path:
        facts["Keeps it in"] = sign_in.config_path
    facts["Request"] = label_of(sign_in)
    return "".join(f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in facts.items())


def _field(name: str, label: str, value: str, hint: str, attributes: str) -> str:
    """Return a labelled input; `hint` is HTML."""
    return (
        f'<label for="{name}">{escape(label)}</label>'
        f'<input id="{name}" name="{name}" value="{escape(value)}" aria-describedby="{name}-hint" {attributes}>'
        f'<p class="hint" id="{name}-hint">{hint}</p>'
    )


def _problem(problem: str) -> str:
    return f'<p class="problem" role="alert">{_prose(problem)}</p>' if problem else ""


def _prose(text: str) -> str:
    """Return a sentence as HTML, with text between backquotes as code."""
    return re.sub("`([^`]+)`", r"<code>\1</code>", escape(text))


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
