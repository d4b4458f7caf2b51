"""Models on the page: each is tested before it is saved, and no key is sent elsewhere."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator

import pytest

from hermes.web.model_pages import CHANGED, NO_ANSWER
from tests.llm.beside import beside
from tests.llm.loopback import Answer, LoopbackServer, Received, chunk, fails, says
from tests.web.forms import Visitor, field, problem, visiting
from tests.web.serving import SaidNext, serving

pytestmark = pytest.mark.contract("10.73")

KEY = "sk-first-0123456789abcdef"
NOBODY = "http://127.0.0.1:9/v1"


class Other(SaidNext):
    """Another endpoint, which names itself in its answers."""

    def _choose(self, received: Received) -> Answer:
        is_plain = received.method == "POST" and not self.next
        return says("I am the other one.") if is_plain else super()._choose(received)


@pytest.fixture(scope="module")
def other(processes: None) -> Iterator[Other]:
    with beside(Other()) as running:
        yield running


@pytest.fixture(scope="module")
def visitor(other: Other, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Visitor]:
    home = tmp_path_factory.mktemp("models") / "home"
    home.mkdir()
    lines = ("sessions:", "  auto_title: false", "model:", f"  base_url: {NOBODY}", f"  api_key: {KEY}", "  tools: off")
    (home / "config.yaml").write_text("\n".join([*lines, ""]), encoding="utf-8")
    with serving(home) as web, visiting(web) as made:
        yield made


def host_form(visitor: Visitor, **more: str) -> dict[str, str]:
    """Return the chat model's form with its present values."""
    page = visitor.get("/settings/models")
    shown = {name: field(page, name) for name in ("url", "name", "seen:url", "seen:name", "seen:has_key")}
    return {**shown, "name": "other-1", **more}


def config_of(visitor: Visitor) -> str:
    return (visitor.web.home / "config.yaml").read_text(encoding="utf-8")


def wait_for(visitor: Visitor, address: str, text: str) -> None:
    """Reload a page until it has a text."""
    end = time.monotonic() + 30
    while text not in (page := visitor.client.get(address).text):
        assert time.monotonic() < end, page
        time.sleep(0.05)


def sent_keys(server: LoopbackServer, after: int = 0) -> set[str]:
    """Return the keys of all requests but the first ones."""
    return {one.headers.get("authorization", "") for one in server.requests[after:]}


def test_wrong_url_is_named_and_not_saved(visitor: Visitor) -> None:
    before = config_of(visitor)
    for url, told in (
        ("http://127.0.0.1:9/v2", NO_ANSWER),
        ("ftp://x", "takes"),
        ("no url", "takes"),
    ):
        answer = visitor.send("/settings/models/host", host_form(visitor, url=url, act="save"))
        assert (answer.status_code, told in problem(answer)) in ((400, True), (502, True)), (url, problem(answer))
        assert field(answer.text, "url") == url
    assert config_of(visitor) == before
    kept = visitor.send("/settings/models/host", host_form(visitor, url="http://127.0.0.1:9/v2", act="keep"))
    assert "Saved." in kept.text
    assert "base_url: http://127.0.0.1:9/v2" in config_of(visitor)


def test_corrected_url_is_used_without_a_restart(visitor: Visitor, other: Other) -> None:
    before, form = len(other.requests), host_form(visitor, url=other.base_url)
    tested = visitor.send("/settings/models/host", {**form, "act": "test"})
    assert "answers (" in tested.text
    assert other.base_url not in config_of(visitor)
    assert "Saved." in visitor.send("/settings/models/host", {**form, "act": "save"}).text
    said = visitor.send("/sessions", {"text": "Who are you?"})
    wait_for(visitor, str(said.url), "I am the other one.")
    assert sent_keys(other, before) == {""}, "a key goes to no other place than it was given for"
    assert KEY not in config_of(visitor)


def test_running_reply_keeps_its_model_when_the_model_is_changed(visitor: Visitor, other: Other) -> None:
    visitor.send("/settings/models/host", host_form(visitor, url=other.base_url, act="keep"))
    go = threading.Event()
    other.next.append(Answer(chunks=[chunk({"content": "Before "}), go, chunk({"content": "and after."}, "stop")]))
    said = visitor.send("/sessions", {"text": "Tell me something long."}).url
    wait_for(visitor, str(said), "Before")
    visitor.send("/settings/models/host", host_form(visitor, url="http://127.0.0.1:9/v4", act="keep"))
    go.set()
    wait_for(visitor, str(said), "Before and after.")
    visitor.send(f"{said.path}/say", {"text": "And now?"})
    wait_for(visitor, str(said), "refuses the connection")


def test_key_is_never_shown_and_can_be_forgotten(visitor: Visitor, other: Other) -> None:
    form = host_form(visitor, url=other.base_url, key="sk-second-0123456789", act="save")
    page = visitor.send("/settings/models/host", form).text
    assert "Saved." in page
    assert "sk-second" not in page
    assert "Bearer sk-second-0123456789" in sent_keys(other)
    visitor.send("/settings/models/host", host_form(visitor, forget_key="1", act="keep"))
    assert "sk-second" not in config_of(visitor)


def test_stale_form_overwrites_no_model(visitor: Visitor, other: Other) -> None:
    form = host_form(visitor, url=other.base_url, name="mine", act="keep")
    visitor.send("/settings/models/host", host_form(visitor, url="http://127.0.0.1:9/v3", name="theirs", act="keep"))
    late = visitor.send("/settings/models/host", form)
    assert CHANGED in problem(late)
    assert (field(late.text, "name"), field(late.text, "seen:name")) == ("mine", "theirs")
    assert "theirs" in config_of(visitor)


def test_memory_uses_the_model_chosen_for_it(visitor: Visitor, other: Other) -> None:

    def send(**form: str) -> str:
        return visitor.send("/settings/models/memory", form).text

    assert NO_ANSWER in problem(send(source="own", url=NOBODY, act="save"))
    assert list(visitor.web.home.rglob("model.json")) == []
    assert "Saved." in send(
        source="own", url=other.base_url, name="small", key="sk-memory-012345", guests="1", act="save"
    )
    [file] = visitor.web.home.rglob("model.json")
    kept = json.loads(file.read_text(encoding="utf-8"))
    assert kept == {"source": "own", "url": other.base_url, "name": "small", "key": "sk-memory-012345", "guests": True}
    assert file.stat().st_mode & 0o777 == 0o600
    assert "sk-memory" not in visitor.get("/settings/models")
    assert "Saved." in send(source="off", act="save")
    assert json.loads(file.read_text(encoding="utf-8")).get("source", "off") == "off"
    assert "'moon' is not a model source" in problem(send(source="moon", act="save"))


def test_endpoint_that_fails_is_quoted_without_the_key(visitor: Visitor, other: Other) -> None:
    other.next.append(fails(401, "the key sk-third-0123456789 is wrong"))
    form = host_form(visitor, url=other.base_url, key="sk-third-0123456789", act="test")
    answer = visitor.send("/settings/models/host", form)
    assert "It does not answer" in answer.text
    assert answer.text.count("sk-third") <= 1, "in the field where it was typed, and nowhere else"
