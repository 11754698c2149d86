"""Reads procedures.txt, the table that classes every MPI procedure.

usage: table.py procedures.txt OUTPUT    writes it for C++ and the assembler: PROCEDURE(name, class, "reason")
"""
import collections
import pathlib
import sys

CLASSES = ("sealed", "local", "refused")

WAITS = "+waits"

Row = collections.namedtuple("Row", "name group reason waits", defaults=[False])


def read_table(path):
    rows, seen = [], set()
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if not line or line.startswith("#"):
            continue
        name, group, reason = (line.split(None, 2) + ["", ""])[:3]
        waits = group.endswith(WAITS)
        group = group.removesuffix(WAITS)
        problem = None
        if group not in CLASSES:
            problem = f"{name} has no class; it is one of {', '.join(CLASSES)}"
        elif group == "refused" and not reason:
            problem = f"{name} is refused without a reason"
        elif name in seen:
            problem = f"{name} is there twice"
        if problem:
            sys.exit(f"{path}:{number}: {problem}")
        seen.add(name)
        rows.append(Row(name, group, reason, waits))
    return rows


def quoted(text):
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def main(table, output):
    rows = read_table(pathlib.Path(table))
    pathlib.Path(output).write_text("".join(f"PROCEDURE({r.name}, {r.group}, {quoted(r.reason)})\n" for r in rows))


if __name__ == "__main__":
    main(*sys.argv[1:])
