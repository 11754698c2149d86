#!/usr/bin/env python3
"""Writes the names (names.inc) and the tables (TABLE.inc) of operations from operations.txt: for each operation a
function of ours (sealed, own), a passing one (local) or a refusing one. The compiler checks that each stands where
libfabric's header has it."""

import sys
from pathlib import Path

CLASSES = ("sealed", "local", "own", "refused")


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


def function(table, operation, kind, index):
    member = f"decltype(::{table}::{operation})"
    if kind == "local":
        return f"&Passed<&::{table}::{operation}>::call"
    if kind == "refused":
        return f"&Refused<{member}, {index}>::call"
    return f"&on_{table}::{operation}"


def main():
    source, folder = map(Path, sys.argv[1:])
    tables = read(source)
    (folder / "ofi_operations.inc").write_text("".join(
        f'OPERATION("{table}.{operation}", "{"local" if kind == "own" else kind}")\n' for table, all_of_it in tables.items()
        for operation, kind in all_of_it))
    names = [f"{table}.{operation}" for table, operations in tables.items() for operation, _ in operations]
    (folder / "names.inc").write_text("\n".join([*(f'"{name}",' for name in names), '"an operation that this CryptMPI does not know"\n']))
    index = 0
    for table, operations in tables.items():
        lines = ["// Made by generate.py from operations.txt.", "template <>", f"::{table}* table<::{table}>() {{",
                 f"    static Table<{len(operations)}> made = {{sizeof(std::size_t) * {len(operations) + 1}, {{{{"]
        for operation, kind in operations:
            lines.append(f"        address<decltype(::{table}::{operation})>({function(table, operation, kind, index)}),")
            index += 1
        lines += ["    }}, beyond()};"]
        lines += [f"    static_assert(offsetof(::{table}, {operation}) == sizeof(std::size_t) * {place});"
                  for place, (operation, _) in enumerate(operations, 1)]
        lines += [f"    return reinterpret_cast<::{table}*>(&made);", "}"]
        (folder / f"{table}.inc").write_text("\n".join(lines) + "\n")


main()
