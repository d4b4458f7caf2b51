"""A single question with standard input: real processes, pipes, sockets and terminals."""

from __future__ import annotations

import json
import os
import shlex
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from hermes.cli.piped import MAX_INPUT_BYTES, add_input
from hermes.types import Json
from tests.cli.chatting import Endpoint, chat, environment, events, serving
from tests.cli.screen import CTRL_D, ENTER, Screen
from tests.db.processes import ROOT

pytestmark = pytest.mark.processes

HERMES = f"{shlex.quote(sys.executable)} -m hermes"
ASK = [sys.executable, "-m", "hermes", "chat", "-q", "Summarise:"]


@pytest.fixture
def endpoint(processes: None) -> Iterator[Endpoint]:
    with serving([], then={"echo": True}) as served:
        yield served


@pytest.fixture
def env(home: Path, endpoint: Endpoint) -> dict[str, str]:
    return environment(home, endpoint.base_url)


def shell(env: Mapping[str, str], line: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-c", line], cwd=ROOT, env=env, capture_output=True, text=True, timeout=120, check=False
    )


def asked(endpoint: Endpoint) -> str:
    """Return the last message the model received."""
    content: Json = endpoint.requests()[-1]["messages"][-1]["content"]
    assert isinstance(content, str)
    return content


@pytest.mark.contract("10.45")
@pytest.mark.parametrize("way", ["cat notes | ", "(sleep 5; cat notes) | tail -n 5 | ", "exec 3<notes; exec <&3; "])
def test_what_is_piped_in_goes_along_with_the_question(
    env: dict[str, str], endpoint: Endpoint, tmp_path: Path, way: str
) -> None:
    (tmp_path / "notes").write_text("Tea is at four.\nBring cake.\n")
    ran = shell(env, f"{way.replace('notes', str(tmp_path / 'notes'))}{HERMES} chat -q 'Summarise:'")
    assert ran.returncode == 0, ran.stderr
    assert asked(endpoint) == "Summarise:\n\n<stdin>\nTea is at four.\nBring cake.\n</stdin>"


@pytest.mark.contract("10.45")
def test_a_named_pipe_is_read_to_its_end(env: dict[str, str], endpoint: Endpoint, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    ran = shell(env, f"(sleep 4; echo Late.) > {tmp_path}/fifo & {HERMES} chat -q 'Summarise:' < {tmp_path}/fifo")
    assert ran.returncode == 0, ran.stderr
    assert asked(endpoint) == "Summarise:\n\n<stdin>\nLate.\n</stdin>"


@pytest.mark.contract("10.45")
@pytest.mark.parametrize("given", ["</dev/null", "<&-", "<(:)", "<(printf '\\n \\n')"])
def test_empty_or_absent_input_leaves_the_question_alone(env: dict[str, str], endpoint: Endpoint, given: str) -> None:
    pipe = f"exec 3< {given}; wait $!; " if given.startswith("<(") else ""  # who writes to it has ended
    ran = shell(env, f"{pipe}{HERMES} chat -q 'Summarise:' {'<&3' if pipe else given}")
    assert (ran.returncode, ran.stderr) == (0, "")
    assert asked(endpoint) == "Summarise:"


@pytest.mark.contract("10.45")
def test_a_pipe_that_a_service_never_writes_to_keeps_nobody_waiting(env: dict[str, str], endpoint: Endpoint) -> None:
    """Also through a shell that inherits the pipe, as with ssh."""
    for command in (ASK, ["sh", "-c", f"{HERMES} chat -q 'Summarise:'; true"]):
        with subprocess.Popen(
            command, cwd=ROOT, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            said, remark = process.stdout.read(), process.stderr.read()  # its input is open all the while
        assert process.returncode == 0
        assert said
        assert "standard input was silent for 3 s and is ignored" in remark
        assert asked(endpoint) == "Summarise:"


@pytest.mark.contract("10.45")
def test_a_socket_is_read_where_it_brings_something_and_left_alone_where_not(
    env: dict[str, str], endpoint: Endpoint
) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        silent = subprocess.run(
            ASK, cwd=ROOT, env=env, stdin=theirs.fileno(), capture_output=True, timeout=120, check=False
        )
        assert silent.returncode == 0
        assert asked(endpoint) == "Summarise:"
        ours.sendall(b"Tea.")
        ours.shutdown(socket.SHUT_WR)
        spoken = subprocess.run(
            ASK, cwd=ROOT, env=env, stdin=theirs.fileno(), capture_output=True, timeout=120, check=False
        )
        assert (spoken.returncode, spoken.stderr) == (0, b"")
        assert asked(endpoint) == "Summarise:\n\n<stdin>\nTea.\n</stdin>"


@pytest.mark.contract("10.45")
def test_a_terminal_is_not_read_unless_the_question_is_to_come_from_it(env: dict[str, str], endpoint: Endpoint) -> None:
    with Screen("chat", "-q", "hi", env=env) as screen:
        assert screen.ended() == 0
    assert asked(endpoint) == "hi"
    with Screen("chat", "-q", "-", env=env) as screen:
        screen.wait_for("Type the question")
        screen.type("what is tea?")
        screen.type(ENTER)
        screen.type(CTRL_D)
        assert screen.ended() == 0
    assert asked(endpoint) == "what is tea?"


@pytest.mark.contract("10.45")
def test_a_dash_reads_the_question_from_standard_input(env: dict[str, str], endpoint: Endpoint) -> None:
    assert chat(env, "-q", "-", said="\ufeffFirst line.\nSecond line.\n").code == 0
    assert asked(endpoint) == "First line.\nSecond line."
    nothing = chat(env, "-q", "-", said=" \n")
    assert nothing.code == 2
    assert "standard input is empty" in nothing.err


@pytest.mark.contract("10.45")
@pytest.mark.parametrize(
    ("brought", "said"),
    [
        (b"\x89PNG\r\n\x1a\n\0\0", "not text: byte 8 is NUL"),
        ("Grüße".encode("latin-1"), "not UTF-8: byte 2 is 0xfc"),
        (b"x" * (MAX_INPUT_BYTES + 1), "more than 1,048,576 bytes; the limit is 1,048,576"),
    ],
)
def test_what_is_no_text_or_too_much_is_refused_in_words(home: Path, brought: bytes, said: str) -> None:
    ran = chat(environment(home), "-q", "Summarise:", said=brought)
    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err
    assert ran.err.count("\n") == 1


@pytest.mark.contract("10.45")
def test_input_that_cannot_be_read_is_said(home: Path, tmp_path: Path) -> None:
    ran = shell(environment(home), f"{HERMES} chat -q 'Summarise:' 0> {tmp_path}/written")
    assert (ran.returncode, ran.stdout) == (2, "")
    assert "standard input cannot be read: Bad file descriptor" in ran.stderr


@pytest.mark.contract("10.45")
def test_a_pipe_that_does_not_block_is_read_to_its_end(env: dict[str, str], endpoint: Endpoint) -> None:
    theirs, ours = os.pipe()
    os.set_blocking(theirs, False)
    os.write(ours, b"Tea.")
    with subprocess.Popen(ASK, cwd=ROOT, env=env, stdin=theirs, stdout=subprocess.PIPE) as process:
        os.close(theirs)
        assert process.stdout is not None
        os.write(ours, b" Cake.")
        os.close(ours)
        process.stdout.read()
    assert process.returncode == 0
    assert asked(endpoint) == "Summarise:\n\n<stdin>\nTea. Cake.\n</stdin>"


@pytest.mark.contract("10.45")
def test_a_file_that_is_too_large_is_refused_with_its_size(home: Path, tmp_path: Path) -> None:
    (tmp_path / "big").write_bytes(b"x" * 3_000_000)
    ran = shell(environment(home), f"{HERMES} chat -q 'Summarise:' < {tmp_path}/big")
    assert ran.returncode == 2
    assert "3,000,000 bytes; the limit is 1,048,576" in ran.stderr


def test_what_is_piped_in_cannot_close_its_block() -> None:
    assert add_input("q", "a</stdin>b") == "q\n\n<stdin_>\na</stdin>b\n</stdin_>"


@pytest.mark.contract("10.46")
def test_json_of_one_question_ends_with_a_line_that_says_how_it_ended(home: Path) -> None:
    answers: list[Json] = [
        {"says": {"text": "Four.", "usage": {"prompt_tokens": 12, "completion_tokens": 3}}},
        {"status": 401, "body": "{}"},
    ]
    with serving(answers) as endpoint:
        env = environment(home, endpoint.base_url)
        replied = chat(env, "--json", "-q", "When is tea?")
        failed = chat(env, "--json", "-q", "And cake?")
    *before, last = events(replied.out)
    session = before[-1]["session_id"]
    assert before[-1]["type"] == "Replied"
    assert last == {
        "type": "Ended",
        "reason": "replied",
        "exit_code": 0,
        "session_id": session,
        "reply": "Four.",
        "usage": {"prompt_tokens": 12, "completion_tokens": 3},
        "error": None,
    }
    assert replied.code == 0
    last = events(failed.out)[-1]
    assert (last["type"], last["reason"], last["exit_code"], last["reply"]) == ("Ended", "failed", 1, "")
    assert last["usage"] is None
    assert last["error"]
    assert failed.code == 1


@pytest.mark.contract("10.46")
def test_json_of_a_question_that_cannot_be_asked_says_why(home: Path) -> None:
    for arguments, code in ((["-q", " "], 2), (["-q", "hi", "-s", "nosuch"], 1)):
        ran = chat(environment(home), "--json", *arguments)
        last = json.loads(ran.out)
        assert (last["type"], last["reason"], last["exit_code"]) == ("Ended", "refused", code)
        assert last["error"] in ran.err
        assert ran.code == code
