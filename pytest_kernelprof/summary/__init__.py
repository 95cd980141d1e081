"""What a run says, before it is told in any form: pure, from the records of ``schema/``.

``summary_of(run)`` makes all of it. Text in it is as it was found: names and parameters may hold
anything, and who tells them escapes them.
"""
