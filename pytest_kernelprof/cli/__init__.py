"""The command ``kernelprof``: one file a subcommand."""
