"""Small JSON documents that notice damage and newer formats: the store's heads and inventories."""

import json
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..errors import FormatError

FORMAT_VERSION = 1
"""The store's format; raised whenever an older reader would misread what is written."""


def seal(document: Mapping[str, Any]) -> bytes:
    """Encodes a document with the store's format version and a CRC-32 over all else.

    Args:
      document: JSON content, without the keys `format_version` and `crc32`.

    Returns:
      UTF-8 JSON, one key a line, to be read back by `unseal`.

    Raises:
      TypeError: the document holds something that JSON cannot.
    """
    body = {"format_version": FORMAT_VERSION, **document}
    return json.dumps({**body, "crc32": _checksum(body)}, indent=1).encode()


def unseal(path: Path) -> dict[str, Any]:
    """Reads a sealed document back.

    Args:
      path: a file whose content `seal` made.

    Returns:
      The document, its format version included.

    Raises:
      FormatError: the file is not such a document, is damaged, or has a newer format.
      FileNotFoundError: there is no such file.
    """
    try:
        body = json.loads(path.read_bytes())
        found = body.pop("crc32", None)
        version = int(body["format_version"])
    except (ValueError, TypeError, KeyError, AttributeError):
        raise FormatError(
            f"{path} is damaged or foreign: expected JSON written by Lamina; restore it from a copy"
        ) from None
    if version > FORMAT_VERSION:
        raise FormatError(
            f"{path} has format {version}, and this Lamina reads up to {FORMAT_VERSION}; upgrade Lamina"
        )
    if found != _checksum(body):
        raise FormatError(
            f"{path} is damaged: its checksum does not match its content; restore it from a copy"
        )
    return dict(body)


def _checksum(body: Mapping[str, Any]) -> int:
    return zlib.crc32(json.dumps(body, sort_keys=True, separators=(",", ":")).encode())
