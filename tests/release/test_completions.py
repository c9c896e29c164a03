"""Completions: each shell, started as people start it, completes commands, options and values."""

from __future__ import annotations

import os
import pty
import subprocess
from pathlib import Path

import pytest

from release import completions

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("shells_and_man", "command_on_path")]

CASES = {
    "durability ver": ["verify"],
    "durability lab m": ["matrix"],
    "durability run --workl": ["--workload"],
    "durability run --workload un": ["unlink"],
}


@pytest.fixture(scope="module")
def share(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A `share` with the completions of all shells."""
    directory = tmp_path_factory.mktemp("share")
    assert len(completions.write(directory)) == 3
    return directory


@pytest.mark.parametrize("line", CASES)
def test_bash(line: str, share: Path) -> None:
    """Bash reads the file that its completion package would load."""
    words = line.split()
    done = subprocess.run(
        [
            "bash",
            "--norc",
            "-c",
            f"source {share / completions.PLACES['bash']}; COMP_WORDS=({line}); COMP_CWORD={len(words) - 1};"
            ' $(complete -p durability | sed "s/.*-F \\([^ ]*\\) .*/\\1/") durability;'
            ' printf "%s\\n" "${COMPREPLY[@]}"',
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    assert (done.stdout.split(), done.stderr) == (CASES[line], "")


@pytest.mark.parametrize("line", CASES)
def test_fish(line: str, share: Path, tmp_path: Path) -> None:
    """Fish finds the file in the directory of what others install."""
    done = subprocess.run(
        ["fish", "--no-config", "-c", f"source {share / completions.PLACES['fish']}; complete -C '{line}'"],
        env=os.environ | {"HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert [found.split("\t")[0] for found in done.stdout.splitlines()] == CASES[line]


@pytest.mark.parametrize("line", CASES)
def test_zsh(line: str, share: Path, tmp_path: Path) -> None:
    """Zsh loads the function at the first TAB, and that TAB already completes."""
    (tmp_path / ".zshrc").write_text(
        f"PS1='ready> '\nfpath=({(share / completions.PLACES['zsh']).parent} $fpath)\n"
        "autoload -Uz compinit\ncompinit -u\n"
    )
    process, terminal = pty.fork()
    if process == 0:
        os.environ |= {"ZDOTDIR": str(tmp_path), "HOME": str(tmp_path), "TERM": "dumb"}
        os.execlp("zsh", "zsh", "-i")
    try:
        _read_until(terminal, "ready> ")
        os.write(terminal, f"{line}\t".encode())
        *before, _ = line.split()
        _read_until(terminal, f"{' '.join([*before, *CASES[line]])} ")
    finally:
        os.close(terminal)  # the shell gets a hangup
        os.waitpid(process, 0)


def _read_until(terminal: int, text: str) -> None:
    """Reads what the terminal shows until it shows `text`; the test's own timeout bounds it."""
    shown = ""
    while text not in shown:
        shown += os.read(terminal, 4096).decode(errors="replace")


def test_the_command_installs_them_itself(tmp_path: Path) -> None:
    """`durability --install-completion` writes the file for the shell that calls it, below HOME."""
    done = subprocess.run(
        ["bash", "--norc", "-c", "durability --install-completion; true"],
        env=os.environ | {"HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.startswith("bash completion installed in")
    assert "_durability_completion" in (tmp_path / ".bash_completions/durability.sh").read_text()


@pytest.mark.parametrize("option", ["--install-completion", "--show-completion"])
def test_an_unknown_shell(option: str, root: None, tmp_path: Path) -> None:
    """A command that no known shell started ends with exit code 5, says which shells there are, and leaves
    the home directory as it was."""
    home = tmp_path / "home"
    home.mkdir()
    done = subprocess.run(
        ["unshare", "--pid", "--fork", "--mount-proc", "durability", option],  # no process is above it
        env=os.environ | {"HOME": str(home)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 5
    assert "completions are for bash, zsh and fish" in done.stderr
    assert list(home.iterdir()) == []
