"""The consent pages of sign-in: the owner sees the requesting program, and allows or denies it with a one-time code or
the admin key."""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import urlencode, urlsplit

from fastapi import APIRouter, Request, Response
from fastapi.routing import APIRoute

from hermes.memory_server import limits
from hermes.memory_server.api import sign_in_pages
from hermes.memory_server.api import sign_in_pages as pages
from hermes.memory_server.api.auth import read_key
from hermes.memory_server.api.faults import STATUS
from hermes.memory_server.api.guarded_route import RouteHandler
from hermes.memory_server.api.oauth import AUTHORIZE, DEVICE, find_problem, read_address
from hermes.memory_server.api.server import Server, ServerDep
from hermes.memory_server.db.database import Record, Tx
from hermes.memory_server.engine import sign_ins
from hermes.memory_server.engine.grants import OAuthRefusal, accepts_redirect, find_client
from hermes.memory_server.faults import Fault, Invalid, TooMany, Unauthorized

CHALLENGE = re.compile(r"[A-Za-z0-9_-]{43}")
MAX_PATH_CHARS = 200
NEW = pages.ConsentFields()
WRONG = "This code does not fit this request. `hermes memory approve` on the server prints a new one."
GONE = "This request has expired or was decided already. Begin again in the program."


class _Page(APIRoute):
    """A route whose errors are HTML pages."""

    def get_route_handler(self) -> RouteHandler:
        answer = super().get_route_handler()

        async def answer_or_explain(request: Request) -> Response:
            try:
                return await answer(request)
            except Fault as fault:
                return pages.show_result("That did not work", fault.reason, STATUS[type(fault)])

        return answer_or_explain


router = APIRouter(include_in_schema=False, route_class=_Page)


class _Choice(NamedTuple):
    """The owner's choice on the page."""

    is_allowed: bool
    workspace: str
    person: str
    code: str


@router.get(pages.STYLE)
def show_style() -> Response:
    return pages.show_style()


@router.get(AUTHORIZE)
async def ask_owner(request: Request, here: ServerDep) -> Response:
    """Show the program that requests access. An invalid client or redirect shows an error instead of redirecting."""
    sign_in_pages.refuse_foreign_view(request, here.options)
    form = sign_in_pages.parse_form(request.url.query)
    client = await here.read(lambda tx: find_client(tx, form.get("client_id", "")))
    if client is None:
        raise Invalid("The program that sent you here is not known to this server: its client_id is missing or unknown")
    redirect_uri = form.get("redirect_uri", "")
    if not accepts_redirect(client, redirect_uri):
        raise Invalid(
            f"{client.name} cannot be redirected to {redirect_uri[:200] or 'an empty URL'}: "
            "this URL is not registered for it"
        )
    if (problem := _find_problem(form)) is not None:
        return _send_back(redirect_uri, form.get("state", ""), error=problem.error, error_description=problem.reason)
    browser = sign_in_pages.read_browser(request) or sign_in_pages.new_browser()
    config_path = "".join(filter(str.isprintable, form.get("config_path", "")))[:MAX_PATH_CHARS]
    asked = sign_ins.BrowserRequest(
        client.name, form.get("source", ""), read_address(request), redirect_uri, form["state"],
        form["code_challenge"], browser, config_path,
    )  # fmt: skip
    at = here.now()
    sign_in = await here.write(lambda tx: sign_ins.begin_in_browser(tx, asked, at))
    return await _show_consent(request, here, sign_in, browser)


@router.post(AUTHORIZE)
async def decide(request: Request, here: ServerDep) -> Response:
    """Process the owner's decision."""
    sign_in_pages.refuse_foreign_form(request, here.options)
    form = await sign_in_pages.read_form(request)
    public_id = form.get("request", "")
    browser = sign_in_pages.check_form_token(here, request, form, public_id)
    at = here.now()
    sign_in = await here.read(lambda tx: sign_ins.find_sign_in(tx, public_id, at))
    if sign_in is None:
        raise Invalid(GONE)
    choice = _Choice(
        form.get("decision") == "allow", form.get("workspace", "").strip(), form.get("person", "").strip(),
        form.get("code", "").strip(),
    )  # fmt: skip
    if sign_in.decision == "open" and (refused := await _decide(here, sign_in, choice)) is not None:
        shown = pages.ConsentFields(choice.workspace, choice.person, refused.reason)
        status = 403 if isinstance(refused, Unauthorized) else STATUS[type(refused)]
        return _consent(here, sign_in, browser, shown, status)
    return await _show_outcome(here, public_id)


@router.get(DEVICE)
async def ask_for_code(request: Request, here: ServerDep) -> Response:
    """Show the form for the code of a device; a code in the address only fills it in."""
    sign_in_pages.refuse_foreign_view(request, here.options)
    browser = sign_in_pages.read_browser(request) or sign_in_pages.new_browser()
    user_code = sign_in_pages.parse_form(request.url.query).get("user_code", "")
    page = pages.show_code_entry(sign_in_pages.form_token(here, browser, DEVICE), user_code)
    return _with_cookie(page, request, here, browser)


@router.post(DEVICE)
async def take_code(request: Request, here: ServerDep) -> Response:
    """Show the program that requests access, after the code of a device was typed."""
    sign_in_pages.refuse_foreign_form(request, here.options)
    form = await sign_in_pages.read_form(request)
    browser = sign_in_pages.check_form_token(here, request, form, DEVICE)
    typed, key, at = form.get("user_code", ""), here.options.token_key, here.now()
    if wait_seconds := here.wrong_codes.begin_try(at):
        return pages.show_code_entry(form["token"], typed, _too_many(wait_seconds), 429)
    sign_in = await here.read(lambda tx: sign_ins.find_by_user_code(tx, key, typed, at))
    if sign_in is None:
        problem = "No program waits with this code. Check the letters; codes expire after ten minutes."
        return pages.show_code_entry(form["token"], typed, problem, 403)
    here.wrong_codes.forgive()
    return await _show_consent(request, here, sign_in, browser)


async def _show_consent(request: Request, here: Server, sign_in: Record, browser: str) -> Response:
    if here.options.show_code is not None and sign_in.approval_hash is None:
        code = await here.write(lambda tx: sign_ins.new_approval(tx, sign_in))
        label = sign_ins.label_of(sign_in)
        here.options.show_code(f"{sign_in.client} asks to sign in, request {label}: one-time code {code}")
    page = _consent(here, sign_in, browser)
    return _with_cookie(page, request, here, browser)


def _consent(
    here: Server, sign_in: Record, browser: str, shown: pages.ConsentFields = NEW, status: int = 200
) -> Response:
    token, has_terminal = sign_in_pages.form_token(here, browser, sign_in.public_id), here.options.show_code is not None
    return pages.show_consent(sign_in, token, shown, has_terminal=has_terminal, status=status)


async def _decide(here: Server, sign_in: Record, choice: _Choice) -> Fault | None:
    """Store the decision. Return the reason if that is not possible."""
    if not choice.is_allowed:
        await here.write(lambda tx: sign_ins.deny(tx, sign_in))
        return None
    if len(choice.person) > limits.PERSON_CHARS or not choice.person.isprintable():
        return Invalid(f"Your name can have {limits.PERSON_CHARS} printable characters")
    at = here.now()
    is_admin = _is_admin_key(choice.code, here)
    wait_seconds = 0 if is_admin else here.wrong_codes.begin_try(at)
    if wait_seconds:
        return TooMany(_too_many(wait_seconds))

    def run(tx: Tx) -> bool:
        open_still = sign_ins.find_sign_in(tx, sign_in.public_id, at)
        if open_still is None or open_still.decision != "open":
            return True  # decided concurrently; the outcome is shown
        if not is_admin and not sign_ins.has_approval(tx, open_still, choice.code):
            return False
        sign_ins.allow(tx, open_still, choice.workspace, choice.person, at)
        return True

    problem: Fault | None = None
    try:
        if not await here.write(run):
            return Unauthorized(WRONG)
    except Fault as fault:  # the code was right, another field was not
        problem = fault
    if not is_admin:
        here.wrong_codes.forgive()
    return problem


async def _show_outcome(here: Server, public_id: str) -> Response:
    """Redirect the browser to its client, or show the outcome of the request."""
    at = here.now()
    sign_in = await here.read(lambda tx: sign_ins.find_sign_in(tx, public_id, at))
    if sign_in is None or sign_in.decision == "open":
        raise Invalid(GONE)
    if sign_in.redirect_uri and sign_in.decision == "allowed":
        return _send_back(sign_in.redirect_uri, sign_in.state, code=sign_ins.code_of(here.options.token_key, sign_in))
    if sign_in.redirect_uri and sign_in.decision == "denied":
        told = {"error": "access_denied", "error_description": "The owner denied the request"}
        return _send_back(sign_in.redirect_uri, sign_in.state, **told)
    if sign_in.decision == "denied":
        return pages.show_result("Denied", f"{sign_in.client} gets no access. You can close this page.")
    return pages.show_result(
        "Allowed", f"{sign_in.client} continues by itself in a few seconds. You can close this page."
    )


def _find_problem(form: sign_in_pages.FormFields) -> OAuthRefusal | None:
    """Return the error in the parameters of a known client, which that client receives."""
    if form.get("response_type") != "code":
        return OAuthRefusal("unsupported_response_type", "response_type has to be code")
    if form.get("code_challenge_method") != "S256" or CHALLENGE.fullmatch(form.get("code_challenge", "")) is None:
        return OAuthRefusal("invalid_request", "PKCE is required: code_challenge, with code_challenge_method S256")
    if not form.get("state"):
        return OAuthRefusal("invalid_request", "state is required")
    return find_problem(form)


def _send_back(redirect_uri: str, state: str, **told: str) -> Response:
    if state:
        told["state"] = state
    mark = "&" if urlsplit(redirect_uri).query else "?"
    headers = {**pages.HEADERS, "Location": f"{redirect_uri}{mark}{urlencode(told)}"}
    return Response(status_code=303, headers=headers)


def _with_cookie(page: Response, request: Request, here: Server, browser: str) -> Response:
    is_secure = sign_in_pages.find_site(request, here.options).startswith("https:")
    page.set_cookie(sign_in_pages.COOKIE, browser, httponly=True, samesite="lax", secure=is_secure)
    return page


def _is_admin_key(code: str, here: Server) -> bool:
    try:
        return read_key(code, here.options.jwt_secret, here.now()).admin
    except Unauthorized:
        return False


def _too_many(wait_seconds: int) -> str:
    return f"Too many wrong codes. Try again in {wait_seconds} seconds."
