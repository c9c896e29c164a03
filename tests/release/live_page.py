"""What the page on the live image tells people to type."""

from __future__ import annotations

from tests.places import ROOT

_PAGE = ROOT / "docs/how-to/use-the-live-image.md"


def listed_for_pxe(words: str) -> str:
    """The one listing of the section on PXE that has these words, or the text before it has them."""
    section = _PAGE.read_text("utf-8").partition("## Boot many machines by PXE")[2].partition("\n## ")[0]
    parts = section.split("```\n")
    found = [code for text, code in zip(parts[::2], parts[1::2], strict=False) if words in text + code]
    assert len(found) == 1, words
    return found[0]
