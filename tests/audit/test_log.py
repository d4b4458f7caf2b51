"""Log audits: every format, every anomaly, and arbitrary other content."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.audit.log import LogAudit, LogLine, audit_log, log_files, pair_lines, parse_line
from tests.audit.wounds import EVIDENCE, X, Y
from tests.conftest import Ran

Hermes = Callable[..., Ran]
AUDIT = pytest.mark.contract("3.9", "3.12")


def line(event: str, session: str, at: int, *, bracket: str | None = None, op: str | None = "aa", n: str = "9") -> str:
    stamp = f"2026-06-01 12:{at // 60:02}:{at % 60:02}"
    middle = f" op={op}" if op else ""
    return (
        f"{stamp} INFO [{bracket or session}] hermes.compression: "
        f"context compression {event}: session={session}{middle} messages={n} tokens=~1,000"
    )


def as_json(text: str) -> str:
    """Return the line in the format of the JSON log."""
    parsed = parse_line(text.encode())
    assert parsed is not None
    message = text[text.index("context compression") :]
    return json.dumps({"time": text[:19].replace(" ", "T"), "session": parsed.bracket, "message": message})


def read(folder: Path, *lines: str) -> LogAudit:
    path = folder / "agent.log"
    path.write_text("".join(f"{text}\n" for text in lines), encoding="utf-8")
    return audit_log(path)


def codes(audit: LogAudit) -> list[str]:
    return [anomaly.code for anomaly in audit.anomalies]


@AUDIT
def test_both_anomalies_are_found_in_the_lines_of_an_older_version(tmp_path: Path) -> None:
    (tmp_path / "agent.log").write_text(EVIDENCE)
    audit = audit_log(tmp_path / "agent.log")
    assert len(audit.operations) == 3
    assert [(anomaly.code, anomaly.sessions) for anomaly in audit.anomalies] == [
        ("log-anomaly-a", (Y, "20260528_161635_bb86b1")),
        ("log-anomaly-b", (X, Y)),
    ]
    assert not any(anomaly.ours for anomaly in audit.anomalies)
    assert audit.unfinished == []


@AUDIT
@pytest.mark.parametrize("form", [str, as_json])
def test_anomalies_of_a_wrong_compressor_are_found_in_both_of_our_formats(
    tmp_path: Path, form: Callable[[str], str]
) -> None:
    audit = read(
        tmp_path,
        form(line("started", "S", 1, op="a")),
        form(line("done", "T", 9, bracket="S", op="a", n="9->3")),
        form(line("started", "U", 20, bracket="V", op="b")),
        form(line("done", "U", 29, bracket="V", op="b", n="9->3")),
        form(line("started", "W", 40, op="c")),
        form(line("started", "W", 42, op="d")),
        form(line("done", "W", 50, op="c", n="9->3")),
        form(line("done", "W", 52, op="d", n="9->3")),
    )
    assert codes(audit) == ["log-anomaly-a", "log-anomaly-b", "log-overlap"]
    assert all(anomaly.ours for anomaly in audit.anomalies)


@AUDIT
def test_a_right_compressor_leaves_no_anomaly_however_it_ends(tmp_path: Path) -> None:
    audit = read(
        tmp_path,
        line("started", "S", 1, op="a"), line("started", "S", 2, op="b"), line("busy", "S", 3, op="b"),
        line("started", "kunde 7: [Straße] «ü»", 3, op="c"), line("done", "S", 9, op="a"),
        line("failed", "kunde 7: [Straße] «ü»", 9, op="c"), line("started", "S", 20, op="d"),
        line("started", "S", 20, op="e"), line("done", "S", 21, op="d"), line("done", "S", 30, op="e"),
        line("started", "S", 40, op="f"), line("skipped", "S", 40, op="f"), line("started", "S", 50, op="g"),
    )  # fmt: skip
    assert codes(audit) == []
    assert len(audit.operations) == 7
    assert [operation.start.op for operation in audit.unfinished] == ["g"]


@AUDIT
def test_a_crash_in_the_old_format_does_not_pair_the_wrong_lines(tmp_path: Path) -> None:
    audit = read(
        tmp_path,
        line("started", "S", 1, op=None),
        line("started", "S", 60, op=None),
        line("done", "S", 90, op=None),
        line("started", "T", 100, op=None),
        line("done", "T", 110, op=None),
        line("done", "never started", 120, op=None),
    )
    assert codes(audit) == []
    assert [operation.start.session_id for operation in audit.unfinished] == ["S"]


@AUDIT
def test_an_old_end_goes_to_the_start_that_names_its_session(tmp_path: Path) -> None:
    audit = read(
        tmp_path,
        line("started", "S", 1, op=None),
        line("started", "T", 5, bracket="S", op=None),
        line("done", "S", 9, op=None),
        line("done", "T", 10, bracket="S", op=None),
    )
    assert codes(audit) == ["log-anomaly-b"]
    assert audit.unfinished == []


STOCK = """\
2026-07-21 10:00:00,100 INFO [20260721_095900_aaaaaaaa] agent.conversation_compression: context compression started: session=20260721_095900_aaaaaaaa messages=13 tokens=~400,000 model=loop focus=None
2026-07-21 10:00:01,200 INFO [20260721_095901_bbbbbbbb] agent.conversation_compression: context compression started: session=20260721_095901_bbbbbbbb messages=21 tokens=~400,000 model=loop focus=None
2026-07-21 10:00:02,300 INFO [20260721_100002_cccccc] agent.conversation_compression: context compression done: session=20260721_100002_cccccc messages=13->5 rough_tokens=~13,875 awaiting_real_usage=true
2026-07-21 10:00:03,300 INFO [20260721_095901_bbbbbbbb] agent.conversation_compression: context compression done: session=20260721_095901_bbbbbbbb messages=21->5 rough_tokens=~13,875 awaiting_real_usage=true
2026-07-21 11:00:00,000 INFO agent.conversation_compression: context compression started: session=20260721_100002_cccccc messages=10 tokens=~110,000 model=loop focus=None
2026-07-21 11:00:00,500 INFO agent.conversation_compression: context compression done: session=20260721_100002_cccccc messages=10->6 rough_tokens=~2,800 awaiting_real_usage=true
"""  # noqa: E501 - lines of a log as they are written


@AUDIT
def test_a_task_that_takes_the_new_name_while_it_rotates_is_one_operation(tmp_path: Path) -> None:
    (tmp_path / "agent.log").write_text(STOCK)
    audit = audit_log(tmp_path / "agent.log")
    assert [(a.code, a.sessions) for a in audit.anomalies] == [
        ("log-anomaly-a", ("20260721_095900_aaaaaaaa", "20260721_100002_cccccc"))
    ]
    assert len(audit.operations) == 3
    assert audit.unfinished == []


@AUDIT
def test_lines_without_a_bracket_are_paired_by_their_session(tmp_path: Path) -> None:
    def bare(event: str, session: str, second: int, counts: str) -> str:
        return (
            f"2026-07-21 12:00:{second:02},000 INFO agent.conversation_compression: "
            f"context compression {event}: session={session} messages={counts} tokens=~9"
        )

    audit = read(
        tmp_path, bare("started", "S", 1, "9"), bare("started", "T", 2, "8"), bare("done", "S", 3, "9->3"),
        bare("done", "T", 4, "8->3"), bare("started", "U", 5, "7"), bare("done", "V", 6, "7->2"),
        bare("done", "W", 7, "7->2"),
    )  # fmt: skip
    assert [(a.code, a.sessions) for a in audit.anomalies] == [("log-anomaly-a", ("U", "V"))]
    assert audit.unfinished == []


@AUDIT
def test_rotated_files_are_read_oldest_first_and_an_operation_may_span_them(tmp_path: Path) -> None:
    (tmp_path / "agent.log.2").write_text(line("started", "S", 1, op=None) + "\n")
    (tmp_path / "agent.log.1").write_text("")
    (tmp_path / "agent.log.gz").write_text("not ours")
    (tmp_path / "agent.log.10").write_text(line("done", "S", 0, op=None) + "\n")
    audit = read(tmp_path, line("done", "T", 9, bracket="S", op=None))
    assert [path.name for path in log_files(tmp_path / "agent.log")] == [
        "agent.log.10", "agent.log.2", "agent.log.1", "agent.log",
    ]  # fmt: skip
    assert codes(audit) == ["log-anomaly-a"]


@AUDIT
def test_garbage_truncated_and_endless_lines_are_skipped(tmp_path: Path) -> None:
    path = tmp_path / "agent.log"
    whole = line("started", "S", 1)
    with path.open("wb") as file:
        file.write(b"\xff\xfe\x00 context compression \n{\n[1, 2]\n" + b'{"message": "context compression done: x"}\n')
        file.write(b"x" * 3_000_000 + b" " + whole.encode() + b"\n")
        file.write(b"2026-99-99 99:99:99 INFO [S] a: context compression started: session=S messages=1\n")
        file.write(whole.encode() + b"\n")
        file.write(line("done", "S", 3).encode()[:60])
    audit = audit_log(path)
    assert len(audit.operations) == 1
    assert len(audit.unfinished) == 1
    assert codes(audit) == []


@AUDIT
@given(st.binary(max_size=200))
def test_no_line_breaks_the_reader(noise: bytes) -> None:
    parse_line(noise)
    parse_line(b"context compression " + noise)
    parse_line(b'{"time": "2026-06-01T12:00:00", "session": "S", "message": "context compression ' + noise + b'"}')


@AUDIT
@given(st.permutations(range(6)))
def test_operations_with_an_id_are_paired_whatever_comes_between(order: list[int]) -> None:
    starts = [LogLine(float(n), f"s{n}", "started", f"s{n}", f"op{n}") for n in order]
    ends = [LogLine(float(n) + 10, f"s{n}", "done", f"s{n}", f"op{n}") for n in sorted(order)]
    for operation in pair_lines([*starts, *ends]):
        assert operation.end is not None
        assert operation.end.op == operation.start.op
        assert not operation.moved


@AUDIT
def test_unreadable_log_is_reported_and_the_rest_is_audited(hermes: Hermes, home: Path) -> None:
    (home / "logs" / "agent.log").mkdir(parents=True)
    (home / "logs" / "agent.log.1").write_text(EVIDENCE)
    ran = hermes("doctor")
    assert ran.code == 0
    assert f"WARN  log       cannot read {home / 'logs' / 'agent.log'}: " in ran.out
    assert "[log-anomaly-b]" in ran.out
    assert "ok    store" in ran.out


@AUDIT
def test_anomalies_of_older_versions_are_warnings_and_ours_failures(hermes: Hermes, home: Path) -> None:
    (home / "logs").mkdir(parents=True)
    log = home / "logs" / "agent.log"
    log.write_text(EVIDENCE)
    told = hermes("doctor", "--json")
    assert told.code == 0
    found = {finding["code"]: finding for finding in json.loads(told.out)["findings"] if finding["code"]}
    assert found["log-anomaly-a"]["level"] == found["log-anomaly-b"]["level"] == "warn"
    assert X in found["log-anomaly-b"]["detail"]
    assert Y in found["log-anomaly-b"]["detail"]
    with log.open("a") as file:
        file.write(line("started", "U", 20, bracket="V") + os.linesep)
    assert hermes("doctor").code == 1
