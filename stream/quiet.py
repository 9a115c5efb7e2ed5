"""Keeping other libraries' chatter off the user's terminal."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def quiet_logging() -> Iterator[None]:
    """Silences logging inside a block, and takes away the handlers that libraries install there.

    Beam and tensorflow-datasets log missing optional libraries, and tracebacks of failures that we raise in
    one line.
    """
    handlers = list(logging.root.handlers)
    disabled = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        yield
    finally:
        logging.disable(disabled)
        logging.root.handlers[:] = handlers
