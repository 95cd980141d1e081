"""What a run is compared with: kernel snapshots, run documents, and a revision that a worker runs
beside this one."""
