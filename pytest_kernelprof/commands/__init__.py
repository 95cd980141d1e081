"""The subcommands of ``kernelprof`` that look at this machine: arguments in, lines out."""
