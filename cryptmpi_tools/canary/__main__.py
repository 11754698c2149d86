"""`cryptmpi canary`."""

import sys

from cryptmpi_tools import user_jobs
from cryptmpi_tools.canary.trial import Trial
from cryptmpi_tools.model import command

NOT_SEALED = 123  # as of `cryptmpi report --check`


def parse(words):
    parser = command.Parser(prog="cryptmpi canary", allow_abbrev=False,
                            description="Sends a known pattern between two nodes, once plain and once sealed, and looks for it in what the processes "
                            f"hand to the kernel for the other node. Exit status {NOT_SEALED} unless it was seen plain, and not seen sealed.")
    user_jobs.add_options(parser, "canary", "as the launcher decides: in a batch job the allocation's")
    parser.add_argument("--layer", help="the layer to try; default: as cryptmpi run takes it")
    command.add_json(parser)
    return parser.parse_args(words)


def lines(result):
    where = ", ".join([" and ".join(result["nodes"]), result["mpi"], f"{result['layer']} layer", result["suite"]])
    said = [f"{'HELD' if result['held'] else 'NOT SHOWN'}: {where}"]
    for way in ("plain", "sealed"):
        found = result[way]
        said.append(f"  {way:<7} {found['canaries']:,} canaries in the {found['bytes']:,} bytes that left a node; {found['payload']:,} were sent")
    said.append(f"  report  {result['verdict']}")
    return [*said, f"  why     {result['why']}"] if result["why"] else said


def main(words):
    options = parse(words)
    try:
        with Trial(options) as trial:
            result = trial.taken()
    except user_jobs.JobError as error:
        sys.stderr.write(f"cryptmpi: canary: {error}\n")
        return 1
    except KeyboardInterrupt:
        sys.stderr.write("cryptmpi: canary: interrupted\n")
        return 130
    command.show(options, result, lines(result))
    return 0 if result["held"] else NOT_SEALED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
