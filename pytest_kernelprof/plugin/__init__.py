"""The pytest plugin: hooks, settings, fixtures, and what becomes of each test and of the run.

The way of a test with ``@pytest.mark.max_kernels(1)`` and ``kernel_profile``, file by file:

1. ``hooks``: the run begins; each phase of the test comes here first, and is delegated.
2. ``items``: does the test concern us, what do its markers say, which device is it measured on?
3. ``call_phase``: the fixture ``kernel_profile`` is made; the call phase begins, and ends.
4. ``fixture``: ``kernel_profile(fn, *args)``, which the test calls.
5. ``measuring``: settings and limits become a plan; the call is measured (room ``measure``).
6. ``ledger``: the profile is judged by the limit, and kept.
7. ``outcome``: pass, failure, error, skip or warnings follow from all that the ledger has.
8. ``reporting``: the report of the test tells it, and carries the profile to ``collector``.

Beside the way: ``settings`` (all options), ``collector`` and ``run_record`` (the whole run).
Each feature has its module: ``whole_call``, ``benchmark``, ``run_snapshots`` and
``snapshot_judge``, ``run_baseline``, ``against_revision`` and ``baseline_pytest``,
``started_ranks``, ``torchrun``.
"""
