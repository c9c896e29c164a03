"""Print the peak memory of `serve`, `run` and `verify` for targets of several sizes; it must not grow.

Each is a separate command, as a user starts it. The figure is the peak resident set of the largest process
among the command and its children (getrusage). The targets are really written and read.

    python benchmarks/memory.py [--directory DIR] [--sizes 64MiB,16GiB]
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from durability.units import parse_size

COMMAND = (sys.executable, "-c", "from durability_cli.main import main; main()")


def finished(process: subprocess.Popen[str]) -> tuple[int, float]:
    """Exit code and peak resident set in MiB of the largest process among `process` and its children."""
    _, status, usage = os.wait4(process.pid, 0)
    return os.waitstatus_to_exitcode(status), usage.ru_maxrss / 1024


def measure(directory: Path, size: str) -> None:
    """Serve, run and verify one target of `size`, and print the three peaks."""
    store = Path(tempfile.mkdtemp(prefix="memory-", dir=directory))
    target = store / "target"
    try:
        # Commands on the server's machine find its socket and key in its state directory.
        environment = {**os.environ, "XDG_STATE_HOME": str(store)}
        server = subprocess.Popen(
            [*COMMAND, "serve", "--listen", "127.0.0.1:0"],
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
            env=environment,
        )
        assert server.stderr is not None
        next(line for line in server.stderr if "listening on " in line)
        run = [*COMMAND, "run", str(target), "--force", "--size", size, "--duration", "5"]
        verify = [*COMMAND, "verify", str(target)]
        print(f"{size:>8} {parse_size(size):>14} bytes", end="", flush=True)
        for command, expected in ((run, 0), (verify, 4)):
            process = subprocess.Popen(
                command,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                text=True,
                env=environment,
            )
            code, peak_mib = finished(process)
            if code != expected:
                sys.exit(f"{' '.join(command[3:])}: exit code {code}, expected {expected}")
            print(f"  {command[3]} {peak_mib:.0f} MiB", end="", flush=True)
        server.terminate()
        server.stderr.read()
        print(f"  serve {finished(server)[1]:.0f} MiB")
    finally:
        shutil.rmtree(store)


def main() -> None:
    """Measure each size in turn."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--directory", type=Path, default=Path("/var/tmp"), help="on a real disk")
    parser.add_argument("--sizes", default="64MiB,16GiB")
    arguments = parser.parse_args()
    for size in arguments.sizes.split(","):
        measure(arguments.directory, size)


if __name__ == "__main__":
    main()
