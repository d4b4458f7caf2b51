"""Reading and correcting memory on the page, in a real browser with the memory server of the home."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.web.holding import OWNER, held, hold, server_of
from tests.web.looking import find_violations
from tests.web.serving import WebProcess
from tests.web.talking import begin, fact, open_until, replies, say, tell

pytestmark = pytest.mark.contract("10.64")

MEMORY_PAGES = ["/", "/memory?kind=stated", *(f"/memory/{one}" for one in ("people", "merge", "waiting"))]
ASKED_PAGES = ["/memory/ask?q=tea", "/memory/forget?q=tea", "/memory?kind=no", "/nowhere", "/news"]


@pytest.mark.contract("10.62")
def test_used_memories_are_exactly_those_of_the_record(page: Page, web: WebProcess) -> None:
    tell(page, web, "My sister Anna lives in Porto.")
    open_until(page, f"{web.url}/memory", fact("My sister Anna lives in Porto."))
    tell(page, web, "Where does my sister live?")
    used = page.locator("details.used")
    expect(used).to_have_count(1)
    used.locator("summary").click()
    lines = used.locator(".facts > li")
    expect(lines.first).to_be_visible()
    count = int(re.findall(r"\d+", used.locator("summary").inner_text())[0])
    assert lines.count() == count >= 1
    expect(lines.filter(has_text="Anna lives in Porto").first).to_be_visible()
    expect(used.get_by_role("link", name=re.compile("^Correct"))).to_have_count(count)
    expect(used.get_by_role("link", name=re.compile("^Forget"))).to_have_count(count)
    lines.filter(has_text="Anna lives in Porto").first.get_by_role("link", name=re.compile("^Correct")).click()
    expect(page.locator("#text")).to_have_value("My sister Anna lives in Porto.")


def test_corrected_fact_shows_its_old_text_and_is_used(page: Page, web: WebProcess) -> None:
    tell(page, web, "My dentist is called Miller.")
    open_until(page, f"{web.url}/memory?q=dentist", fact("My dentist is called Miller."))
    page.locator(fact("My dentist is called Miller.")).click()
    expect(page.locator("blockquote")).to_have_text("My dentist is called Miller.")
    page.locator("#text").fill("My dentist is called Möller.")
    page.get_by_role("button", name="Correct").click()
    expect(page.locator("h1")).to_have_text("My dentist is called Möller.")
    expect(page.locator(".past")).to_have_text("My dentist is called Miller.")
    with server_of(web) as server:
        assert any("Möller" in one for one in held(server))
        assert not any("Miller" in one for one in held(server))


def test_two_edits_at_once_overwrite_nothing_and_lose_no_text(page: Page, web: WebProcess) -> None:
    with server_of(web) as server:
        [made] = hold(server, ["My bicycle is red."])
    address = f"{web.url}/memory/facts/{made}"
    page.goto(address)
    other = page.context.new_page()
    other.goto(address)
    other.locator("#text").fill("My bicycle is green.")
    other.get_by_role("button", name="Correct").click()
    expect(other.locator("h1")).to_have_text("My bicycle is green.")
    other.close()
    page.locator("#text").fill("My bicycle is yellow.")
    page.get_by_role("button", name="Correct").click()
    expect(page.locator("#problem")).to_contain_text("was changed since")
    expect(page.locator("#text")).to_have_value("My bicycle is yellow.")
    expect(page.locator("h1")).to_have_text("My bicycle is green.")


def test_forgotten_fact_goes_with_its_message_and_a_form_for_it_loses_no_text(page: Page, web: WebProcess) -> None:
    tell(page, web, "My cat is called Mimi.")
    open_until(page, f"{web.url}/memory?q=Mimi", fact("My cat is called Mimi."))
    page.locator(fact("My cat is called Mimi.")).click()
    address = page.url
    other = page.context.new_page()
    other.goto(address)
    page.get_by_role("link", name="Forget").click()
    expect(page.locator(".facts > li")).to_have_count(2)
    expect(page.locator(".facts > li").last).to_contain_text("Understood.")
    page.get_by_role("button", name="Forget it").click()
    expect(page.locator("[role=status].note")).to_contain_text("Forgotten")
    expect(page.locator(fact("My cat is called Mimi."))).to_have_count(0)
    other.locator("#text").fill("My cat is called Momo.")
    other.get_by_role("button", name="Correct").click()
    expect(other.locator("#problem")).to_contain_text("nothing in memory has the id")
    expect(other.locator("#new")).to_have_value("My cat is called Momo.")
    other.close()
    with server_of(web) as server:
        assert not any("Mimi" in one for one in held(server))
    assert page.goto(address).status == 404  # type: ignore[union-attr]


def test_change_is_shown_as_a_timeline_and_undone(page: Page, web: WebProcess) -> None:
    tell(page, web, "I live in Hamburg.")
    open_until(page, f"{web.url}/memory?q=Hamburg", fact("I live in Hamburg."))
    tell(page, web, "I moved to Bremen last week.")
    open_until(page, f"{web.url}/memory?q=Hamburg", "p.past")
    page.locator(fact("I live in Hamburg.")).click()
    line = page.locator(".timeline")
    expect(line.locator("li")).to_have_count(2)
    expect(line).to_contain_text("Bremen")
    expect(page.locator(".facts").last).to_contain_text("I moved to Bremen last week.")
    page.get_by_role("button", name="Undo").click()
    expect(page.locator("[role=status].note")).to_contain_text("both hold")
    expect(page.locator(".facts").last).to_contain_text("undone")
    page.goto(f"{web.url}/memory?q=Hamburg&day=1999-12-31")
    expect(page.locator(".facts")).to_have_count(0)
    page.goto(f"{web.url}/memory?q=Hamburg&day=2999-12-31")
    expect(page.locator(fact("I live in Hamburg."))).to_have_count(1)


@pytest.mark.contract("10.63")
def test_first_screen_shows_the_state_of_memory_and_news(page: Page, web: WebProcess) -> None:
    tell(page, web, "I play the cello.")
    open_until(page, f"{web.url}/news", fact("I play the cello."))
    expect(page.locator("#sentence")).to_have_text(
        re.compile(r"^Memory works\. [\d,]+ things? known, nothing waits\.$")
    )
    new = page.locator("#news li").filter(has_text="I play the cello.")
    for name in ("Keep", "Correct", "Forget"):
        expect(new.get_by_text(re.compile(f"^{name}"))).to_be_visible()
    new.get_by_role("button", name=re.compile("^Keep")).click()
    page.goto(f"{web.url}/news")
    expect(new).to_have_count(0)
    page.get_by_role("button", name="Keep all").click()
    page.goto(f"{web.url}/news")
    expect(page.locator("#news .tag.new")).to_have_count(0)


@pytest.mark.contract("10.63")
def test_forgotten_entries_are_news_without_their_text(page: Page, web: WebProcess) -> None:
    with server_of(web) as server:
        [first, second] = hold(server, ["My parrot swears.", "My parrot bites."])
    for made in (first, second):
        page.goto(f"{web.url}/memory/facts/{made}/forget")
        page.get_by_role("button", name="Forget it").click()
        expect(page.locator("[role=status].note")).to_contain_text("Forgotten")
    page.goto(f"{web.url}/news")
    lines = page.locator("#news li").filter(has_text="forgotten")
    counts = [int(re.findall(r"(\d+) entr", line)[0]) for line in lines.all_inner_texts()]
    assert sum(counts) >= 2
    expect(lines.first).to_contain_text("just now")
    expect(page.locator("main")).not_to_contain_text("parrot")


def test_note_is_added_and_bad_ones_are_refused_with_their_text(page: Page, web: WebProcess) -> None:
    page.goto(f"{web.url}/memory")
    page.locator("#new").fill("I take my coffee black.")
    page.get_by_role("button", name="Add").click()
    expect(page.locator(fact("I take my coffee black."))).to_be_visible()
    assert "coffee black" in (web.home / "memories" / "USER.md").read_text(encoding="utf-8")
    page.locator("#new").fill("   ")
    page.get_by_role("button", name="Add").click()
    expect(page.locator("#problem")).to_contain_text("1 to 2000 characters")


@pytest.mark.parametrize(
    "text",
    [
        "<script>document.title='broken'</script><img src=x onerror=alert(1)>",
        "y" * 300,
        "אני אוהבת תה עם נענע",
        "私は緑茶が好きです。",
        "**not bold** [link](https://evil.example) <b>",
    ],
    ids=["HTML", "no blank", "right to left", "Japanese", "Markdown"],
)
@pytest.mark.contract("10.67")
def test_odd_fact_is_shown_unchanged_and_does_not_widen_the_page(page: Page, web: WebProcess, text: str) -> None:
    with server_of(web) as server:
        [made] = hold(server, [text])
    page.set_viewport_size({"width": 375, "height": 800})
    for path in ("/memory", "/", f"/memory/facts/{made}"):
        page.goto(f"{web.url}{path}")
        expect(page.get_by_text(text, exact=True).first).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth") <= 375
    page.set_viewport_size({"width": 1200, "height": 800})
    assert page.title() != "broken"


def test_question_to_memory_is_answered_with_evidence_and_not_stored(page: Page, web: WebProcess) -> None:
    tell(page, web, "My brother Paul works in Leipzig.")
    open_until(page, f"{web.url}/memory?q=Leipzig", fact("My brother Paul works in Leipzig."))
    page.goto(f"{web.url}/memory/ask")
    page.get_by_label("Question").fill("Where does Paul work?")
    page.get_by_role("button", name="Ask").click()
    expect(page.locator("#main .body")).to_have_text("Understood.")
    expect(page.locator(".facts")).to_contain_text("My brother Paul works in Leipzig.")
    page.goto(f"{web.url}/search?q=%22Where+does+Paul+work%22")
    expect(page.locator(".hits li")).to_have_count(0)
    with server_of(web) as server:
        assert not any("Where does Paul" in one for one in held(server))


def test_words_are_forgotten_everywhere_with_a_report_of_the_places(page: Page, web: WebProcess) -> None:
    tell(page, web, "My neighbour Bartholomew has a dog.")
    open_until(page, f"{web.url}/memory?q=Bartholomew", fact("My neighbour Bartholomew has a dog."))
    page.goto(f"{web.url}/memory/forget?q=Bartholomew")
    expect(page.locator(".places tbody tr")).to_have_count(3)
    expect(page.locator(".places")).to_contain_text("message")
    page.get_by_role("button", name="Forget all of it").click()
    expect(page.locator("[role=status].note")).to_contain_text("Forgotten", timeout=90_000)
    expect(page.locator(".places tbody tr")).to_have_count(3)
    page.goto(f"{web.url}/memory/forget?q=Bartholomew")
    expect(page.locator("main")).to_contain_text("Nothing is held in which all of this stands.")


@pytest.mark.parametrize("text", ["x" * 600, "私" * 600], ids=["Latin", "Japanese"])
def test_long_text_without_a_blank_does_not_match_everything(page: Page, web: WebProcess, text: str) -> None:
    with server_of(web) as server:
        hold(server, ["I keep bees."])
    page.goto(f"{web.url}/memory/forget?q={text}")
    expect(page.locator("main")).to_contain_text("Nothing is held in which all of this stands.")
    expect(page.get_by_role("button", name="Forget all of it")).to_have_count(0)


def test_deleted_session_is_removed_here_and_in_memory(page: Page, web: WebProcess) -> None:
    address = tell(page, web, "My piano teacher is Ms Okonkwo.")
    open_until(page, f"{web.url}/memory?q=Okonkwo", fact("My piano teacher is Ms Okonkwo."))
    page.goto(f"{address}/delete")
    expect(page.locator("main")).to_contain_text("2 messages")
    page.get_by_role("button", name="Delete it").click()
    page.wait_for_url("**/sessions")
    expect(page.get_by_text("Okonkwo")).to_have_count(0)
    assert page.goto(address).status == 404  # type: ignore[union-attr]
    with server_of(web) as server:
        for _ in range(100):
            if not any("Okonkwo" in one for one in held(server)):
                break
            page.wait_for_timeout(100)
        assert not any("Okonkwo" in one for one in held(server))


def test_export_contains_all_entries(page: Page, web: WebProcess) -> None:
    with server_of(web) as server:
        hold(server, [f"I have visited island {number}." for number in range(120)])
    page.goto(f"{web.url}/memory")
    with page.expect_download() as download:
        page.get_by_role("link", name="Export everything").click()
    lines = [json.loads(line) for line in Path(download.value.path()).read_text(encoding="utf-8").splitlines()]
    assert {f"I have visited island {number}." for number in range(120)} <= {line.get("text") for line in lines}


def test_list_continues_on_the_next_page(page: Page, web: WebProcess) -> None:
    with server_of(web) as server:
        hold(server, [f"I own book {number}." for number in range(120)])
    page.goto(f"{web.url}/memory?q=book")
    facts = page.locator("a.fact")
    expect(facts).to_have_count(50)
    page.get_by_role("link", name="More").click()
    expect(facts).to_have_count(100)
    page.get_by_role("link", name="More").click()
    expect(facts).to_have_count(120)
    assert len(set(facts.all_inner_texts())) == 120


def test_list_filters_by_kind_and_finds_words_in_any_spelling(page: Page, web: WebProcess) -> None:
    with server_of(web) as server:
        hold(server, ["I ski in Davos.", "うちのねこはﾐｿです", "I met Jose\u0301 in DAVOS."])
    page.goto(f"{web.url}/memory")
    page.locator("#new").fill("I rent a flat in Davos.")
    page.get_by_role("button", name="Add").click()
    facts = page.locator("a.fact")
    for kind, count in (("", 3), ("noted", 1), ("stated", 2), ("derived", 0)):
        page.goto(f"{web.url}/memory?q=davos&kind={kind}")
        expect(facts).to_have_count(count)
    page.get_by_label("Kind").select_option("Notes")
    page.get_by_role("button", name="Show").click()
    expect(facts).to_have_text(["I rent a flat in Davos."])
    for word, text in (("ミソ", "うちのねこはﾐｿです"), ("José", "I met Jose\u0301 in DAVOS.")):
        page.goto(f"{web.url}/memory?q={word}")
        expect(page.locator(fact(text))).to_have_count(1)
    assert page.goto(f"{web.url}/memory?kind=dream").status == 400  # type: ignore[union-attr]


def test_two_names_are_merged_after_a_preview(page: Page, web: WebProcess) -> None:
    with server_of(web) as server:
        hold(server, ["I was called Annie once."], about="annie")
    page.goto(f"{web.url}/memory/merge")
    page.get_by_label("This name").select_option("annie")
    page.get_by_label("becomes a part of").select_option(OWNER)
    page.get_by_role("button", name="See what would move").click()
    expect(page.locator(".note")).to_contain_text("1 facts of annie would become ann's")
    page.get_by_role("button", name="Merge annie into ann").click()
    expect(page.locator(".note")).to_contain_text("merges them now")
    open_until(page, f"{web.url}/memory?q=Annie", fact("I was called Annie once."))


def test_people_are_shown_with_card_and_standing_facts(page: Page, web: WebProcess) -> None:
    tell(page, web, "I am allergic to peanuts.", "Please always answer in short sentences.")
    open_until(page, f"{web.url}/memory/people", fact("Please always answer in short sentences."))
    you = page.locator(".person").first
    expect(you).to_contain_text("ann")
    expect(you).to_contain_text("health")
    expect(page.locator(".person").last).to_contain_text("the agent")


@pytest.fixture(scope="module")
def plain(browser: Browser, web: WebProcess) -> Iterator[Page]:
    """A signed-in page that runs no scripts."""
    context = browser.new_context(java_script_enabled=False)
    opened = context.new_page()
    opened.goto(web.take_link())
    yield opened
    context.close()


@pytest.mark.contract("10.67")
def test_without_scripts_a_fact_is_corrected_and_forgotten(plain: Page, web: WebProcess) -> None:
    with server_of(web) as server:
        [made] = hold(server, ["My car is a van."])
    plain.goto(f"{web.url}/memory?q=van")
    plain.locator(fact("My car is a van.")).click()
    plain.locator("#text").fill("My car is a truck.")
    plain.get_by_role("button", name="Correct").click()
    expect(plain.locator("h1")).to_have_text("My car is a truck.")
    plain.get_by_role("link", name="Forget").click()
    plain.get_by_role("button", name="Forget it").click()
    assert plain.goto(f"{web.url}/memory/facts/{made}").status == 404  # type: ignore[union-attr]
    plain.goto(f"{web.url}/news")
    expect(plain.locator("#sentence")).to_contain_text("Memory works.")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.contract("10.67")
def test_pages_of_memory_are_accessible(page: Page, web: WebProcess, axe: str, scheme: str) -> None:
    page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
    with server_of(web) as server:
        [made] = hold(server, [f"I drink tea, {scheme} or not."])
    chat = begin(page, web, "Which tea do I drink?")
    expect(replies(page)).to_have_count(1)
    say(page, "/status")
    paths = [
        *MEMORY_PAGES,
        *ASKED_PAGES,
        "/sessions",
        "/search?q=tea",
        f"/memory/facts/{made}",
        f"/memory/facts/{made}/forget",
    ]
    found = {}
    of_chat = [chat, *(f"{chat}/{one}" for one in ("delete", "turns/1/memory", "turns/1/lines/1"))]
    for address in [*(f"{web.url}{path}" for path in paths), *of_chat]:
        page.goto(address)
        found[address] = find_violations(page, axe)
    page.emulate_media(color_scheme=None)
    assert {address: one for address, one in found.items() if one} == {}
