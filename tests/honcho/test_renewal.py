"""A sign-in is renewed once for all callers, stored before use, and never lost to a failure."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from hermes.errors import HermesError, HomeError, ProviderError
from hermes.honcho.renewal import LOGIN
from tests.honcho.configuring import Machine
from tests.honcho.issuer import Fault, Issuer
from tests.honcho.signing_in import QUICK, renewal, sign_in, stored
from tests.small_disk import fill, small_disk


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    with Issuer() as made:
        yield made


@pytest.mark.contract("8.2")
def test_renewed_tokens_are_stored_where_they_stood_for_the_owner_alone(machine: Machine, issuer: Issuer) -> None:
    token = sign_in(machine, issuer, custom="kept")
    renewed = renewal(machine, lambda: 5_000_000_000.0).renew(token)
    block, path = stored(machine), machine.home / "honcho.json"
    assert block["apiKey"] == renewed.access_token != token
    assert block["oauth"]["refreshToken"] == renewed.refresh_token
    assert block["oauth"]["expiresAt"] == 5_000_003_600.0
    assert (block["oauth"]["clientId"], block["custom"]) == ("hermes-agent", "kept")
    assert {name: value for name, value in machine.read().items() if name != "hosts"} == {"telemetry": {"id": 7}}
    assert machine.read()["hosts"]["cursor"] == {"theme": "dark"}
    assert path.stat().st_mode & 0o777 == 0o600
    assert sorted(one.name for one in path.parent.iterdir()) == ["honcho.json", "honcho.json.lock"]


@pytest.mark.contract("8.2")
def test_sign_in_at_the_root_is_renewed_there(machine: Machine, issuer: Issuer) -> None:
    grant = issuer.grant(valid_seconds=-1)
    grant["oauth"]["server"] = issuer.url
    machine.write({"baseUrl": issuer.url, **grant})
    renewed = renewal(machine).renew(grant["apiKey"])
    assert (machine.read()["apiKey"], machine.read().get("hosts", {})) == (renewed.access_token, {"hermes": {}})


@pytest.mark.contract("5.1", "8.2")
def test_sign_in_of_another_program_is_left_to_it(machine: Machine, issuer: Issuer) -> None:
    path = machine.folder / ".honcho" / "config.json"
    grant = issuer.grant(valid_seconds=-1)
    machine.write({"baseUrl": issuer.url, **grant}, path)
    with pytest.raises(ProviderError, match="is another program's") as raised:
        renewal(machine).renew(grant["apiKey"])
    assert LOGIN in raised.value.line()
    assert (machine.read(path), issuer.counts["refresh_token"]) == ({"baseUrl": issuer.url, **grant}, 0)


@pytest.mark.contract("8.2")
def test_token_that_a_sibling_renewed_is_taken_without_an_exchange(machine: Machine, issuer: Issuer) -> None:
    token = sign_in(machine, issuer)
    first = renewal(machine).renew(token)
    assert renewal(machine).renew(token) == first
    assert issuer.counts["refresh_token"] == 1


@pytest.mark.contract("8.2")
def test_threads_with_one_ended_sign_in_make_one_exchange(machine: Machine, issuer: Issuer) -> None:
    token = sign_in(machine, issuer)
    each = [renewal(machine) for _ in range(4)]
    with ThreadPoolExecutor(12) as threads:
        found = list(threads.map(lambda number: each[number % 4].renew(token).access_token, range(12)))
    assert set(found) == {stored(machine)["apiKey"]}
    assert (issuer.counts["exchanges"], issuer.counts["refresh_token"]) == (1, 1)


@pytest.mark.contract("8.2")
@pytest.mark.parametrize("fault", ["500", "hang", "drip", "reset", "garbage", "API key"])
def test_what_may_pass_is_tried_once_more_and_then_pauses(machine: Machine, issuer: Issuer, fault: Fault) -> None:
    token, before = sign_in(machine, issuer), (machine.home / "honcho.json").read_bytes()
    issuer.fault = lambda _: fault
    ours = renewal(machine)
    for _ in range(3):
        with pytest.raises(ProviderError, match="the sign-in to Honcho cannot be renewed now") as raised:
            ours.renew(token)
        assert "hch-" not in raised.value.line().replace("begins with hch-at-", "")
    assert issuer.counts["refresh_token"] == 2, "the second and third call fall into the pause"
    assert (machine.home / "honcho.json").read_bytes() == before
    issuer.fault = lambda _: None
    time.sleep(QUICK.pause)
    assert ours.renew(token).access_token == stored(machine)["apiKey"] != token


@pytest.mark.contract("8.2")
def test_answer_that_is_lost_is_asked_for_again_within_the_grace(machine: Machine, issuer: Issuer) -> None:
    token, faults = sign_in(machine, issuer), iter(["reset after"])
    issuer.fault = lambda _: next(faults, None)  # type: ignore[arg-type]
    assert renewal(machine).renew(token).access_token == stored(machine)["apiKey"]
    assert (issuer.counts["exchanges"], issuer.counts["replays"], issuer.counts["revoked"]) == (1, 1, 0)


@pytest.mark.contract("8.2")
@pytest.mark.parametrize("how", ["revoked", "unknown client"])
def test_refusal_for_good_names_the_command_and_is_not_repeated(machine: Machine, issuer: Issuer, how: str) -> None:
    token, ours = sign_in(machine, issuer), renewal(machine)
    if how == "revoked":
        issuer.revoke_all()
    else:
        issuer.fault = lambda _: "invalid_client"
    for _ in range(3):
        with pytest.raises(ProviderError, match="no longer accepts the sign-in") as raised:
            ours.renew(token)
        assert LOGIN in raised.value.line()
    assert issuer.counts["refresh_token"] == 1
    issuer.fault = lambda _: None
    again = sign_in(machine, issuer)
    assert ours.renew(again).access_token == stored(machine)["apiKey"], "a new sign-in is tried at once"


@pytest.mark.contract("8.2")
def test_sibling_that_took_no_lock_is_believed_after_a_refusal(machine: Machine, issuer: Issuer) -> None:
    token = sign_in(machine, issuer)
    machine_file = machine.home / "honcho.json"

    def win(_: str) -> None:
        if issuer.counts["refresh_token"] == 0:
            issuer.revoke_all()
            found = json.loads(machine_file.read_text())
            found["hosts"]["hermes"].update(issuer.grant())
            machine_file.write_text(json.dumps(found))

    issuer.fault = win
    assert renewal(machine).renew(token).access_token == stored(machine)["apiKey"] != token


@pytest.mark.contract("8.2")
def test_missing_token_life_is_unknown(machine: Machine, issuer: Issuer) -> None:
    token = sign_in(machine, issuer)
    issuer.fault = lambda _: "no life"
    renewed = renewal(machine).renew(token)
    assert (renewed.expires_at, "expiresAt" in stored(machine)["oauth"]) == (None, False)
    assert not renewed.is_due(time.time() + 1e9), "it is renewed once it is refused"
    issuer.fault = lambda _: None
    assert renewal(machine).renew(renewed.access_token).expires_at == stored(machine)["oauth"]["expiresAt"]


@pytest.mark.contract("8.2")
@pytest.mark.parametrize("text", ["{", "", "[]", '{"hosts": 7}'])
def test_token_is_not_spent_while_the_file_is_broken(machine: Machine, issuer: Issuer, text: str) -> None:
    token = sign_in(machine, issuer)
    ours, path = renewal(machine), machine.home / "honcho.json"
    whole = path.read_text()
    path.write_text(text)
    with pytest.raises(HermesError, match=r"honcho\.json"):
        ours.renew(token)
    assert (path.read_text(), issuer.counts["refresh_token"]) == (text, 0)
    path.write_text(whole)
    assert ours.renew(token).access_token == stored(machine)["apiKey"]


@pytest.mark.processes
@pytest.mark.contract("8.2")
def test_token_is_not_spent_on_a_full_disk_and_nothing_is_lost_to_one(
    tmp_path: Path, issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with small_disk(tmp_path / "disk"):
        here = Machine(tmp_path / "disk" / "ann")
        here.folder.mkdir()
        monkeypatch.setenv("HOME", str(here.folder))
        token, ours = sign_in(here, issuer), renewal(here)
        ballast = tmp_path / "disk" / "ballast"
        fill(ballast)
        with pytest.raises(HomeError, match="cannot write") as raised:
            ours.renew(token)
        assert "Free some space" in raised.value.line()
        assert (stored(here)["apiKey"], issuer.counts["refresh_token"]) == (token, 0)
        ballast.unlink()
        time.sleep(QUICK.pause)
        issuer.before_answer = lambda: fill(ballast)  # between the exchange and the store
        renewed = ours.renew(token)
        assert (stored(here)["apiKey"], issuer.counts["exchanges"]) == (renewed.access_token, 1)


@pytest.mark.contract("8.2")
def test_pair_that_could_not_be_stored_is_stored_later(
    machine: Machine, issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    token, ours = sign_in(machine, issuer), renewal(machine)
    with monkeypatch.context() as broken:
        broken.setattr("hermes.honcho.renewal.edit_locked_document", _cannot_write)
        with pytest.raises(HomeError, match="cannot write"):
            ours.renew(token)
    issuer.grace_seconds = 0
    time.sleep(QUICK.pause)
    assert ours.renew(token).access_token == stored(machine)["apiKey"]
    assert (issuer.counts["refresh_token"], issuer.counts["revoked"]) == (1, 0), "it is not asked for again"


def _cannot_write(*_: object) -> None:
    raise HomeError("cannot write it", hint="")


@pytest.mark.contract("8.2")
@pytest.mark.parametrize("jump", [-86_400.0, 86_400.0])
def test_clock_that_jumps_costs_one_exchange(machine: Machine, issuer: Issuer, jump: float) -> None:
    now = time.time()
    token = sign_in(machine, issuer, valid_seconds=3600)
    ours, other = (renewal(machine, lambda: now + jump) for _ in range(2))
    issuer.end_tokens()
    renewed = ours.renew(token)
    assert not renewed.is_due(now + jump)
    assert other.renew(token) == renewed
    assert issuer.counts["exchanges"] == 1
