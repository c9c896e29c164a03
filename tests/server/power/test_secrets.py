"""Secrets of switches: which files are taken, and that no secret leaves but on an agent's stdin."""

from __future__ import annotations

import html
import json
import os
import sys
import urllib.parse
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from durability.errors import SetupError
from durability_server.power.controller import Controller
from durability_server.power.secret_files import read_secret, without_secrets
from tests.server.power.devices import power, secret_file

SECRET = 'p&ss "w`rd"/$%\\ä1'

# A fence agent that says all it was told, and keeps what others could see of it.
AGENT = """#!{python}
import json, os, pathlib, sys
told = sys.stdin.read()
seen = {{"argv": sys.argv, "environment": dict(os.environ), "told": told}}
pathlib.Path("{seen}").write_text(json.dumps(seen))
if "action=metadata" in told:
    print('''<resource-agent name="fence_talker"><parameters>
<parameter name="ip" required="1"><content type="string"/></parameter>
<parameter name="password"><content type="string"/></parameter>
<parameter name="token"><content type="string"/></parameter>
<parameter name="identity_file"><content type="string"/></parameter>
<parameter name="verbose"><content type="boolean"/></parameter>
</parameters><actions><action name="on"/><action name="off"/><action name="status"/></actions>
</resource-agent>
''')
    sys.exit(0)
print(told)
print(told, file=sys.stderr)
sys.exit(1 if "action=off" in told else 0)
"""


@pytest.fixture
def seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An agent `fence_talker` is installed; the file has what its last process was given."""
    places, seen = tmp_path / "places", tmp_path / "seen"
    places.mkdir()
    agent = places / "fence_talker"
    agent.write_text(AGENT.format(python=sys.executable, seen=seen))
    agent.chmod(0o755)
    monkeypatch.setenv("PATH", f"{places}:{os.environ['PATH']}")
    return seen


@pytest.mark.slow
async def test_a_secret_goes_to_stdin_alone(controller: Controller, seen: Path, tmp_path: Path) -> None:
    """An agent gets its secret on stdin; arguments, environment and answers have none, though it repeats all
    it was told."""
    options = {"ip": "192.0.2.9", "password_file": secret_file(tmp_path, SECRET)}
    for operation in ("status", "off", "check", "on"):
        answer = await controller.ask(power("fence", "fence_talker", **options), operation)
        assert answer.outcome == {"off": "failed", "on": "done"}.get(operation, "on")
        assert "password=…" in answer.text
        assert SECRET not in answer.text
        was = _read(seen)
        assert f"password={SECRET}\n" in was["told"]
        assert not any(SECRET in text for text in [*was["argv"], *was["environment"].values()])


@pytest.mark.slow
async def test_an_agents_own_file_is_given_as_a_path(
    controller: Controller, seen: Path, tmp_path: Path
) -> None:
    """Where an agent has an option `NAME_file` itself, it gets the path; other files are read for it."""
    token = secret_file(tmp_path, "tok-1234")
    agent = power("fence", "fence_talker", ip="192.0.2.9", identity_file="/etc/key", token_file=token)
    assert (await controller.ask(agent, "status")).outcome == "on"
    told = _read(seen)["told"].splitlines()
    assert {"identity_file=/etc/key", "token=tok-1234"} < set(told)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({}, "the agent needs the option ip"),
        ({"ip": "a", "pasword_file": "/x"}, "no option pasword: did you mean password?"),
        ({"ip": "a", "token": "b", "token_file": "/x"}, "token and token_file are two values for token"),
        ({"ip": "a", "verbose": "1"}, "would have the agent write secrets into a log"),
        ({"ip": "a\nverbose=1"}, "has a newline or another control character"),
        ({"ip": "a", "password_file": "/does/not/exist"}, "cannot be read: No such file or directory"),
    ],
)
async def test_check_refuses_options_that_do_not_fit(
    controller: Controller, seen: Path, options: dict[str, str], text: str
) -> None:
    """Check holds options against the agent's metadata, and reads the files of secrets."""
    answer = await controller.ask(power("fence", "fence_talker", **options), "check")
    assert answer.outcome == "failed"
    assert text in answer.text


async def test_a_secret_that_others_may_read_is_refused(
    controller: Controller, seen: Path, tmp_path: Path
) -> None:
    """With an open file nothing is asked of the switch, and the answer says how to close it."""
    path = secret_file(tmp_path, SECRET, mode=0o640)
    answer = await controller.ask(power("fence", "fence_talker", ip="a", password_file=path), "off")
    assert answer.outcome == "failed"
    assert f"{path} is open to others (mode 0640): run  chmod 600 {path}" in answer.text
    assert _read(seen) is None


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"", "is empty"),
        (b"\n", "is empty"),
        (b"one\ntwo\n", "several lines"),
        (b"a\0b", "control character"),
        (b"\xff\xfe", "not text"),
        (b"x" * 20_000, "more than 16,384 bytes"),
    ],
)
def test_a_file_that_holds_other_than_one_line_is_refused(tmp_path: Path, content: bytes, text: str) -> None:
    """The file of a secret has exactly one line of text."""
    path = Path(secret_file(tmp_path, ""))
    path.write_bytes(content)
    with pytest.raises(SetupError, match=text):
        read_secret(str(path))


def test_a_secret_is_its_line(tmp_path: Path) -> None:
    """The newline at the end is no part of a secret; spaces are."""
    assert read_secret(secret_file(tmp_path, " two words ")) == " two words "


def test_what_is_not_a_regular_file_is_refused(tmp_path: Path) -> None:
    """A directory and a pipe are refused at once, without waiting for a writer."""
    os.mkfifo(tmp_path / "pipe", 0o600)
    for path in (tmp_path / "pipe", tmp_path):
        with pytest.raises(SetupError, match="not a regular file"):
            read_secret(str(path))


def test_a_file_of_another_user_is_refused(tmp_path: Path) -> None:
    """A secret's file belongs to the server's user or root."""
    if os.geteuid() != 0:
        pytest.skip("only root may give a file away")
    path = secret_file(tmp_path, SECRET)
    os.chown(path, 12345, -1)
    with pytest.raises(SetupError, match=r"belongs to user 12345.*chown 0"):
        read_secret(path)


@pytest.mark.slow
@given(st.text(st.characters(min_codepoint=0x20, max_codepoint=0x24F), min_size=4), st.text())
def test_no_text_keeps_a_secret(secret: str, around: str) -> None:
    """A secret is taken out of every text, in each way of writing it."""
    if "…" in secret:
        return
    forms = [
        secret,
        urllib.parse.quote(secret),
        urllib.parse.quote_plus(secret),
        json.dumps(secret),
        html.escape(secret),
        repr(secret),
    ]
    for form in forms:
        assert secret not in without_secrets(f"{around}{form}{around}", [secret])


def test_a_text_with_a_short_secret_is_left_out() -> None:
    """A secret of few letters stands in words by chance: the whole text goes, rather than show where."""
    assert "ab" not in without_secrets("about a cab", ["ab"]).split()
    assert without_secrets("nothing of it", ["xy"]) == "nothing of it"


def _read(seen: Path) -> Any:
    return json.loads(seen.read_text()) if seen.exists() else None
