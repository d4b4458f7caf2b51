"""A walk at a real terminal, step by step as a person takes it: every screen is kept, to be looked at.

    python -m scripts.terminal_walk                        # the screens go to terminal-walk/
    python -m scripts.terminal_walk --source OLD/src --out before

It needs tmux, and starts `hermes` of the named source in a home of its own, with a model on loopback. What a step waits
for and does not see is told, and the walk goes on: so it can be taken with an older version too.
"""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from scripts.walk_model import serving

HERE = Path(__file__).resolve().parents[1] / "src"
SOCKET = f"hermes-walk-{os.getpid()}"
WAIT_SECONDS, POLL_SECONDS = 8.0, 0.25
ROWS = 40
LONG = "".join(f"line {number}: {'words ' * 8}\n" for number in range(2500))


def tmux(*arguments: str, said: str | None = None) -> str:
    """Call the walk's own tmux server."""
    done = subprocess.run(
        ["tmux", "-L", SOCKET, *arguments], input=said, capture_output=True, text=True, check=True, timeout=20
    )
    return done.stdout


@dataclass
class Walk:
    """A window with a program, and a folder for its screens."""

    source: Path
    home: Path
    base_url: str
    out: Path
    number: int = 0
    unseen: list[str] = field(default_factory=list)

    def start(self, *arguments: str, columns: int = 100, **env: str) -> None:
        """Run `hermes` in a new window."""
        known = {"HERMES_HOME": str(self.home), "PYTHONPATH": str(self.source), "PYTHONUTF8": "1"}
        model = {
            "OPENAI_BASE_URL": self.base_url,
            "HERMES_MODEL": "walk-1",
            "HERMES_MEMORY_PROVIDER": "none",
            "HERMES_OWNER_NAME": "",
        }
        set_up = [f"{name}={value}" for name, value in {**known, **model, **env}.items()]
        command = shlex.join(["env", *set_up, sys.executable, "-m", "hermes", *arguments])
        shell = f"{command}; echo ended with $?; sleep 600"
        if self.number > 1:
            tmux("resize-window", "-t", "walk", "-x", str(columns), "-y", str(ROWS))
            tmux("respawn-pane", "-k", "-t", "walk", shell)
            tmux("clear-history", "-t", "walk")
        else:
            size = ("-x", str(columns), "-y", str(ROWS))
            tmux("-f", os.devnull, "new-session", "-d", "-s", "walk", *size, shell)

    def type(self, text: str) -> None:
        tmux("send-keys", "-t", "walk", "-l", text)

    def press(self, *keys: str) -> None:
        if keys:
            tmux("send-keys", "-t", "walk", *keys)

    def say(self, text: str) -> None:
        self.type(text)
        self.press("Enter")

    def paste(self, text: str) -> None:
        tmux("load-buffer", "-", said=text)
        tmux("paste-buffer", "-p", "-t", "walk")

    def resize(self, columns: int) -> None:
        tmux("resize-window", "-t", "walk", "-x", str(columns), "-y", str(ROWS))
        time.sleep(2 * POLL_SECONDS)

    def screen(self, *, painted: bool = False) -> str:
        return tmux("capture-pane", "-p", *(("-e",) if painted else ()), "-t", "walk").rstrip() + "\n"

    def wait_for(self, text: str) -> bool:
        until = time.monotonic() + WAIT_SECONDS
        while text not in self.screen():
            if time.monotonic() > until:
                return False
            time.sleep(POLL_SECONDS)
        return True

    def elsewhere(self, *arguments: str) -> None:
        """Run the same program in another process, like another client."""
        env = {**os.environ, "HERMES_HOME": str(self.home), "PYTHONPATH": str(self.source)}
        model = {
            "OPENAI_BASE_URL": self.base_url,
            "HERMES_MODEL": "walk-1",
            "HERMES_MEMORY_PROVIDER": "none",
            "HERMES_OWNER_NAME": "",
        }
        subprocess.run(
            [sys.executable, "-m", "hermes", *arguments], env={**env, **model}, capture_output=True, check=False
        )

    def take(self, step: Step) -> None:
        """Run one step and save the screen as text and with its colours."""
        self.number += 1
        begun = time.monotonic()
        step.act(self)
        seen = self.wait_for(step.awaits)
        took = time.monotonic() - begun
        name = f"{self.number:02} {step.name}"
        if not seen:
            self.unseen.append(f"{name}: {step.awaits!r}")
        sys.stdout.write(
            f"\n===== {name}  ({took:.1f} s{'' if seen else f', not seen: {step.awaits!r}'})\n{self.screen()}"
        )
        file = self.out / f"{name.replace(' ', '-').replace('/', '')}"
        file.with_suffix(".txt").write_text(self.screen(), encoding="utf-8")
        file.with_suffix(".ansi").write_text(self.screen(painted=True), encoding="utf-8")


@dataclass(frozen=True)
class Step:
    """An input, and the text on the screen that shows its effect."""

    name: str
    act: Callable[[Walk], None]
    awaits: str


def said(text: str, awaits: str, name: str = "") -> Step:
    return Step(name or text, lambda walk: walk.say(text), awaits)


def pressed(name: str, awaits: str, *keys: str) -> Step:
    return Step(name, lambda walk: walk.press(*keys), awaits)


def _resize_while_streaming(walk: Walk) -> None:
    walk.say("show a table, please")
    for columns in (80, 60, 100, 70):
        walk.resize(columns)


def _type_two_lines(walk: Walk) -> None:
    walk.type("first")
    walk.press("M-Enter")
    walk.type("second")


def _leave_and_come_back(walk: Walk, *arguments: str, columns: int = 100, **env: str) -> None:
    walk.press("C-d")
    walk.wait_for("ended with")
    walk.start(*arguments, columns=columns, **env)


STEPS: Sequence[Step] = (
    Step("the first start", lambda walk: walk.start("chat"), "›"),
    said("/help", "Leave."),
    said("hello there", "You said: hello there"),
    Step("a reply while it comes", lambda walk: walk.say("show a table"), "Read a chunk"),
    Step("typed ahead", lambda walk: walk.say("and now this"), "next: and now this"),
    pressed("the reply as a whole", "That was: show a table."),
    pressed("what was typed ahead is said", "You said: and now this"),
    Step("waiting for a slow model", lambda walk: walk.say("be slow"), "Ctrl-C stops it"),
    pressed("Ctrl-C stops it", "(stopped)", "C-c"),
    said("please note my tea", "You said: please note my tea", "a tool call"),
    said("/unfold", "green tea"),
    Step("a paste of 140 KB", lambda walk: walk.paste(LONG), "[pasted"),
    Step("words around it", lambda walk: walk.type(" is what I mean"), "mean"),
    pressed("Enter on the paste", "You said: line 0", "Enter"),
    pressed("Up shows it again", "[pasted", "Up"),
    pressed("Ctrl-C clears the line", "›", "C-c"),
    said("/title Garden", "Title: Garden"),
    said("/memory", "Memory is on"),
    said("/memory off", "ncognito"),
    said("what do you know", "You said: what do you know", "an incognito turn"),
    said("/memory on", "emory"),
    Step(
        "another client speaks", lambda walk: walk.elsewhere("chat", "-c", "-q", "from elsewhere"), "» from elsewhere"
    ),
    said("/status", "context"),
    said("/usage", "requests"),
    said("/model", "walk-2"),
    said("refuse twice", "At last.", "an endpoint that fails twice"),
    Step("compression takes a while", lambda walk: walk.say("/compress"), "Ctrl-C stops it"),
    pressed("Ctrl-C stops the compression", "compress", "C-c"),
    said("/sessions", "resumes one"),
    said("/frobnicate", "there is no command"),
    said("/new", "A new session begins"),
    said("/resume Garden", "Resuming"),
    Step("Alt-Enter makes a line", _type_two_lines, "second"),
    pressed("both lines are one message", "You said: first", "Enter"),
    Step("resized while a reply comes", _resize_while_streaming, "That was: show a table, please."),
    Step("60 columns", lambda walk: _leave_and_come_back(walk, "chat", "-c", columns=60), "· notes"),
    said("a table in 60 columns", "That was: a table in 60 columns.", "Markdown in 60 columns"),
    Step("NO_COLOR", lambda walk: _leave_and_come_back(walk, "chat", NO_COLOR="1"), "›"),
    said("a table without colours", "That was: a table without colours.", "Markdown without colours"),
    Step("TERM=dumb", lambda walk: _leave_and_come_back(walk, "chat", TERM="dumb"), "›"),
    said("a table for a dumb terminal", "That was: a table for a dumb terminal.", "Markdown in a dumb terminal"),
    pressed("one Ctrl-C does not leave it", "again to leave", "C-c"),
)


def main() -> int:
    """Run the walk; return 1 if an expected text did not appear."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", type=Path, default=HERE, help="the src folder of the version to walk with")
    parser.add_argument("--out", type=Path, default=Path("terminal-walk"), help="where the screens go")
    chosen = parser.parse_args()
    chosen.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, serving() as base_url:
        walk = Walk(chosen.source.resolve(), Path(folder), base_url, chosen.out)
        try:
            for step in STEPS:
                walk.take(step)
        finally:
            subprocess.run(["tmux", "-L", SOCKET, "kill-server"], capture_output=True, check=False)
    for line in walk.unseen:
        sys.stdout.write(f"not seen: {line}\n")
    return 1 if walk.unseen else 0


if __name__ == "__main__":
    sys.exit(main())
