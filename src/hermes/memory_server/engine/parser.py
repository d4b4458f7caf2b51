"""The process that reads one uploaded file: `python -m hermes.memory_server.engine.parser CONTENT_TYPE`.

The file comes on standard input. Its texts, or the reason for refusing it, go to standard output as JSON. A file can
make a parser run and take memory without end; here both have limits, and the caller can end the process.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys

from hermes.memory_server import limits
from hermes.memory_server.engine.files import read_file
from hermes.memory_server.faults import Fault, Invalid

TOO_HEAVY = "Reading the file takes more time or memory than the server allows"


def missing_limits() -> str | None:
    """Return the resources that this system cannot limit for a process, or None if it can limit all."""
    if importlib.util.find_spec("resource") is None:
        return "neither the memory nor the processor time"
    return "the memory" if sys.platform == "darwin" else None  # its kernel accepts the limit and ignores it


def limit_this_process() -> None:
    """Limit memory and processor time, as far as the system can, and lower the priority."""
    if hasattr(os, "nice"):
        os.nice(10)
    if importlib.util.find_spec("resource") is not None:
        resource = importlib.import_module("resource")

        for kind, most in (
            (resource.RLIMIT_AS, limits.PARSER_MEMORY_BYTES),
            (resource.RLIMIT_CPU, limits.PARSER_CPU_SECONDS),
            (resource.RLIMIT_CORE, 0),
        ):
            _, hard = resource.getrlimit(kind)
            resource.setrlimit(kind, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))


def answer(content: bytes, content_type: str) -> dict[str, object]:
    """Return the texts of a file, or the class and reason of the fault."""
    try:
        texts = read_file(content, content_type)
        if sum(map(len, texts)) > limits.FILE_CHARS:
            raise Invalid(f"The file holds more than {limits.FILE_CHARS} characters of text")
    except Fault as fault:
        return {"fault": type(fault).__name__, "reason": fault.reason[: limits.TEXT_CHARS]}
    except MemoryError:
        return {"fault": Invalid.__name__, "reason": TOO_HEAVY}
    return {"texts": texts}


if __name__ == "__main__":
    limit_this_process()
    result = answer(sys.stdin.buffer.read(), sys.argv[1])
    sys.stdout.buffer.write(json.dumps(result).encode())
