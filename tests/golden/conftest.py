"""The projects are run by ``test_projects.py``, each in a folder of its own."""

collect_ignore = ["projects"]
