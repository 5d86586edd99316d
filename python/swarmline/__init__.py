"""Swarmline trains one large model on many unreliable machines. The engine is a program: `swarmline --help`."""
