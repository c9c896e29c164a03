"""A PostgreSQL server for tests and benchmarks, which can be killed and started again.

It holds stores that several `durability serve` processes share. No command of the lab uses this module.
"""

from __future__ import annotations

import itertools
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_PROGRAMS = Path("/usr/lib/postgresql")
_START_S = 170
_TIMEOUT_S = 180.0
_POLL_S = 0.01


def postgresql_is_installed() -> bool:
    """Whether this machine has PostgreSQL's programs."""
    return bool(_initdb())


@contextmanager
def postgresql_server() -> Iterator[PostgreSQL]:
    """A running server, which is removed with its data afterwards. PostgreSQL must be installed."""
    directory = Path(tempfile.mkdtemp(prefix="durability-postgresql-"))
    if os.geteuid() == 0:
        account = pwd.getpwnam("postgres")
        os.chown(directory, account.pw_uid, account.pw_gid)
    try:
        server = PostgreSQL(directory)
        server.start()
        yield server
        server.stop()
    finally:
        shutil.rmtree(directory)


def _initdb() -> list[Path]:
    return sorted(_PROGRAMS.glob("*/bin/initdb"))


class PostgreSQL:
    """A private PostgreSQL server, with its data and its socket in `directory`.

    The server uses no port: another process could take a free port before the server starts.
    """

    def __init__(self, directory: Path) -> None:
        self._programs = _initdb()[-1].parent
        self._data = directory / "data"
        self._directory = directory
        self._numbers = itertools.count(1)
        self._run("initdb", "--auth=trust", "--username=lab", "--no-sync", f"--pgdata={self._data}")

    def start(self, *, fsync: str = "on") -> None:
        """Starts the server."""
        # Autovacuum would free or use space at unpredictable times.
        options = f"-c listen_addresses= -k {self._directory} -c fsync={fsync} -c autovacuum=off"
        # After a crash, the server syncs its data. Syncing each file takes minutes on a busy drive.
        options += " -c recovery_init_sync_method=syncfs"
        log = self._directory / "log"
        self._run(
            *("pg_ctl", "start", "--wait", f"--timeout={_START_S}"),
            *(f"--pgdata={self._data}", f"--log={log}", f"--options={options}"),
        )

    def stop(self, mode: str = "immediate") -> None:
        """Stops the server, by default at once, like a crash."""
        self._run("pg_ctl", "stop", "--wait", f"--mode={mode}", f"--pgdata={self._data}")

    def kill(self) -> None:
        """Kills all processes of the server at once, like a power cut; returns when they are gone."""
        while processes := self._processes():
            for process in processes:
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
            time.sleep(_POLL_S)

    def _processes(self) -> list[int]:
        found = []
        for directory in Path("/proc").glob("[0-9]*/cwd"):
            with suppress(OSError):
                if directory.readlink() == self._data:
                    found.append(int(directory.parent.name))
        return found

    def new_database(self) -> str:
        """Makes an empty database and returns its URL."""
        name = f"store{next(self._numbers)}"
        self._run("createdb", f"--host={self._directory}", "--username=lab", name)
        return f"postgresql://lab@/{name}?host={self._directory}"

    @contextmanager
    def database_in(self, place: Path) -> Iterator[str]:
        """Makes an empty database with its tables in the directory `place`; yields its URL."""
        place.mkdir()
        if os.geteuid() == 0:
            account = pwd.getpwnam("postgres")
            os.chown(place, account.pw_uid, account.pw_gid)
        name = f"space{next(self._numbers)}"
        psql = ("psql", f"--host={self._directory}", "--username=lab", "--dbname=postgres", "--quiet")
        self._run(*psql, f"--command=CREATE TABLESPACE {name} LOCATION '{place}'")
        self._run(*psql, f"--command=CREATE DATABASE {name} TABLESPACE {name}")
        # The first connection writes a cache file. If there is no space for it, all connections fail.
        self._run(*psql[:3], f"--dbname={name}", "--quiet", "--command=SELECT 1 WHERE false")
        try:
            yield f"postgresql://lab@/{name}?host={self._directory}"
        finally:
            self._run(*psql, f"--command=DROP DATABASE {name} WITH (FORCE)")
            self._run(*psql, f"--command=DROP TABLESPACE {name}")

    def _run(self, program: str, *arguments: str) -> None:
        # PostgreSQL refuses to run as root.
        user = "postgres" if os.geteuid() == 0 else None
        command = [str(self._programs / program), *arguments]
        subprocess.run(
            command,
            user=user,
            group=user,
            check=True,
            cwd=self._directory,
            stdout=subprocess.DEVNULL,
            timeout=_TIMEOUT_S,
        )
