r"""Plain text: the one rule for every string that comes from elsewhere, before a person or a log sees it.

Names of files, models of drives, labels and messages of peers can hold what moves a terminal's cursor,
rewrites what was printed, reverses it, hides in it, or begins a new line of a log. Such characters are
written as escapes: `\x1b`, `\u202e`; a byte of a file name that is not UTF-8 as `\xff`. All else stays as it
is, accents and other scripts included. The rule is a fixed list of characters and not Python's table of
Unicode, so that all machines agree on it.

Plain text never contains:

    Cc         control characters, C1 included (0x9b begins a sequence on some terminals)
    Cf         marks of direction, zero-width characters, tags; the few of this kind that show a sign may stay
    Cs         surrogates that stand alone
    Co         private use: a console may show any sign in their place, a letter too
    Zl, Zp     separators of lines and paragraphs
    and what shows nothing: fillers, joiners, selectors of variants, noncharacters

A plain line has no newline either. Refuses nothing: `wire` refuses what is not plain, all others escape it.
"""

from __future__ import annotations

import re

OPERATOR = "the operator"  # shown as the owner of what belongs to no client; no client may have this name
OPERATOR_MACHINE = "the operator on this machine"  # likewise, of an agent on the server's own machine
_HIDDEN = (
    "\x00-\x09\x0b-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f"
    "\u2028-\u202e\u2060-\u206f\u3164\ud800-\uf8ff\ufdd0-\ufdef\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb"
    "\ufffe\uffff\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U0010ffff"
    + "".join(f"{chr(plane << 16 | 0xFFFE)}{chr(plane << 16 | 0xFFFF)}" for plane in range(1, 14))
)
_NOT_LINE = re.compile(f"[\n{_HIDDEN}]")
_NOT_TEXT = re.compile(f"[{_HIDDEN}]")


def is_line(text: str) -> bool:
    """Whether `text` is one plain line."""
    return _is_ascii(text) or _NOT_LINE.search(text) is None


def is_text(text: str) -> bool:
    """Whether `text` is plain lines."""
    return _is_ascii(text) or _NOT_TEXT.search(text) is None


def as_line(text: str) -> str:
    """`text` as one plain line."""
    return text if _is_ascii(text) else _NOT_LINE.sub(_escaped, text)


def as_text(text: str) -> str:
    """`text` as plain lines."""
    return text if _is_ascii(text) else _NOT_TEXT.sub(_escaped, text)


def as_json(document: str) -> str:
    """The same JSON with what is not plain as JSON escapes. `document` is one line, so that such characters
    stand in its strings only."""
    return document if _is_ascii(document) else _NOT_LINE.sub(_json_escaped, document)


def _is_ascii(text: str) -> bool:
    """Nearly all text, known to be a plain line without a look at each character."""
    return text.isascii() and text.isprintable()


def _escaped(found: re.Match[str]) -> str:
    code = ord(found[0])
    if 0xDC80 <= code <= 0xDCFF:  # os.fsdecode's stand-in for a byte
        return f"\\x{code - 0xDC00:02x}"
    return ascii(found[0])[1:-1]


def _json_escaped(found: re.Match[str]) -> str:
    units = found[0].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))


def shortened(text: str, characters_max: int) -> str:
    """`text`, with an ellipsis as its last character if it had more than `characters_max`."""
    return text if len(text) <= characters_max else text[: characters_max - 1] + "…"


def as_line_if_text(value: object) -> object:
    """`as_line` of plain strings, for the output of page templates. Markup and other types are kept."""
    return as_line(value) if type(value) is str else value


def owner_label(client: str, name: str) -> str:
    """A client of a server, for people: its name, else its id; the operator for none."""
    return as_line(name or client) or OPERATOR
