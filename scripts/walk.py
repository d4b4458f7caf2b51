"""How far one piece of data walks: files, functions and calls between packages on the way of a turn or a search.

    python -m scripts.walk                         # every way, of the source that is here
    python -m scripts.walk --source OLD/src        # the same for another checkout
    python -m scripts.walk --list "warm turn"      # the names on one way; --json for programs

Each way is a process of its own that runs `hermes` as a person would, with a model on loopback and, as its name says,
with memory or without. What runs in it is seen by a profiler in every thread, from the message to its answer. A timer
of a server that fires meanwhile is counted too, so figures of two runs may differ by a few functions.
"""

from __future__ import annotations

import argparse
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from scripts.tracer import Function, Tracer, Walk
from scripts.ways import TIMEOUT_SECONDS, WAYS, Terminal, Way

HERE = Path(__file__).resolve().parents[1] / "src"


class Model(BaseHTTPRequestHandler):
    """A model with a constant answer."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.send_error(404)

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        deltas = [({"role": "assistant", "content": "Yes, "}, None), ({"content": "stamps."}, None), ({}, "stop")]
        chunks = [{"choices": [{"index": 0, "delta": delta, "finish_reason": end}]} for delta, end in deltas]
        body = "".join(f"data: {text}\n\n" for text in [*map(json.dumps, chunks), "[DONE]"]).encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Log nothing."""


def trace(way: Way, source: Path) -> Walk:
    """Trace one way in a separate process."""
    with tempfile.TemporaryDirectory() as folder, _model() as port:
        result = Path(folder) / "walk.json"
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("HERMES_", "OPENAI_"))}
        env = {
            **kept,
            "PYTHONPATH": os.pathsep.join([str(source), str(Path(__file__).resolve().parents[1])]),
            "HERMES_HOME": str(Path(folder) / "home"),
            "HERMES_MEMORY_PROVIDER": way.provider,
            "HERMES_AUTO_TITLE": "false",
            "HERMES_MODEL_TOOLS": "on",
            "HERMES_MODEL": "walk",
            "OPENAI_BASE_URL": f"http://127.0.0.1:{port}/v1",
            "OPENAI_API_KEY": "x",
            "API_SERVER_ENABLED": "true",
            "API_SERVER_PORT": str(_free_port()),
            "NO_PROXY": "127.0.0.1",
        }
        command = [sys.executable, "-m", "scripts.walk", "--source", str(source), "--inside", str(result), way.name]
        try:
            ran = subprocess.run(
                command, env=env, capture_output=True, text=True, timeout=2 * TIMEOUT_SECONDS, check=False
            )
        finally:
            _stop_memory_server(Path(folder) / "home")
        if not result.exists():
            raise RuntimeError(f"{way.name} of {source} could not be traced:\n{ran.stdout}{ran.stderr}")
        return _from_json(json.loads(result.read_text(encoding="utf-8")))


def _stop_memory_server(home: Path) -> None:
    from hermes.embedded.connect import stop
    from hermes.embedded.rendezvous import Place

    stop(Place(home / "memory", home))


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])


@contextmanager
def _model() -> Iterator[int]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Model) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()


def run_inside(way: Way, source: Path, result: Path) -> None:
    """Run hermes in this process, traced, and write its walk to a file."""
    tracer = Tracer(source / "hermes")
    drive = way.drive
    if drive is None:
        tracer.begin()
    else:
        terminal = Terminal.attach()

        def beside() -> None:
            try:
                _write(result, drive(terminal, tracer))
            except (OSError, EOFError) as error:
                print(repr(error), file=terminal.errors, flush=True)
            finally:
                os.kill(os.getpid(), signal.SIGTERM)

        threading.Thread(target=beside, daemon=True).start()
    tracer.start()
    sys.argv = ["hermes", *way.command]
    try:
        runpy.run_module("hermes", run_name="__main__", alter_sys=True)
    except SystemExit:
        pass
    finally:
        sys.setprofile(None)
        if drive is None:
            _write(result, tracer.end())


def _write(result: Path, walk: Walk) -> None:
    result.write_text(json.dumps(to_json(walk)), encoding="utf-8")


def to_json(walk: Walk) -> dict[str, Any]:
    """Return a walk as JSON, with sorted names."""
    return {
        "files": sorted(walk.files),
        "functions": [[one.file, one.name] for one in sorted(walk.functions)],
        "crossings": sorted(walk.crossings),
    }


def _from_json(value: Any) -> Walk:
    crossings = frozenset((one, other) for one, other in value["crossings"])
    return Walk(frozenset(Function(*one) for one in value["functions"]), crossings)


def describe(walks: dict[str, Walk]) -> str:
    """Return a table of the walks."""
    rows = [f"| {name} | {len(w.files)} | {len(w.functions)} | {len(w.crossings)} |" for name, w in walks.items()]
    return "\n".join(["| way | files | functions | crossings |", "|---|---|---|---|", *rows])


def main() -> None:
    """Trace the requested ways and print them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ways", nargs="*", help=f"some of: {', '.join(way.name for way in WAYS)} (default: all)")
    parser.add_argument("--source", type=Path, default=HERE, help="the folder that holds the package")
    parser.add_argument("--json", action="store_true", help="print names as JSON")
    parser.add_argument("--list", action="store_true", help="print names too")
    parser.add_argument("--inside", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    source = given.source.resolve()
    ways = {way.name: way for way in WAYS}
    if unknown := set(given.ways) - set(ways):
        parser.error(f"no such way: {', '.join(sorted(unknown))}")
    if given.inside is not None:
        run_inside(ways[given.ways[0]], source, given.inside)
        return
    walks = {name: trace(ways[name], source) for name in given.ways or ways}
    if given.json:
        text = json.dumps({name: to_json(walk) for name, walk in walks.items()}, indent=1)
    else:
        text = "\n".join([describe(walks), *(_names(name, walk) for name, walk in walks.items() if given.list)])
    sys.stdout.write(f"{text}\n")


def _names(title: str, walk: Walk) -> str:
    functions = [f"  {one.file} {one.name}" for one in sorted(walk.functions)]
    crossings = [f"  {one} -> {other}" for one, other in sorted(walk.crossings)]
    return "\n".join([f"\n{title}: functions", *functions, f"\n{title}: crossings", *crossings])


if __name__ == "__main__":
    main()
