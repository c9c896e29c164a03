"""From bytes and a server's log to a verdict: the rules of evidence."""
