"""The training worker of lens.

torchrun starts one process per device. Rank 0 serves HTTP and broadcasts each command; all ranks run it. Start
reading at `worker` (the commands), `step` (one optimizer step) and `server` (HTTP).
"""

PROTOCOL = 1
__version__ = "0.1.0"
