"""Runs commands of Lamina in forked children, so that a test may kill them and pay for imports only once.

Reads one JSON object a line, {"arguments": [...], "kill": null or {"file": path, "growth": bytes,
"then": seconds}}, and answers with the child's exit code and what it printed to standard error. A child is
killed once a file has grown so much, and a moment later.
"""

import json
import os
import signal
import sys
import tempfile
import time

import lamina.cli
import lamina.continual.run
import sklearn.datasets  # noqa: F401 - else each child imports it for itself


def serve() -> None:
    for line in sys.stdin:
        request = json.loads(line)
        status, text = _in_child(request["arguments"], request["kill"])
        print(json.dumps({"status": status, "stderr": text}), flush=True)


def _in_child(arguments: list[str], kill: dict | None) -> tuple[int, str]:
    with tempfile.TemporaryFile("w+") as output:
        enough = _size(kill["file"]) + kill["growth"] if kill else 0
        child = os.fork()
        if child == 0:
            os.dup2(output.fileno(), 2)
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            os._exit(lamina.cli.main(arguments))
        ended = None
        while kill and ended is None and _size(kill["file"]) < enough:
            time.sleep(0.0005)
            ended = _ended(child)
        if kill and ended is None:
            time.sleep(kill["then"])
            os.kill(child, signal.SIGKILL)
        status = os.waitpid(child, 0)[1] if ended is None else ended
        output.seek(0)
        return os.waitstatus_to_exitcode(status), output.read()


def _size(path: str) -> int:
    return os.stat(path).st_size if os.path.exists(path) else 0


def _ended(child: int) -> int | None:
    found, status = os.waitpid(child, os.WNOHANG)
    return status if found else None


if __name__ == "__main__":
    serve()
