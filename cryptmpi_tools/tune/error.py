"""What ends `cryptmpi tune`."""


class TuneError(Exception):
    """One line for the user: what, where, how to mend it."""
