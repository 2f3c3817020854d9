"""The training worker of lens.

One process per device, started by torchrun. Rank 0 answers HTTP; every command is sent to all ranks, which
run it together. Read `server` for the state, `worker` for what a command does, `step` for one optimizer step.
"""

PROTOCOL = 1
__version__ = "0.1.0"
