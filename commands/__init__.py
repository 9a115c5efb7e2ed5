"""What the commands of the command line do; `cli` says how they are called.

Each takes the parsed options and returns the exit code. Rooms are imported by the commands that need them, so
that help and mistakes answer at once.
"""
