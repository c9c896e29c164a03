"""`run`: write records, sync them, acknowledge."""
