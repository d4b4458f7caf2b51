"""A month of small talk after ten facts of a life: is each fact still known, and how many tokens does a turn cost?
The facts come from turns of a gateway; the small talk is stored directly in batches, with a turn after each."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from hermes.fence import TAG
from tests.gateway.processes import GatewayProcess, LoopbackModel, echo_model
from tests.honcho.fresh import FreshHome, fresh_home
from tests.memory_server.talking import say, settle
from tests.plain_http import PLAIN

PERSON, AGENT = "marta", "bot"
FACTS = {
    "My name is Marta Quill.": ("What's my name?", "Marta Quill"),
    "I live in Trieste, near the harbour.": ("Where do I live?", "Trieste"),
    "I work as a bookbinder.": ("What do I do for a living?", "bookbinder"),
    "My birthday is on 14 February.": ("When is my birthday?", "14 February"),
    "I'm allergic to sesame.": ("Is there any food that I must avoid?", "sesame"),
    "My son Ilja plays handball.": ("Which sport does my son do?", "handball"),
    "Always give temperatures in Celsius.": ("How warm will it be tomorrow?", "Celsius"),
    "I collect old railway lanterns.": ("What do I collect?", "lanterns"),
    "My grandmother taught me to bake poppy seed cake.": ("What did I learn from my grandmother?", "poppy seed"),
    "I drive a green Saab from 1991.": ("Which car do I have?", "Saab"),
}
WORDS = {
    "food": "soup|rice|pancakes|a salad|lentils|noodles|an omelette|toast|dumplings|a sandwich",
    "place": "the market|the park|the library|the station|the office|the bakery|the swimming pool|the cinema",
    "name": "Tom|Rita|Janek|Olu|Petra|Sami|Greta|Luis|Mei|Anders",
    "mood": "tired|cheerful|a bit bored|glad|annoyed|sleepy|hungry|in a hurry|quite pleased|cold",
    "thing": "umbrella|kettle|bicycle|phone|jacket|printer|window|radio|lamp|notebook",
    "weather": "rainy|windy|sunny|foggy|grey|mild|stormy|humid",
    "day": "Monday|Tuesday|Wednesday|Thursday|Friday|Saturday|Sunday",
    "what": "the news|a new film|the football match|their holidays|a recipe|old songs|the traffic|a podcast",
}
TEMPLATES = (
    "I had {food} for lunch and I feel {mood} now.",
    "It was {weather} when I walked to {place}.",
    "My colleague {name} told me about {what}.",
    "I met {name} at {place} and we talked about {what}.",
    "My {thing} is broken again, so I am {mood}.",
    "I forgot my {thing} at {place} on {day}.",
    "We will probably cook {food} on {day}.",
    "The {day} meeting was long and I was {mood}.",
    "I read about {what} on the bus to {place}.",
    "My neighbour {name} borrowed my {thing}.",
    "I slept badly, it was {weather} all night.",
    "{name} says that {food} is better at {place}.",
    "I am {mood} because {name} was late for {place}.",
    "I bought a {thing} near {place}, it was cheap.",
    "Thanks, I will tell {name} about {what} on {day}.",
)


def small_talk(count: int) -> list[str]:
    """Return everyday sentences, the same in every run."""
    chance = random.Random(7)
    options = {name: words.split("|") for name, words in WORDS.items()}
    made: dict[str, None] = {}
    while len(made) < count:
        chosen = {name: chance.choice(words) for name, words in options.items()}
        made[chance.choice(TEMPLATES).format(**chosen)] = None
    return list(made)


@dataclass
class Month:
    """A person's home with a gateway and a recording model."""

    home: FreshHome
    gateway: GatewayProcess
    model: LoopbackModel
    blocks: list[str] = field(default_factory=list)

    def ask(self, text: str) -> str:
        """Ask in a new conversation, and return the memory block of the request."""
        answer = httpx.post(
            f"{self.gateway.url}/chat/completions",
            json={"messages": [{"role": "user", "content": text}]},
            headers={"X-Hermes-Session-Id": f"talk-{len(self.blocks)}"},
            timeout=180,
            trust_env=False,
            verify=PLAIN,
        )
        answer.raise_for_status()
        self.blocks.append(self.block_of(text))
        return self.blocks[-1]

    def block_of(self, text: str) -> str:
        """Return the memory block of the newest request with this message."""
        given = next(said[-1] for said in reversed(self.model.asked()) if said[-1].endswith(text) or text in said[-1])
        found = re.search(f"<{TAG}>(.*)</{TAG}>", given, re.DOTALL)
        return found[1] if found else ""

    def tell(self, texts: Sequence[str]) -> None:
        """Store small talk of the person."""
        with self.home.at_server() as http:
            peers = {PERSON: {}, AGENT: {"observe_others": True}}
            http.post("/sessions", json={"id": "small-talk", "peers": peers}).raise_for_status()
            for start in range(0, len(texts), 100):
                say(http, "small-talk", *texts[start : start + 100], peer=PERSON)
            settle(http)


@contextmanager
def month(folder: Path) -> Iterator[Month]:
    """Yield a month that begins with the facts."""
    with echo_model() as model, fresh_home(folder, model.base_url) as home:
        home.home.mkdir(parents=True)
        (home.home / "honcho.json").write_text(json.dumps({"peerName": PERSON, "aiPeer": AGENT}), encoding="utf-8")
        memory = "memory: {provider: honcho, deadline: 30, first_deadline: 30}\n"
        (home.home / "config.yaml").write_text(memory, encoding="utf-8")
        env = {**home.env, "API_SERVER_ENABLED": "true", "API_SERVER_PORT": "0", "HERMES_MEMORY_PROVIDER": "honcho"}
        with GatewayProcess(home.home, env=env) as gateway:
            made = Month(home, gateway, model)
            for fact in FACTS:
                made.ask(fact)
            home.deliver()
            yield made
