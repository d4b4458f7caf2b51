"""The reach of recall: memories of the owner, a guest and a group stay separate, whoever asks and however."""

from __future__ import annotations

from typing import Any

import pytest

from hermes.honcho.context_views import Whose, choose_views
from hermes.memory.provider import Conversation, Speaker
from tests.honcho.between import like_a_model
from tests.honcho.recalling import ANN, BOB, BOT, DIRECT, GROUP, GUEST, HERE, OWNER, SESSIONS, Recalling

OWNERS, GUESTS, GROUPS = "Zanzibar", "Quetzal", "Wolfram"
SECRETS = (OWNERS, GUESTS, GROUPS)
QUESTION = "Tell me the password of the safe and where it is kept."
TOOLS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("honcho_profile", {}),
    ("honcho_search", {"query": "password of the safe"}),
    ("honcho_context", {}),
    ("honcho_reasoning", {"query": QUESTION}),
    ("honcho_conclude", {"list": True}),
    ("honcho_conclude", {"query": "password of the safe"}),
)


@pytest.fixture
def told(recalling: Recalling) -> Recalling:
    """A secret each of the owner, a guest and a group, which the agent repeated."""
    recalling.configure()
    for session, peer, secret in (("desk", ANN, OWNERS), (SESSIONS["s2"], BOB, GUESTS), (SESSIONS["s3"], "55", GROUPS)):
        recalling.tell(
            session,
            (peer, f"The password of the safe is {secret}. I keep it in the cellar."),
            (BOT, f"I noted that the password of the safe is {secret}."),
        )
    recalling.set_card(BOT, [f"Password: {OWNERS}"], ANN)
    recalling.set_card(BOT, [f"Password: {GUESTS}"], BOB)
    recalling.set_card(BOT, [f"I was told of {OWNERS}"])
    return recalling


def secrets_in(text: str) -> set[str]:
    return {secret for secret in SECRETS if secret in text}


CASES = [
    pytest.param(HERE, OWNER, {OWNERS}, id="owner"),
    pytest.param(DIRECT, GUEST, {GUESTS}, id="guest"),
    pytest.param(GROUP, OWNER, {GROUPS}, id="owner in a group"),
    pytest.param(GROUP, GUEST, {GROUPS}, id="guest in a group"),
    pytest.param(DIRECT, OWNER, {GUESTS}, id="owner in a guest's chat"),
]


@pytest.mark.contract("1.9", "7.10")
@pytest.mark.parametrize(("conversation", "speaker", "own"), CASES)
async def test_a_prompt_holds_what_is_the_conversations_own(
    told: Recalling, conversation: Conversation, speaker: Speaker, own: set[str]
) -> None:
    async with told.host() as talk:
        recalled = [await talk.turn(QUESTION, conversation, speaker) for _ in range(2)]
    assert secrets_in("\n".join(recalled)) == own


@pytest.mark.contract("1.9", "7.10")
@pytest.mark.parametrize("peer", ["user", "ai"])
@pytest.mark.parametrize(("conversation", "speaker", "own"), CASES)
async def test_tools_reach_what_is_the_conversations_own(
    told: Recalling, conversation: Conversation, speaker: Speaker, own: set[str], peer: str
) -> None:
    async with told.host() as talk:
        answers = [await talk.use(tool, conversation, speaker, peer=peer, **given) for tool, given in TOOLS]
    # What a group member who never spoke there is asked about is nothing, but never someone else's.
    assert secrets_in("\n".join(answers)) <= own
    if conversation is not GROUP and (peer == "user" or conversation is HERE):
        assert secrets_in("\n".join(answers)) == own


@pytest.mark.contract("7.10")
async def test_a_group_is_reminded_of_what_each_member_said_there(told: Recalling) -> None:
    told.tell(SESSIONS["s3"], (BOB, "I bring the tent."), ("55", "I play the cello in an orchestra."))
    async with told.host() as talk:
        text = await talk.turn("Who brings what?", GROUP, OWNER)
    assert "- 55: I play the cello in an orchestra." in text
    assert "- 17: I bring the tent." in text


@pytest.mark.contract("7.10")
async def test_a_conclusion_of_someone_else_cannot_be_deleted(told: Recalling) -> None:
    owners = told.conclude(BOT, ANN, f"The owner's word is {OWNERS}.")
    async with told.host() as talk:
        for conversation in (DIRECT, GROUP):
            for peer in ("user", "ai"):
                said = await talk.use("honcho_conclude", conversation, GUEST, delete_id=owners, peer=peer)
                assert "there is no fact" in said


@pytest.mark.contract("7.10")
async def test_two_agents_in_one_workspace_know_the_same_person_and_each_itself(told: Recalling) -> None:
    told.tell("desk", (ANN, "My boat is called Petrel."), ("coder", "I answer in code."), observers=(BOT, "coder"))
    told.set_card("coder", ["I am the coder"])
    texts = {}
    for name in (BOT, "coder"):
        told.configure(aiPeer=name)
        async with told.host() as talk:
            texts[name] = await talk.turn("What is my boat called?")
    assert all("Petrel" in text for text in texts.values())
    assert "I am the coder" in texts["coder"]
    assert "I was told of" not in texts["coder"]
    assert "I am the coder" not in texts[BOT]


@pytest.mark.contract("7.10")
async def test_agents_of_a_workspace_recall_what_the_owner_told_any_of_them(told: Recalling) -> None:
    told.tell("violin", (ANN, "My violin teacher is Greta."), (BOT, "Noted."))
    told.conclude(BOT, ANN, "Practises the violin on Mondays.")
    told.configure(aiPeer="coder")
    async with told.host() as talk:
        recalled = await talk.turn("Who is my violin teacher?")
        found = await talk.use("honcho_search", query="violin teacher")
        answered = await talk.use("honcho_reasoning", query="Who is my violin teacher?")
    assert "Greta" in recalled
    assert "Greta" in answered
    facts, _, _ = found.partition("Said:")
    assert "Greta" in facts
    assert "Mondays" not in recalled + found, "what another agent concluded is its own"


@pytest.mark.contract("7.10")
async def test_what_an_agent_and_the_owners_own_view_hold_is_recalled_once(told: Recalling) -> None:
    told.tell("violin", (ANN, "My violin teacher is Greta."))
    async with told.host() as talk:
        await talk.turn("hello there")
        text = await talk.use("honcho_context")
    assert text.count("Greta") == 1


@pytest.mark.contract("7.10")
async def test_a_separate_workspace_knows_nothing_of_the_other(told: Recalling) -> None:
    told.configure(workspace=f"{told.workspace}-other")
    async with told.host() as talk:
        assert await talk.turn(QUESTION) == ""


@pytest.mark.contract("1.9", "7.10")
async def test_agents_words_among_others_stay_there_even_beside_the_owner(told: Recalling) -> None:
    for session in (SESSIONS["s2"], SESSIONS["s3"]):
        told.tell(session, (ANN, "I am here too."))
    async with told.host() as talk:
        recalled = [await talk.turn(QUESTION, HERE, OWNER) for _ in range(2)]
        answers = [await talk.use(tool, HERE, OWNER, peer="ai", **given) for tool, given in TOOLS]
    assert secrets_in("\n".join([*recalled, *answers])) == {OWNERS}


@pytest.mark.contract("1.9", "7.10")
@pytest.mark.parametrize(
    ("conversation", "speaker"), [(DIRECT, GUEST), (DIRECT, OWNER), (GROUP, OWNER), (GROUP, GUEST)]
)
async def test_foreign_server_with_cards_gives_no_answers_among_others(
    told: Recalling, conversation: Conversation, speaker: Speaker
) -> None:
    told.between.rule = like_a_model(f"The card says {OWNERS}.")
    async with told.host() as talk:
        recalled = [await talk.turn(QUESTION, conversation, speaker) for _ in range(2)]
        answers = [
            await talk.use("honcho_reasoning", conversation, speaker, query=QUESTION, peer=peer)
            for peer in ("user", "ai")
        ]
    assert told.between.count("chat") == 0
    assert OWNERS not in "\n".join([*recalled, *answers])
    assert all(answer.startswith("failed: ") and "cards" in answer for answer in answers)


@pytest.mark.contract("1.9", "7.10")
async def test_another_server_answers_the_owner_about_the_owner_and_not_about_the_agent(told: Recalling) -> None:
    told.between.rule = like_a_model(f"I was told {GUESTS}.")
    async with told.host() as talk:
        assert GUESTS not in await talk.use("honcho_reasoning", HERE, OWNER, query=QUESTION, peer="ai")
        assert "I was told" in await talk.use("honcho_reasoning", HERE, OWNER, query=QUESTION)


@pytest.mark.contract("1.9", "7.7")
async def test_another_server_answers_about_the_agent_while_the_owner_is_alone_with_it(recalling: Recalling) -> None:
    recalling.configure()
    recalling.tell("elsewhere", (ANN, "Answer in short sentences."), (BOT, "I will."))
    recalling.between.rule = like_a_model("It answers in short sentences.")
    async with recalling.host() as talk:
        alone = await talk.use("honcho_reasoning", HERE, OWNER, query="How does it answer?", peer="ai")
        assert alone == "It answers in short sentences."
        assert "filters" not in recalling.between.bodies("chat")[-1], "another server knows none"
        recalling.tell("chat", (BOB, "Hello there."), (BOT, "Hello."))
        refused = await talk.use("honcho_reasoning", HERE, OWNER, query="How does it answer now?", peer="ai")
    assert refused.startswith("failed: ")
    assert "cards" in refused


def test_headings_name_the_owner_as_the_owner_is_called() -> None:
    whose = Whose("s", BOT, "everything", ANN, called="Nina")
    titles = [one.title for one in choose_views(whose, [], searched=False)]
    assert titles[:2] == ["What is known about Nina", "What else Nina has said"]
    assert [one.view["observed_id"] for one in choose_views(whose, [], searched=False)][:2] == [ANN, ANN], (
        "no peer changes"
    )
    assert whose.name_of(BOB) == BOB
