"""Settings on the page: the tables of the command line with its errors; nothing is overwritten."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from hermes.memory.registry import NONE_CHOSEN
from hermes.web.settings_pages import ALONE, SAYS
from tests.web.forms import Visitor, field, problem, visiting
from tests.web.serving import SaidNext, serving

pytestmark = pytest.mark.contract("10.70")

SECRET = "sk-hidden-0123456789abcdef"
HONCHO = {"telemetry": {"id": 7}, "hosts": {"cursor": {"theme": "dark"}, "hermes": {"peerName": "ann"}}}
SAVED, SAME = SAYS["saved"], SAYS["same"]


@pytest.fixture(scope="module")
def visitor(model: SaidNext, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Visitor]:
    home = tmp_path_factory.mktemp("settings") / "home"
    home.mkdir()
    (home / "config.yaml").write_text(f"# mine\ntelegram:\n  token: {SECRET}  # do not show\n", encoding="utf-8")
    (home / "honcho.json").write_text(json.dumps(HONCHO), encoding="utf-8")
    with serving(home, model) as web, visiting(web) as made:
        yield made


def config_of(visitor: Visitor) -> Path:
    return visitor.web.home / "config.yaml"


def honcho_of(visitor: Visitor) -> dict[str, object]:
    found: dict[str, object] = json.loads((visitor.web.home / "honcho.json").read_text(encoding="utf-8"))
    return found


def test_modes_are_saved_where_the_command_line_saves_them(visitor: Visitor) -> None:
    answer = visitor.send("/settings", {"table": "honcho", "set:recallMode": "context", "seen:recallMode": "hybrid"})
    assert (answer.status_code, SAVED in answer.text) == (200, True)
    assert honcho_of(visitor) == {
        **HONCHO,
        "hosts": {"cursor": {"theme": "dark"}, "hermes": {"peerName": "ann", "recallMode": "context"}},
    }
    assert (visitor.web.home / "honcho.json").stat().st_mode & 0o777 == 0o600
    again = visitor.send("/settings", {"table": "honcho", "set:recallMode": "context", "seen:recallMode": "context"})
    assert SAME in again.text


@pytest.mark.parametrize(
    ("table", "key", "value", "told"),
    [
        ("honcho", "recallMode", "loud", "takes one of hybrid, context, tools"),
        ("honcho", "contextTokens", "many", "contextTokens is 'many', but takes"),
        ("honcho", "recalMode", "tools", "there is no key recalMode"),
        ("hermes", "log.level", "shout", "log.level is 'shout', but takes one of debug, info"),
        ("hermes", "log.levle", "info", "there is no setting 'log.levle'"),
        ("hermes", "memory.provider", "nobody", "there is no memory provider 'nobody'"),
        ("hermes", "model.default", "big", "HERMES_MODEL, which wins"),
        ("hermes", "telegram.base_url", "https://bot:(hidden)@x", "where a password is hidden"),
        ("elsewhere", "log.level", "info", "there is no table of settings 'elsewhere'"),
    ],
)
def test_invalid_value_is_reported_and_stays_in_the_form(
    visitor: Visitor, table: str, key: str, value: str, told: str
) -> None:
    before = config_of(visitor).read_bytes(), (visitor.web.home / "honcho.json").read_bytes()
    answer = visitor.send(f"/settings/all?key={key}", {"table": table, f"set:{key}": value})
    assert answer.status_code == 400
    assert told in problem(answer)
    assert before == (config_of(visitor).read_bytes(), (visitor.web.home / "honcho.json").read_bytes())
    if f'name="set:{key}"' in answer.text:
        assert field(answer.text, f"set:{key}") == value


def test_one_wrong_value_of_several_changes_nothing(visitor: Visitor) -> None:
    before = config_of(visitor).read_bytes()
    form = {"table": "hermes", "set:log.level": "debug", "set:log.format": "xml"}
    answer = visitor.send("/settings/all", form)
    assert "log.format is 'xml'" in problem(answer)
    assert config_of(visitor).read_bytes() == before


def test_stale_form_overwrites_nothing_and_keeps_its_value(visitor: Visitor) -> None:
    path, key = "/settings/all?table=hermes&key=agent.max_steps", "set:agent.max_steps"
    seen = {"table": "hermes", "seen:agent.max_steps": field(visitor.get(path), "seen:agent.max_steps")}
    assert SAVED in visitor.send(path, {**seen, key: "40"}).text
    late = visitor.send(path, {**seen, key: "50"})
    assert "agent.max_steps was changed since the page was loaded: it is 40 now" in problem(late)
    assert (field(late.text, key), field(late.text, "seen:agent.max_steps")) == ("50", "40")
    assert SAVED in visitor.send(path, {**seen, "seen:agent.max_steps": "40", key: "50"}).text
    assert config_of(visitor).read_text(encoding="utf-8").startswith("# mine\n")


def test_two_forms_that_change_different_settings_both_count(visitor: Visitor) -> None:
    form = {"table": "honcho", "seen:observationMode": "directional", "seen:writeFrequency": "async"}
    visitor.send("/settings", {**form, "set:observationMode": "unified", "set:writeFrequency": "async"})
    visitor.send("/settings", {**form, "set:observationMode": "directional", "set:writeFrequency": "turn"})
    page = visitor.get("/settings")
    for key, value in (("observationMode", "unified"), ("writeFrequency", "turn")):
        assert f'name="set:{key}" value="{value}" checked' in page


def test_secrets_are_on_no_page_and_an_empty_field_keeps_them(visitor: Visitor) -> None:
    path = "/settings/all?table=hermes&key=telegram.token"
    for one in (path, "/settings/all", "/settings/all?table=honcho", "/settings", "/settings/models"):
        assert SECRET not in visitor.get(one)
        assert "sk-loop" not in visitor.get(one)
    assert SAME in visitor.send(path, {"table": "hermes", "set:telegram.token": ""}).text
    assert SECRET in config_of(visitor).read_text(encoding="utf-8")


def test_change_in_a_terminal_takes_effect_without_a_restart(visitor: Visitor) -> None:
    with config_of(visitor).open("a", encoding="utf-8") as file:
        file.write("memory:\n  provider: none\n")
    page = visitor.get("/settings")
    assert '<option value="none" selected>' in page
    assert ALONE in page
    assert 'id="connect"' not in page
    assert NONE_CHOSEN in visitor.get("/memory")
    form = {"table": "hermes", "set:memory.provider": "honcho", "seen:memory.provider": "none"}
    assert SAVED in visitor.send("/settings", form).text
    assert NONE_CHOSEN not in visitor.get("/memory")


def test_invalid_file_is_named_and_the_previous_settings_stay(visitor: Visitor) -> None:
    good = config_of(visitor).read_text(encoding="utf-8")
    config_of(visitor).write_text(f"{good}log:\n  level: shout\n", encoding="utf-8")
    for path in ("/settings", "/settings/all", "/settings/people", "/settings/models"):
        page = visitor.get(path)
        assert "log.level is 'shout'" in problem(page), path
    assert visitor.client.get("/").status_code == 200
    config_of(visitor).write_text(good, encoding="utf-8")
    assert problem(visitor.get("/settings")) == ""


def test_unknown_setting_is_an_error_on_the_page(visitor: Visitor) -> None:
    assert "there is no setting 'nope'" in problem(visitor.get("/settings/all?key=nope"))
    assert visitor.client.get("/settings/all?table=nope").status_code == 400
