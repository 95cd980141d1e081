"""A revision beside this one: its code in a folder of its own, run by a process of its own."""
