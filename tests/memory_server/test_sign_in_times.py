"""Sign-in over time: tokens rotate and expire, codes and requests expire, devices poll, attempts are counted."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio

from hermes.memory_server import limits
from hermes.memory_server.api.server import MAX_WRONG_CODES, Options
from hermes.memory_server.db.database import Database
from hermes.memory_server.db.schema import open_database
from hermes.memory_server.engine.grants import REFRESH_TOKEN_SECONDS, REPLAY_WINDOW_SECONDS
from hermes.memory_server.engine.sign_ins import (
    CODE_LIFETIME_SECONDS,
    EXPIRED_KEPT_SECONDS,
    INTERVAL_SECONDS,
    REQUEST_LIFETIME_SECONDS,
)
from tests.memory_server.inside import serving
from tests.memory_server.serving import SECRET
from tests.memory_server.signing import (
    ADMIN_KEY,
    LoopbackClient,
    consent_form,
    error_of,
    hidden_fields,
    parameters_of,
    poll_form,
)

pytestmark = pytest.mark.contract("8.5")
SITE = "http://localhost"
FORM = {"Origin": SITE}
WORK = "/v3/workspaces/hermes/queue/status"


class HandClock:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.seconds = 1_800_000_000.0

    def now(self) -> float:
        return self.seconds

    async def sleep(self, seconds: float) -> None:
        self.seconds += seconds


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def shown() -> list[str]:
    """Collect the output of the server's terminal."""
    return []


@pytest_asyncio.fixture
async def client(tmp_path: Path, clock: HandClock, shown: list[str]) -> AsyncIterator[httpx.AsyncClient]:
    database: Database = open_database(tmp_path)
    options = Options(use_auth=True, jwt_secret=SECRET, show_code=shown.append)
    async with serving(database, clock, options=options) as made:
        yield made


async def allowed(client: httpx.AsyncClient, asking: LoopbackClient) -> str:
    """Return the code in the redirect."""
    page = (await client.get(asking.link(SITE))).text
    answer = await client.post("/authorize", data=consent_form(page), headers=FORM)
    return parameters_of(answer)["code"]


async def signed_in(client: httpx.AsyncClient, asking: LoopbackClient) -> dict[str, Any]:
    code = await allowed(client, asking)
    tokens: dict[str, Any] = (await client.post("/oauth/token", data=asking.exchange(code))).json()
    return tokens


async def renewed(client: httpx.AsyncClient, token: str) -> httpx.Response:
    return await client.post("/oauth/token", data=LoopbackClient().renewal(token))


async def opens(client: httpx.AsyncClient, token: str) -> bool:
    answer = await client.get(WORK, headers={"Authorization": f"Bearer {token}"})
    assert answer.status_code in (200, 401)
    return answer.is_success


async def test_access_token_expires_and_is_renewed(client: httpx.AsyncClient, clock: HandClock) -> None:
    tokens = await signed_in(client, LoopbackClient())
    clock.seconds += tokens["expires_in"] - 1
    assert await opens(client, tokens["access_token"])
    clock.seconds += 1
    assert not await opens(client, tokens["access_token"])
    following = (await renewed(client, tokens["refresh_token"])).json()
    assert "config" not in following  # what was chosen at consent is told once
    assert await opens(client, following["access_token"])
    assert not await opens(client, following["refresh_token"])


async def test_newest_spent_token_gives_the_same_pair_for_a_moment(client: httpx.AsyncClient, clock: HandClock) -> None:
    first = await signed_in(client, LoopbackClient())
    pair = (await renewed(client, first["refresh_token"])).json()
    clock.seconds += REPLAY_WINDOW_SECONDS
    again = (await renewed(client, first["refresh_token"])).json()
    assert again == {**pair, "expires_in": pair["expires_in"] - REPLAY_WINDOW_SECONDS}
    assert pair["refresh_token"] != first["refresh_token"]
    assert await opens(client, pair["access_token"])


async def test_many_that_exchange_one_token_at_once_get_one_pair(client: httpx.AsyncClient) -> None:
    first = await signed_in(client, LoopbackClient())
    answers = await asyncio.gather(*(renewed(client, first["refresh_token"]) for _ in range(32)))
    [pair] = {answer.text for answer in answers}
    assert await opens(client, json.loads(pair)["access_token"])


async def test_spent_token_that_comes_late_ends_the_grant(client: httpx.AsyncClient, clock: HandClock) -> None:
    first = await signed_in(client, LoopbackClient())
    pair = (await renewed(client, first["refresh_token"])).json()
    clock.seconds += REPLAY_WINDOW_SECONDS + 1
    assert error_of(await renewed(client, first["refresh_token"])) == "invalid_grant"
    assert not await opens(client, pair["access_token"])
    assert not await opens(client, first["access_token"])
    assert error_of(await renewed(client, pair["refresh_token"])) == "invalid_grant"


async def test_older_spent_token_ends_the_grant_at_once(client: httpx.AsyncClient) -> None:
    first = await signed_in(client, LoopbackClient())
    second = (await renewed(client, first["refresh_token"])).json()
    third = (await renewed(client, second["refresh_token"])).json()
    assert error_of(await renewed(client, first["refresh_token"])) == "invalid_grant"
    assert not await opens(client, third["access_token"])


async def test_grant_that_is_renewed_lives_on_and_an_unused_one_ends(
    client: httpx.AsyncClient, clock: HandClock
) -> None:
    tokens = await signed_in(client, LoopbackClient())
    for _ in range(3):
        clock.seconds += REFRESH_TOKEN_SECONDS - 1
        tokens = (await renewed(client, tokens["refresh_token"])).json()
    clock.seconds += REFRESH_TOKEN_SECONDS
    assert error_of(await renewed(client, tokens["refresh_token"])) == "invalid_grant"


async def test_expired_rows_are_removed(client: httpx.AsyncClient, clock: HandClock, tmp_path: Path) -> None:
    await signed_in(client, LoopbackClient())
    clock.seconds += REFRESH_TOKEN_SECONDS + 1
    tokens = await signed_in(client, LoopbackClient())
    await renewed(client, tokens["refresh_token"])
    database = open_database(tmp_path)
    counts = await database.read(
        lambda tx: [tx.exec_driver_sql(f"SELECT count(*) FROM {name}").scalar() for name in ("grants", "sign_ins")]
    )
    tokens_left = await database.read(lambda tx: tx.exec_driver_sql("SELECT count(*) FROM grant_tokens").scalar())
    await database.close()
    assert (counts, tokens_left) == ([1, 1], 4)


async def test_code_in_a_redirect_expires(client: httpx.AsyncClient, clock: HandClock) -> None:
    asking = LoopbackClient()
    code = await allowed(client, asking)
    clock.seconds += CODE_LIFETIME_SECONDS
    assert error_of(await client.post("/oauth/token", data=asking.exchange(code))) == "invalid_grant"


async def test_page_that_stood_open_too_long_gives_nothing(client: httpx.AsyncClient, clock: HandClock) -> None:
    page = (await client.get(LoopbackClient().link(SITE))).text
    clock.seconds += REQUEST_LIFETIME_SECONDS
    answer = await client.post("/authorize", data=consent_form(page), headers=FORM)
    assert answer.status_code == 422
    assert "expired" in answer.text


async def test_page_loaded_again_is_the_same_request_in_the_same_browser_alone(
    client: httpx.AsyncClient, shown: list[str]
) -> None:
    asking = LoopbackClient()
    first, again = [hidden_fields((await client.get(asking.link(SITE))).text) for _ in range(2)]
    assert first == again
    assert len(shown) == 1
    client.cookies.clear()
    assert hidden_fields((await client.get(asking.link(SITE))).text)["request"] != first["request"]


async def test_code_of_the_terminal_allows_its_own_request_alone(client: httpx.AsyncClient, shown: list[str]) -> None:
    pages = [(await client.get(LoopbackClient().link(SITE))).text for _ in range(2)]
    codes = [line.rpartition(" ")[2] for line in shown]
    crossed = await client.post("/authorize", data=consent_form(pages[0], codes[1]), headers=FORM)
    assert crossed.status_code == 403
    typed = f" {codes[0].lower().replace('-', ' ')} "
    assert parameters_of(await client.post("/authorize", data=consent_form(pages[0], typed), headers=FORM))["code"]
    # It allows one request, once.
    other = (await client.get(LoopbackClient().link(SITE))).text
    assert (await client.post("/authorize", data=consent_form(other, codes[0]), headers=FORM)).status_code == 403


async def test_five_wrong_codes_a_minute(client: httpx.AsyncClient, clock: HandClock, shown: list[str]) -> None:
    pages = [(await client.get(LoopbackClient().link(SITE))).text for _ in range(MAX_WRONG_CODES + 1)]
    tries = [
        consent_form(page, wrong)
        for page, wrong in zip(pages, ["", "x", "AAAA-BBBB", "é", "hch-at-x", "y"], strict=True)
    ]
    answers = [(await client.post("/authorize", data=form, headers=FORM)).status_code for form in tries]
    assert answers == [403] * MAX_WRONG_CODES + [429]
    right = consent_form(pages[0], shown[0].rpartition(" ")[2])
    late = await client.post("/authorize", data=right, headers=FORM)
    assert late.status_code == 429
    typed = {**hidden_fields((await client.get("/device")).text), "user_code": "BCDF-GHJK"}
    assert (await client.post("/device", data=typed, headers=FORM)).status_code == 429
    # The admin key cannot be guessed: its owner is never locked out.
    assert parameters_of(await client.post("/authorize", data=consent_form(pages[1], ADMIN_KEY), headers=FORM))["code"]
    clock.seconds += 60
    assert parameters_of(await client.post("/authorize", data=right, headers=FORM))["code"]


async def device(client: httpx.AsyncClient) -> dict[str, Any]:
    asked = {"client_id": "honcho-cli", "scope": "write", "source": "honcho-cli"}
    codes: dict[str, Any] = (await client.post("/oauth/device_authorization", data=asked)).json()
    return codes


async def consent_of(client: httpx.AsyncClient, user_code: str) -> httpx.Response:
    """Return the page after a person has typed the code of a device."""
    page = (await client.get("/device")).text
    return await client.post("/device", data={**hidden_fields(page), "user_code": user_code}, headers=FORM)


async def polled(client: httpx.AsyncClient, codes: dict[str, Any], name: str = "honcho-cli") -> httpx.Response:
    return await client.post("/oauth/token", data=poll_form(codes["device_code"], name))


async def test_device_polls_until_it_is_allowed(client: httpx.AsyncClient, clock: HandClock) -> None:
    codes = await device(client)
    assert (codes["interval"], codes["expires_in"]) == (INTERVAL_SECONDS, REQUEST_LIFETIME_SECONDS)
    assert codes["verification_uri"] == f"{SITE}/device"
    assert codes["verification_uri_complete"].endswith(codes["user_code"])
    assert error_of(await polled(client, codes)) == "authorization_pending"
    clock.seconds += INTERVAL_SECONDS
    assert error_of(await polled(client, codes)) == "authorization_pending"
    assert error_of(await polled(client, codes, "hermes-agent")) == "invalid_grant"
    page = (await consent_of(client, codes["user_code"].lower().replace("-", ""))).text
    assert "honcho-cli" in page
    assert 'name="person"' not in page  # it keeps no settings
    assert "Allowed" in (await client.post("/authorize", data=consent_form(page), headers=FORM)).text
    clock.seconds += INTERVAL_SECONDS
    tokens = (await polled(client, codes)).json()
    assert tokens["config"] == {"workspace": "hermes"}
    assert await opens(client, tokens["access_token"])
    # Whoever asks again has a copy of the device code: nobody knows which of the two was meant.
    assert error_of(await polled(client, codes)) == "invalid_grant"
    assert not await opens(client, tokens["access_token"])


async def test_device_that_polls_too_often_has_to_slow_down(client: httpx.AsyncClient, clock: HandClock) -> None:
    codes = await device(client)
    seen = []
    for wait in (0, 1, 5, 10, 20, 20, 25):  # asked for are 5, then 10, 15, and 20, which is kept
        clock.seconds += wait
        seen.append(error_of(await polled(client, codes)))
    early, on_time = "slow_down", "authorization_pending"
    assert seen == [on_time, early, early, early, on_time, on_time, on_time]


async def test_denied_device_is_told(client: httpx.AsyncClient) -> None:
    codes = await device(client)
    page = (await consent_of(client, codes["user_code"])).text
    form = consent_form(page, "", decision="deny")
    assert "Denied" in (await client.post("/authorize", data=form, headers=FORM)).text
    assert error_of(await polled(client, codes)) == "access_denied"
    late = await client.post("/authorize", data=consent_form(page), headers=FORM)
    assert "Denied" in late.text


async def test_expired_device_is_told(client: httpx.AsyncClient, clock: HandClock) -> None:
    codes = await device(client)
    clock.seconds += REQUEST_LIFETIME_SECONDS
    assert (await consent_of(client, codes["user_code"])).status_code == 403
    assert error_of(await polled(client, codes)) == "expired_token"
    clock.seconds += EXPIRED_KEPT_SECONDS + 1
    await device(client)
    assert error_of(await polled(client, codes)) == "invalid_grant"


async def test_number_of_waiting_requests_is_bounded(client: httpx.AsyncClient, clock: HandClock) -> None:
    for _ in range(limits.MAX_SIGN_INS):
        await device(client)
    refused = await client.post("/oauth/device_authorization", data={"client_id": "honcho-cli"})
    assert (refused.status_code, error_of(refused)) == (429, "temporarily_unavailable")
    assert (await client.get(LoopbackClient().link(SITE))).status_code == 429
    clock.seconds += REQUEST_LIFETIME_SECONDS
    assert (await client.get(LoopbackClient().link(SITE))).status_code == 200


async def test_number_of_grants_is_bounded(client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_GRANTS", 1)
    tokens = await signed_in(client, LoopbackClient())
    page = (await client.get(LoopbackClient().link(SITE))).text
    refused = await client.post("/authorize", data=consent_form(page), headers=FORM)
    assert refused.status_code == 409
    assert "hermes memory clients revoke" in refused.text
    await client.post("/oauth/revoke", data={"client_id": "hermes-agent", "token": tokens["access_token"]})
    assert parameters_of(await client.post("/authorize", data=consent_form(page), headers=FORM))["code"]


@pytest.mark.parametrize("named", ["https://memory.example/", "https://Memory.example:443"])
async def test_public_url_is_where_pages_answer(tmp_path: Path, named: str) -> None:
    options = Options.from_env({"AUTH_USE_AUTH": "true", "AUTH_JWT_SECRET": SECRET, "AUTH_PUBLIC_URL": named})
    async with serving(open_database(tmp_path), options=options) as client:
        told = (await client.get("/.well-known/oauth-authorization-server")).json()
        assert told["authorization_endpoint"] == "https://memory.example/authorize"
        shown = await client.get(LoopbackClient().link(SITE))
        assert "Secure" in shown.headers["set-cookie"]
        cookie = {"Cookie": shown.headers["set-cookie"].partition(";")[0]}
        form = consent_form(shown.text)
        there = await client.post("/authorize", data=form, headers={"Origin": "https://memory.example", **cookie})
        assert parameters_of(there)["code"]
        assert (await client.post("/authorize", data=form, headers={**FORM, **cookie})).status_code == 403
