"""The contract between those who measure and those who tell: typed records, nothing else."""
