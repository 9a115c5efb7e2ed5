"""Commands about streams and their data."""

import argparse
import json
import sys
from pathlib import Path

from .configs import chosen_config


def build(options: argparse.Namespace) -> int:
    from ..stream import build_log

    config = chosen_config(options)

    def progress(done: int, total: int) -> None:
        print(f"segment {done:,} of {total:,} ({done / total:.0%})", file=sys.stderr)

    log = build_log(
        config.stream.with_seed(config.seed), Path(options.log), progress=None if options.json else progress
    )
    result = {"log": str(log.path), "examples": log.total, "segments": log.segments}
    print(json.dumps(result) if options.json else f"log of {log.total:,} examples: {log.path}")
    return 0


def show(options: argparse.Namespace) -> int:
    from ..stream import describe_log

    found = describe_log(Path(options.log))
    if options.json:
        print(json.dumps(found))
        return 0
    texts = {each["offset"]: each.pop("text") for each in found["first"] if "text" in each}
    if texts:
        found["schema"]["vocabulary"] = f"{len(found['schema']['vocabulary']):,} words"
    for name, value in found.items():
        print(f"{name}: {value if not isinstance(value, list | dict) else json.dumps(value)}")
    for offset, documents in texts.items():
        print(f"example {offset}:")
        for text in documents:
            print(f"  {text}")
    return 0


def import_data(options: argparse.Namespace) -> int:
    from ..stream import import_dataset

    path = import_dataset(options.kind, Path(options.path), options.name, options.data_dir)
    result = {"source": f"tfds:{options.name}", "path": str(path)}
    print(json.dumps(result) if options.json else f"prepared {path}; use it as source tfds:{options.name}")
    return 0
