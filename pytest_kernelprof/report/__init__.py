"""How it is told: the failure message, the terminal table."""
