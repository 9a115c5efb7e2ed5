"""`python -m lamina.stream.build PATH CONFIG …`: the background process that writes logs ahead of a reader.

`LogBuilder` starts it. Its standard input is a pipe that the parent never writes to: when it closes,
the parent has stopped it or died, and the process ends itself with all workers of its group. How it
failed is the one JSON object on its standard output.
"""

import json
import os
import signal
import sys
import threading
from itertools import batched
from pathlib import Path

from ..errors import LaminaError
from .config import config_from_json
from .writing import follow_reader


def main(*logs: str) -> int:
    """Runs until all logs are complete, one after the other; returns the exit code.

    Args:
      logs: folder and config, folder and config, …
    """
    report = os.dup(1)
    os.dup2(2, 1)  # whatever libraries and workers print is no part of the report
    threading.Thread(target=_die_with_parent, daemon=True).start()
    try:
        for path, config in batched(logs, 2):
            follow_reader(config_from_json(config), Path(path))
    except Exception as error:
        kind, message = type(error).__name__, str(error)
        if not isinstance(error, LaminaError):
            kind, message = "DataError", f"the stream's pipeline failed: {kind}: {message}"
        line = " ".join(message.split())
        os.write(report, json.dumps({"kind": kind, "message": line}).encode())
        return 1
    return 0


def _die_with_parent() -> None:
    while os.read(0, 1024):
        pass
    if os.getpgrp() == os.getpid():  # a group of our own: as `LogBuilder` starts us, not as a shell does
        os.killpg(os.getpgrp(), signal.SIGKILL)
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
