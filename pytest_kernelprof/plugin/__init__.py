"""The pytest plugin: hooks, settings, fixtures, and what becomes of each test and of the run.

The way of a test with ``@pytest.mark.max_kernels(1)`` and ``kernel_profile``, file by file:

1. ``hooks``: the run begins; each phase of the test comes here first, and its fixture is made here.
2. ``items``: does the test concern us, what do its markers say, which device is it measured on?
3. ``fixture``: ``kernel_profile(fn, *args)``, which the test calls.
4. ``measuring``: settings and limits become a plan; the call is measured (room ``measure``).
5. ``ledger``: the profile is judged by the limit, and kept.
6. ``outcome``: pass, failure, error, skip or warnings follow from all that the ledger has.
7. ``reporting``: the report of the test tells it, and carries the profile to ``collector``.
8. ``collector``: gathers the tests of the run, those of other processes too, for its reports.

A test without the fixture goes from ``hooks`` to ``measuring``: its whole call is measured there.
Beside the way: ``settings`` (all options) and ``run_record`` (the whole run). Each feature has its
module: ``benchmark``, ``triton_benchmarks``, ``run_snapshots`` and ``snapshot_judge``,
``run_baseline``, ``against_revision`` and ``baseline_pytest``, ``started_ranks``, ``torchrun``.
"""
