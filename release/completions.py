"""Completions of the command line for bash, zsh and fish: the files that a system's packages hold.

They ask the installed command at each TAB, so they never fall behind it.
"""

from __future__ import annotations

from pathlib import Path

from typer.testing import CliRunner

from durability_cli.main import app

PLACES = {  # where each shell looks, below `share` of a prefix
    "bash": "bash-completion/completions/durability",
    "zsh": "zsh/site-functions/_durability",
    "fish": "fish/vendor_completions.d/durability.fish",
}
_REGISTER = "compdef _durability_completion durability"


def script(shell: str) -> str:
    """The text of the file for `shell`."""
    asked = {"_DURABILITY_COMPLETE": f"source_{shell}"}
    text = CliRunner().invoke(app, [], prog_name="durability", env=asked).stdout.strip()
    if shell == "zsh":  # it loads the file at the first TAB, and the file is to answer that TAB as well
        text = text.replace(_REGISTER, f'{_REGISTER}\n_durability_completion "$@"')
    return f"{text}\n"


def write(share: Path) -> list[Path]:
    """Write the files of all shells below `share`, and return them."""
    written = []
    for shell, place in PLACES.items():
        path = share / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(script(shell), "utf-8")
        written.append(path)
    return written
