"""Conversations on the page, in a real browser with a real host."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from hermes.web.turns import BUSY
from tests.llm.loopback import Answer, chunk, says
from tests.web.serving import SaidNext, WebProcess
from tests.web.talking import begin, replies, say

pytestmark = pytest.mark.contract("10.61")


def held(first: str, rest: str) -> tuple[Answer, threading.Event]:
    """Return a reply that stops in the middle until the event is set."""
    go = threading.Event()
    chunks = [chunk({"role": "assistant", "content": first}), go, chunk({"content": rest}), chunk({}, "stop")]
    return Answer(chunks=chunks), go


def test_streamed_reply_continues_after_a_reload(page: Page, web: WebProcess, model: SaidNext) -> None:
    answer, go = held("The first half", " and the second.")
    model.next.append(answer)
    begin(page, web, "Tell me something long.")
    expect(page.locator(".running .body")).to_have_text("The first half")
    page.reload()
    expect(page.locator(".running .body")).to_have_text("The first half")
    expect(page.locator(".msg.user")).to_have_count(1)
    go.set()
    expect(replies(page).locator(".body")).to_have_text("The first half and the second.")
    expect(page.locator(".running")).to_have_count(0)
    page.reload()
    expect(replies(page).locator(".body")).to_have_text("The first half and the second.")


def test_two_tabs_are_one_conversation(page: Page, web: WebProcess, model: SaidNext) -> None:
    address = begin(page, web, "Here I am.")
    expect(replies(page)).to_have_count(1)
    other = page.context.new_page()
    other.goto(address)
    answer, go = held("Growing", " and done.")
    model.next.append(answer)
    say(other, "And from the other tab.")
    for one in (page, other):
        one.bring_to_front()  # a tab that nobody sees hears nothing until it is seen again
        expect(one.locator(".msg.user")).to_have_count(2)
        expect(one.locator(".running .body")).to_have_text("Growing")
    page.bring_to_front()
    page.locator("#text").fill("typed while it answers")
    page.keyboard.press("Enter")
    expect(page.locator("#problem")).to_contain_text(BUSY)
    expect(page.locator("#text")).to_have_value("typed while it answers")
    go.set()
    for one in (page, other):
        one.bring_to_front()
        expect(replies(one).last.locator(".body")).to_have_text("Growing and done.")
        expect(replies(one)).to_have_count(2)
    other.close()


def test_stop_keeps_the_partial_reply(page: Page, web: WebProcess, model: SaidNext) -> None:
    answer, go = held("Half of it", " never comes")
    model.next.append(answer)
    begin(page, web, "Begin.")
    expect(page.locator(".running .body")).to_have_text("Half of it")
    page.get_by_role("button", name="Stop").click()
    expect(replies(page).locator(".body")).to_have_text("Half of it")
    expect(replies(page).locator(".tag")).to_have_text("stopped")
    go.set()


def test_tool_calls_are_folded_with_their_arguments(page: Page, web: WebProcess, model: SaidNext) -> None:
    model.next += [says(calls=[("session_search", '{"query": "harbour"}')]), says("Nothing about a harbour.")]
    begin(page, web, "Did I speak of a harbour?")
    expect(replies(page).last.locator(".body")).to_have_text("Nothing about a harbour.")
    tool = page.locator("details.tool")
    expect(tool).to_have_count(1)
    expect(tool.locator("summary")).to_contain_text("session_search")
    expect(tool.locator("summary")).to_contain_text("harbour")
    assert not tool.locator("pre").is_visible()
    tool.locator("summary").click()
    expect(tool.locator("pre")).to_be_visible()


def test_markdown_of_a_model_adds_no_html_image_or_link(page: Page, web: WebProcess, model: SaidNext) -> None:
    model.next.append(
        says(
            "**bold** <script>document.title='broken'</script> <img src=x onerror=alert(1)> "
            "![pixel](https://evil.example/p.png) [text](https://evil.example) <https://evil.example>\n\n"
            "| a | b |\n|---|---|\n| 1 | 2 |",
            piece=400,
        )
    )
    begin(page, web, "Show off.")
    body = replies(page).locator(".body")
    expect(body.locator("strong")).to_have_text("bold")
    expect(body.locator("td").first).to_have_text("1")
    expect(body).to_contain_text("<script>")
    expect(body.locator("script, img, a, iframe, form")).to_have_count(0)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("x" * 300, "without a blank"),
        ("שלום, קוראים לי דנה ואני גרה בחיפה", "right to left"),
        ("私の妹は京都に住んでいます。我妹妹住在京都。", "without spaces"),
        ('<img src=x onerror="document.title=1"><b>not bold</b>', "HTML"),
    ],
    ids=lambda value: value if len(str(value)) < 20 else "",
)
@pytest.mark.contract("10.67")
def test_odd_text_is_shown_unchanged_and_does_not_widen_the_page(
    page: Page, web: WebProcess, text: str, name: str
) -> None:
    begin(page, web, text)
    expect(page.locator(".msg.user .body")).to_have_text(text)
    expect(replies(page)).to_have_count(1)
    for width in (1200, 375):
        page.set_viewport_size({"width": width, "height": 800})
        box = page.locator(".msg.user .body").bounding_box()
        assert box is not None
        assert box["x"] + box["width"] <= width
    page.set_viewport_size({"width": 1200, "height": 800})
    if name == "right to left":
        expect(page.locator(".msg.user .body")).to_have_css("direction", "rtl")


def test_session_is_renamed_searched_and_kept_out_of_memory(page: Page, web: WebProcess) -> None:
    begin(page, web, "We talk about lighthouses.")
    expect(replies(page)).to_have_count(1)
    page.locator(".menu summary").click()
    page.get_by_label("Title").fill("Lighthouses & <b>others</b>")
    page.get_by_role("button", name="Rename").click()
    expect(page.locator("h1")).to_have_text("Lighthouses & <b>others</b>")
    page.locator(".menu summary").click()
    page.get_by_role("button", name="Go incognito").click()
    expect(page.locator(".note")).to_contain_text("Incognito")
    say(page, "A secret between us.")
    expect(replies(page)).to_have_count(2)
    expect(page.locator(".msg.user").last.locator(".tag")).to_have_text("kept out of memory")
    page.goto(f"{web.url}/search?q=lighthouses")
    expect(page.locator(".hits li").first).to_contain_text("Lighthouses & <b>others</b>")
    page.locator(".hits a").first.click()
    expect(page.locator("h1")).to_have_text("Lighthouses & <b>others</b>")


def test_slash_commands_work_on_the_page(page: Page, web: WebProcess) -> None:
    begin(page, web, "Hello.")
    expect(replies(page)).to_have_count(1)
    say(page, "/status")
    expect(page.locator(".told")).to_contain_text("session ")
    say(page, "/nonsense")
    expect(page.locator("#composer #problem")).to_contain_text("nonsense")
    expect(page.locator("#text")).to_have_value("/nonsense")


def test_model_failure_is_shown_and_the_message_is_kept(page: Page, web: WebProcess, model: SaidNext) -> None:
    model.next += [Answer(status=400, body='{"error": {"message": "no such model"}}')] * 5
    begin(page, web, "Is anybody there?")
    expect(page.locator("#live .problem")).to_contain_text("no such model")
    expect(page.locator(".msg.user .body")).to_have_text("Is anybody there?")
    model.next.clear()
    say(page, "/retry")
    expect(replies(page).last.locator(".body")).to_have_text("Understood.")


def test_form_of_an_earlier_start_keeps_its_text(page: Page, web: WebProcess) -> None:
    begin(page, web, "Before.")
    expect(replies(page)).to_have_count(1)
    page.locator("#composer input[name=csrf]").evaluate("one => { one.value = 'of another start'; }")
    say(page, "Kept all the same.")
    expect(page.locator("#composer #problem")).to_contain_text("earlier start")
    expect(page.locator("#text")).to_have_value("Kept all the same.")


def test_message_that_is_too_long_keeps_its_text(page: Page, web: WebProcess) -> None:
    begin(page, web, "Before.")
    expect(replies(page)).to_have_count(1)
    page.locator("#text").evaluate("one => { one.removeAttribute('maxlength'); one.value = 'long '.repeat(50000); }")
    page.get_by_role("button", name="Send").click()
    expect(page.locator("#composer #problem")).to_contain_text("200,000 characters")
    assert len(page.locator("#text").input_value()) > 200_000


@pytest.mark.contract("10.60")
def test_link_opened_from_another_site_signs_in(browser: Browser, web: WebProcess) -> None:
    context = browser.new_context()
    context.route("http://elsewhere.example/", lambda route: route.fulfill(body=f"<a href='{web.take_link()}'>x</a>"))
    opened = context.new_page()
    opened.goto("http://elsewhere.example/")
    opened.locator("a").click()
    expect(opened.locator("#sentence")).to_contain_text("Memory")
    assert opened.url == f"{web.url}/"
    context.close()


@pytest.fixture(scope="module")
def plain(browser: Browser, web: WebProcess) -> Iterator[Page]:
    """A signed-in page that runs no scripts."""
    context = browser.new_context(java_script_enabled=False)
    opened = context.new_page()
    opened.goto(web.take_link())
    yield opened
    context.close()


@pytest.mark.contract("10.67")
def test_chat_works_without_scripts(plain: Page, web: WebProcess, model: SaidNext) -> None:
    answer, go = held("First", " and last.")
    model.next.append(answer)
    plain.goto(f"{web.url}/sessions")
    plain.locator("#text").fill("No scripts here.")
    plain.get_by_role("button", name="Send").click()
    expect(plain.locator(".running .body")).to_have_text("First")
    go.set()
    expect(plain.locator(".msg.assistant:not(.running) .body")).to_have_text("First and last.", timeout=15_000)
    plain.locator("#text").fill("/title Plain")
    plain.get_by_role("button", name="Send").click()
    expect(plain.locator("h1")).to_have_text("Plain")


@pytest.mark.contract("10.67")
def test_chat_works_with_the_keyboard_alone(page: Page, web: WebProcess) -> None:
    page.goto(f"{web.url}/sessions")
    page.keyboard.press("Tab")
    expect(page.locator(".skip")).to_be_focused()
    page.keyboard.press("Enter")
    for _ in range(12):
        if page.locator("#text").evaluate("one => one === document.activeElement"):
            break
        page.keyboard.press("Tab")
    page.keyboard.type("Only keys.")
    page.keyboard.press("Shift+Enter")
    page.keyboard.type("Two lines.")
    page.keyboard.press("Enter")
    expect(replies(page)).to_have_count(1)
    expect(page.locator(".msg.user .body")).to_have_text("Only keys.\nTwo lines.")
    page.locator(".menu summary").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_label("Title")).to_be_visible()
