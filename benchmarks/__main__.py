"""python -m benchmarks [startup] [engine] [gateway] [limits] [ledger] [page]: all of them without a name."""

import importlib
import os
import platform
import sys

NAMES = ("startup", "engine", "gateway", "limits", "ledger", "page")


def main() -> int:
    wanted = sys.argv[1:] or list(NAMES)
    if unknown := set(wanted) - set(NAMES):
        print(f"unknown: {', '.join(unknown)}; there are {', '.join(NAMES)}", file=sys.stderr)
        return 2
    print(
        f"{platform.processor() or platform.machine()}, {len(os.sched_getaffinity(0))} cores, Python {platform.python_version()}"
    )
    for name in wanted:
        importlib.import_module(f"benchmarks.{name}").run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
