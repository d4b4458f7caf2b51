"""A Honcho server with sign-in, as a client sees it: OAuth endpoints in front of a memory server. Tokens expire;
refresh tokens are used once; for a short time the newest used one returns the same tokens, and a later use revokes
the grant. Faults can be injected."""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Literal
from urllib.parse import parse_qsl, urlencode, urlsplit

import httpx

from tests.plain_http import PLAIN

Form = Mapping[str, str]
Fault = Literal[
    "500", "hang", "drip", "reset", "reset after", "garbage", "no life", "API key", "invalid_client", "invalid_request",
    "expired_token", "slow_down", "denied",
]  # fmt: skip
DEVICE_GRANT = "urn:ietf:params:oauth:grant-type:device_code"


class Issuer:
    """A server on loopback. `upstream` is the memory server that answers requests with a valid token."""

    def __init__(self, upstream: str = "", *, life_seconds: float = 3600, grace_seconds: float = 30) -> None:
        self.life_seconds, self.grace_seconds = life_seconds, grace_seconds
        self.has_metadata = self.has_devices = True
        self.device_seconds, self.device_interval = 600.0, 1.0
        self.config: dict[str, Any] = {}
        self.fault: Callable[[str], Fault | None] = lambda grant: None  # noqa: ARG005
        """Chooses the fault of a request by its grant type."""
        self.before_answer: Callable[[], object] = lambda: None
        """Called after a refresh token was used, before the response is sent."""
        self.on_pending: Callable[[], object] = lambda: None
        """Called when a device polls before the person has decided."""
        self.now: Callable[[], float] = time.time
        self.counts: Counter[str] = Counter()
        self.asked: list[tuple[str, str, Form]] = []
        self.issued: list[str] = []
        """Every secret that was issued: tokens and codes."""
        self.revoked: list[str] = []
        self.is_approved = True
        self._refresh: dict[str, int] = {}
        self._spent: dict[int, tuple[str, float, dict[str, Any]]] = {}
        self._access: dict[str, tuple[int, float]] = {}
        self._codes: dict[str, tuple[str, str, str]] = {}
        self._devices: dict[str, bool | None] = {}
        self._dead: set[int] = set()
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._upstream = httpx.Client(base_url=upstream, timeout=60, verify=PLAIN) if upstream else None
        issuer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                issuer._serve(self)

            do_POST = do_PUT = do_DELETE = do_GET

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))

    def __enter__(self) -> Issuer:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
        if self._upstream is not None:
            self._upstream.close()

    def grant(self, *, valid_seconds: float | None = None) -> dict[str, Any]:
        """Return keys of honcho.json for a new sign-in whose token is valid for `seconds`."""
        pair = self._new_pair(len(self.issued))
        life = self.life_seconds if valid_seconds is None else valid_seconds
        self._access[pair["access_token"]] = (self._refresh[pair["refresh_token"]], self.now() + life)
        return {
            "apiKey": pair["access_token"],
            "oauth": {
                "refreshToken": pair["refresh_token"],
                "expiresAt": self.now() + life,
                "clientId": "hermes-agent",
                "tokenEndpoint": f"{self.url}/oauth/token",
            },
        }

    def end_tokens(self) -> None:
        """Invalidate every access token, regardless of its announced life."""
        self._access.clear()

    def revoke_all(self) -> None:
        self._dead |= set(self._refresh.values()) | set(self._spent)

    def decide(self, *, allowed: bool) -> None:
        """Let a person answer every waiting device."""
        self._devices = dict.fromkeys(self._devices, allowed)

    def _serve(self, handler: BaseHTTPRequestHandler) -> None:
        content = handler.rfile.read(int(handler.headers.get("Content-Length") or 0))
        path = urlsplit(handler.path).path
        try:
            if path == "/.well-known/oauth-authorization-server":
                self._answer(handler, 200 if self.has_metadata else 404, self._metadata())
            elif path == "/authorize":
                self._authorize(handler, dict(parse_qsl(urlsplit(handler.path).query)))
            elif path.startswith("/oauth/"):
                form = dict(parse_qsl(content.decode()))
                self.asked.append((handler.command, path, form))
                self._serve_oauth(handler, path, form)
            else:
                self._pass_on(handler, content)
        except OSError:
            handler.close_connection = True  # nobody waits any more

    def _metadata(self) -> dict[str, Any]:
        grants = ["authorization_code", "refresh_token", *([DEVICE_GRANT] if self.has_devices else [])]
        return {
            "issuer": self.url,
            "authorization_endpoint": f"{self.url}/authorize",
            "token_endpoint": f"{self.url}/oauth/token",
            "device_authorization_endpoint": f"{self.url}/oauth/device_authorization",
            "revocation_endpoint": f"{self.url}/oauth/revoke",
            "grant_types_supported": grants,
            "code_challenge_methods_supported": ["S256"],
        }

    def _authorize(self, handler: BaseHTTPRequestHandler, query: Form) -> None:
        """Redirect at once with the person's yes or no; refuse invalid requests."""
        if not query:
            self._answer(handler, 400, {"error": "invalid_request"})
            return
        assert query["response_type"] == "code"
        assert query["code_challenge_method"] == "S256"
        code = self._secret("code-")
        self._codes[code] = (query["code_challenge"], query["redirect_uri"], query["client_id"])
        back = {"code": code} if self.is_approved else {"error": "access_denied"}
        handler.send_response(302)
        handler.send_header("Location", f"{query['redirect_uri']}?{urlencode({**back, 'state': query['state']})}")
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    def _serve_oauth(self, handler: BaseHTTPRequestHandler, path: str, form: Form) -> None:
        grant = form.get("grant_type", path.rsplit("/", 1)[-1])
        fault = self.fault(grant)
        self.counts[grant] += 1
        if fault == "hang":
            self._over.wait()
        if fault == "drip":
            handler.wfile.write(b"HTTP/1.1 200 OK\r\n")
            while not self._over.wait(0.05):
                handler.wfile.write(b"X-Wait: 1\r\n")
        if fault in ("hang", "drip", "reset"):
            handler.close_connection = True
            return
        if fault == "500":
            self._answer(handler, 500, {"detail": "on purpose"})
        elif fault == "garbage":
            self._answer(handler, 200, "no token")
        elif fault in ("invalid_client", "invalid_request", "expired_token", "slow_down"):
            self._answer(handler, 400, {"error": fault})
        else:
            with self._lock:
                status, told = self._judge(path, form)
            if status == 200 and grant == "refresh_token":
                self.before_answer()
            if fault == "reset after":
                handler.close_connection = True
                return
            told = {name: value for name, value in told.items() if fault != "no life" or name != "expires_in"}
            if fault == "API key":
                told["access_token"] = "key"
            self._answer(handler, status, told)

    def _judge(self, path: str, form: Form) -> tuple[int, dict[str, Any]]:
        if path == "/oauth/revoke":
            self.revoked.append(form["token"])
            self._dead.add(self._refresh.get(form["token"], -1))
            return 200, {}
        if path == "/oauth/device_authorization":
            code = self._secret("device-")
            self._devices[code] = None
            page = f"{self.url}/device"
            return 200, {
                "device_code": code,
                "user_code": "WDJB-MJHT",
                "verification_uri": page,
                "verification_uri_complete": f"{page}?user_code=WDJB-MJHT",
                "expires_in": self.device_seconds,
                "interval": self.device_interval,
            }
        kind = form.get("grant_type")
        if kind == "authorization_code":
            return self._exchange_code(form)
        if kind == DEVICE_GRANT:
            allowed = self._devices.get(form["device_code"])
            if allowed is None:
                self.on_pending()
                return 400, {"error": "authorization_pending"}
            return (200, self._new_pair(len(self.issued))) if allowed else (400, {"error": "access_denied"})
        return self._rotate(form["refresh_token"])

    def _exchange_code(self, form: Form) -> tuple[int, dict[str, Any]]:
        challenge, redirect, client = self._codes.pop(form["code"], ("", "", ""))
        made = base64.urlsafe_b64encode(hashlib.sha256(form["code_verifier"].encode()).digest()).rstrip(b"=").decode()
        if (made, form["redirect_uri"], form["client_id"]) != (challenge, redirect, client):
            return 400, {"error": "invalid_grant"}
        return 200, self._new_pair(len(self.issued))

    def _rotate(self, token: str) -> tuple[int, dict[str, Any]]:
        family = self._refresh.pop(token, None)
        if family is not None and family not in self._dead:
            self.counts["exchanges"] += 1
            pair = self._new_pair(family)
            self._spent[family] = (token, self.now(), pair)
            return 200, pair
        for spent_family, (spent, at, pair) in self._spent.items():
            if spent == token and self.now() - at <= self.grace_seconds and spent_family not in self._dead:
                self.counts["replays"] += 1
                return 200, pair
            if spent == token:
                self._dead.add(spent_family)
                self.counts["revoked"] += 1
        return 400, {"error": "invalid_grant", "error_description": "the refresh token was used before"}

    def _new_pair(self, family: int) -> dict[str, Any]:
        access, refresh = self._secret("hch-at-"), self._secret("hch-rt-")
        self._refresh[refresh] = family
        self._access[access] = (family, self.now() + self.life_seconds)
        return {
            "access_token": access,
            "refresh_token": refresh,
            "expires_in": self.life_seconds,
            "token_type": "Bearer",
            "scope": "write",
            **({"config": self.config} if self.config else {}),
        }

    def _secret(self, prefix: str) -> str:
        self.issued.append(f"{prefix}{secrets.token_urlsafe(32)}")
        return self.issued[-1]

    def _pass_on(self, handler: BaseHTTPRequestHandler, content: bytes) -> None:
        token = (handler.headers.get("Authorization") or "").removeprefix("Bearer ")
        family, until = self._access.get(token, (-1, 0.0))
        if handler.path != "/health" and (until <= self.now() or family in self._dead):
            self.counts["401"] += 1
            self._answer(handler, 401, {"detail": "the token has ended"})
        elif self._upstream is None:
            self._answer(handler, 200, {})
        else:
            headers = {"Content-Type": handler.headers.get("Content-Type") or "application/json"}
            found = self._upstream.request(handler.command, handler.path, content=content, headers=headers)
            self._answer(handler, found.status_code, found.content)

    @staticmethod
    def _answer(handler: BaseHTTPRequestHandler, status: int, body: Any) -> None:
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        handler.send_response(status)
        handler.send_header("Content-Type", "application/json")
        handler.send_header("Content-Length", str(len(raw)))
        handler.end_headers()
        handler.wfile.write(raw)
