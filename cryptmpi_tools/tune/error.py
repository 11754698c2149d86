"""What ends `cryptmpi tune`."""

from cryptmpi_tools.user_jobs import JobError


class TuneError(JobError):
    """One line for the user: what, where, how to mend it."""
