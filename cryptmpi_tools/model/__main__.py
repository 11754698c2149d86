"""The subcommands of `cryptmpi model`; each is a module with NAME, HELP, add(parser) and run(options)."""

import os
import sys

from cryptmpi_tools.model import command, error, fit, plan, predict, scale, show_papers

SUBCOMMANDS = (show_papers, fit, predict, error, plan, scale)


def parse(words):
    parser = command.Parser(prog="cryptmpi model", allow_abbrev=False,
                            description="What encrypted MPI communication costs: models, fitted and applied (docs/models.md).")
    subparsers = parser.add_subparsers(dest="subcommand", required=True, metavar="SUBCOMMAND")
    for module in SUBCOMMANDS:
        module.add(subparsers.add_parser(module.NAME, help=module.HELP, description=module.__doc__.split(": ", 1)[1], allow_abbrev=False))
    return parser.parse_args(words)


def main(words):
    options = parse(words)
    module = next(module for module in SUBCOMMANDS if module.NAME == options.subcommand)
    try:
        status = module.run(options)
        sys.stdout.flush()
        return status
    except command.ModelError as problem:
        sys.stderr.write(f"cryptmpi: model {module.NAME}: {problem}\n")
        return 1
    except BrokenPipeError:  # head and less may end before us
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
