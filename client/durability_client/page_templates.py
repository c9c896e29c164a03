"""Templates for the client's HTML pages."""

from __future__ import annotations

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

import durability
from durability import plain_text


def page_templates(*packages: str) -> Environment:
    """The templates of these packages; the first package with a template is used. Text is escaped, and made
    one plain line."""
    environment = Environment(
        loader=ChoiceLoader([PackageLoader(package) for package in packages]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=plain_text.as_line_if_text,
    )
    environment.globals.update(version=durability.__version__)
    return environment
