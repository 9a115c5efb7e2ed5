"""The command that checks an installation's numbers."""

import argparse
import json
from pathlib import Path
from typing import Any


def selftest(options: argparse.Namespace) -> int:
    from ..learners.conformance import Conformance, check, shipped_files

    files = [Path(name) for name in options.files] or list(shipped_files())
    results: list[Conformance] = []
    for file in files:
        for precision in ("float32", "float64"):
            results.append(check(file, precision))
            if not options.json:
                print(_conformance_line(results[-1]))
    failed = sum(not result.passed for result in results)
    if options.json:
        rows = [{**vars(result), "passed": result.passed} for result in results]
        print(json.dumps({"results": rows, "failed": failed}))
    else:
        print(f"{len(results) - failed} of {len(results)} checks passed")
    return 1 if failed else 0


def _conformance_line(result: Any) -> str:
    verdict = "ok    " if result.passed else "FAILED"
    return (
        f"{verdict} {result.file:<36} {result.precision}  largest relative error {result.largest_error:.1e} "
        f"({result.worst_array})"
    )
