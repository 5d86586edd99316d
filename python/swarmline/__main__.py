"""python -m swarmline: the same as the command swarmline."""

from swarmline.start import main

main()
