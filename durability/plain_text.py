r"""Plain text: the one rule for every string from outside, applied before a person or a log sees it.

File names, drive models, labels and messages of peers can contain dangerous characters. Some move a
terminal's cursor, rewrite or reverse printed text, are invisible, or begin a new line of a log. These are
written as escapes: `\x1b`, `\u202e`; a byte of a file name that is not UTF-8 as `\xff`. All other
characters stay unchanged, including accents and other scripts. The rule is a fixed list of characters, not
Python's Unicode table, so that all machines use the same rule.

Plain text never contains:

    Cc         control characters, C1 included (0x9b begins a sequence on some terminals)
    Cf         marks of direction, zero-width characters, tags; the few of this kind that show a sign may stay
    Cs         surrogates that stand alone
    Co         private use: a console may show any sign in their place, a letter too
    Zl, Zp     separators of lines and paragraphs
    and invisible characters: fillers, joiners, selectors of variants, noncharacters

A plain line contains no newline either. This module rejects nothing: `wire` rejects text that is not plain,
and all other modules escape it.
"""

from __future__ import annotations

import re

OPERATOR = "the operator"  # shown as owner if there is no client; no client may have this name
OPERATOR_MACHINE = "the operator on this machine"  # the same for an agent on the server's own machine
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
    """Whether `text` consists of plain lines."""
    return _is_ascii(text) or _NOT_TEXT.search(text) is None


def as_line(text: str) -> str:
    """`text` as one plain line."""
    return text if _is_ascii(text) else _NOT_LINE.sub(_escaped, text)


def as_text(text: str) -> str:
    """`text` as plain lines."""
    return text if _is_ascii(text) else _NOT_TEXT.sub(_escaped, text)


def as_json(document: str) -> str:
    """The same JSON with characters that are not plain as JSON escapes. `document` is one line, so such
    characters occur only in its strings."""
    return document if _is_ascii(document) else _NOT_LINE.sub(_json_escaped, document)


def _is_ascii(text: str) -> bool:
    """Whether `text` is printable ASCII. Nearly all text is; it is a plain line without a check of each
    character."""
    return text.isascii() and text.isprintable()


def _escaped(found: re.Match[str]) -> str:
    code = ord(found[0])
    if 0xDC80 <= code <= 0xDCFF:  # os.fsdecode's substitute for a byte
        return f"\\x{code - 0xDC00:02x}"
    return ascii(found[0])[1:-1]


def _json_escaped(found: re.Match[str]) -> str:
    units = found[0].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))


def shortened(text: str, characters_max: int) -> str:
    """`text`, with an ellipsis as its last character if it had more than `characters_max`."""
    return text if len(text) <= characters_max else text[: characters_max - 1] + "…"


def as_line_if_text(value: object) -> object:
    """`as_line` of plain strings, for the output of page templates. Markup and other types stay unchanged."""
    return as_line(value) if type(value) is str else value


def owner_label(client: str, name: str) -> str:
    """A client of a server, for people: its name, else its id; the operator if both are empty."""
    return as_line(name or client) or OPERATOR
