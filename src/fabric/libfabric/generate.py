#!/usr/bin/env python3
"""Writes the names (names.inc) and the tables (TABLE.inc) of operations from operations.txt: for each operation a
function of ours (sealed, own), a passing one (local) or a refusing one. The compiler checks that each stands where
libfabric's header has it. A table's text is table.inc.j2."""

import sys
from pathlib import Path

import jinja2

CLASSES = ("sealed", "local", "own", "refused")

TEMPLATES = jinja2.Environment(loader=jinja2.FileSystemLoader(Path(__file__).parent), undefined=jinja2.StrictUndefined,
                               trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True)


def read(path):
    tables = {}
    for number, line in enumerate(path.read_text().splitlines(), 1):
        words = line.split("#")[0].split()
        if not words:
            continue
        table, dot, operation = words[0].partition(".")
        if len(words) != 2 or not dot or words[1] not in CLASSES:
            raise SystemExit(f"{path}:{number}: expected TABLE.OPERATION and one of {', '.join(CLASSES)}")
        tables.setdefault(table, []).append((operation, words[1]))
    return tables


def main():
    source, folder = map(Path, sys.argv[1:])
    tables = read(source)
    (folder / "ofi_operations.inc").write_text("".join(
        f'OPERATION("{table}.{operation}", "{"local" if kind == "own" else kind}")\n' for table, all_of_it in tables.items()
        for operation, kind in all_of_it))
    names = [f"{table}.{operation}" for table, operations in tables.items() for operation, _ in operations]
    (folder / "names.inc").write_text("\n".join([*(f'"{name}",' for name in names), '"an operation that this CryptMPI does not know"\n']))
    text = TEMPLATES.get_template("table.inc.j2")
    for table, operations in tables.items():
        (folder / f"{table}.inc").write_text(text.render(table=table, operations=operations, names=names))


main()
