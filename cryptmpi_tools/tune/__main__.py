"""`cryptmpi tune`."""

import os
import sys
from pathlib import Path

from cryptmpi_tools import user_jobs
from cryptmpi_tools.model import command
from cryptmpi_tools.tune import explain, measuring, profile


def parse(words):
    parser = command.Parser(prog="cryptmpi tune", allow_abbrev=False,
                            description="Measures this machine and its network, and writes a profile: the plans of large messages that suit them, "
                            "which the library then takes (docs/tuning.md).")
    user_jobs.add_options(parser, "tune", "two ranks of this machine, which say nothing of a network")
    parser.add_argument("-o", "--output", type=Path, metavar="PROFILE", help=f"default: {profile.default_path()}, where the library looks")
    parser.add_argument("--quick", action="store_true", help="a rough look, in about a minute")
    parser.add_argument("--explain", action="store_true", help="measure nothing: print what a profile says for each size")
    parser.add_argument("--profile", type=Path, help="the one to explain; default: as for --output")
    command.add_json(parser)
    options = parser.parse_args(words)
    if options.profile and not options.explain:
        parser.error("--profile goes with --explain; -o names the profile that is written")
    return options


def main(words):
    options = parse(words)
    path = options.profile or options.output or profile.default_path()
    try:
        if not options.explain:
            effort = measuring.QUICK if options.quick else measuring.FULL
            profile.write(path, measuring.measured(options, effort, measuring.Progress()))
        found = profile.read(path)
        command.show(options, {"profile": str(path), **explain.as_json(found)}, explain.lines(found, path))
        sys.stdout.flush()
    except user_jobs.JobError as error:
        sys.stderr.write(f"cryptmpi: tune: {error}\n")
        return 1
    except KeyboardInterrupt:
        sys.stderr.write("cryptmpi: tune: interrupted; no profile was written\n")
        return 130
    except BrokenPipeError:  # head and less may end before us
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
