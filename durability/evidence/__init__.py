"""The rules of evidence: from bytes and a server's log to a verdict."""
