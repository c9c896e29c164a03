"""Where systems keep programs, also those that a user's PATH leaves out.

One list for the tools that look at drives and for those that switch power.
"""

from __future__ import annotations

PROGRAM_PLACES = "/usr/sbin:/sbin:/usr/bin:/bin:/usr/local/sbin:/usr/local/bin"
