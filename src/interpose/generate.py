"""Writes the entry points of one MPI ABI from its preprocessed header and the table.

usage: generate.py procedures.txt ABI FOLDER HEADER.i [HEADER.i...]

HEADER.i is what `cc -E -P` makes of that ABI's mpi.h; what it lacks, since it is older than the MPI library that a
program may use, is taken from the headers after it. Into FOLDER go
  comm/native.hpp        struct Native: a typed pointer to each procedure
  interpose/resolve.cpp  resolve(): fills them from the MPI library that the program uses; clear_before_calls(),
                         act_before_waits()
  interpose/entries.cpp  the entry of each sealed or refused procedure, and the list that finds them by name
Their texts are the templates of these names in src/ (comm/native.hpp.j2 ...).
"""
import collections
import pathlib
import re
import sys

import jinja2
from table import quoted, read_table

# Types of handles that have an error handler.
HANDLES = {"MPI_Comm": "comm", "MPI_Win": "win", "MPI_File": "file"}

# Types that an older header lacks, and src/comm/session_type.hpp declares.
DECLARED_BY_US = {"MPI_Session"}

PROTOTYPE = re.compile(r"(?:^|(?<=[;}]))\s*(?:extern\s+)?([\w\s*]+?)\b(MPIX?_\w+)\s*\(([^()]*)\)\s*(?=;)")
PARAMETER = re.compile(r"(?P<type>.*?[\s*])(?P<name>\w+)(?P<array>(?:\s*\[\w*\])*)$")

Handle = collections.namedtuple("Handle", "kind argument")
Entry = collections.namedtuple("Entry", "name group refused reason procedure")

TEMPLATES = jinja2.Environment(loader=jinja2.FileSystemLoader(pathlib.Path(__file__).parent.parent), undefined=jinja2.StrictUndefined,
                               trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True)
TEMPLATES.filters["quoted"] = quoted


class Procedure:
    def __init__(self, result, name, declared):
        self.result = result.strip()
        self.name = name
        self.declared = declared.strip()
        self.types = set(re.findall(r"\bMPIX?_\w+", f"{result} {declared}"))
        self.parameters = [PARAMETER.match(p.strip()) for p in self.declared.split(",") if self.declared != "void"]
        # MPI_Send -> Send, MPIX_Comm_agree -> X_Comm_agree
        self.member = name[len("MPI_"):] if name.startswith("MPI_") else "X_" + name[len("MPIX_"):]

    @property
    def arguments(self):
        return [p["name"] for p in self.parameters]

    @property
    def handle(self):
        """The one whose error handler hears of a refusal: the first argument of such a type, passed by value."""
        for p in self.parameters:
            if p["type"].strip() in HANDLES and not p["array"]:
                return Handle(HANDLES[p["type"].strip()], p["name"])
        return Handle("anyone", None)

    @property
    def makes_communicator(self):
        return re.search(r"MPI_Comm\s*\*", self.declared) is not None


def without_attributes(text):
    """GNU attributes hold parentheses that the pattern of a prototype does not know."""
    kept, at = [], 0
    for match in re.finditer(r"__attribute__\s*\(", text):
        if match.start() < at:
            continue
        kept.append(text[at:match.start()])
        depth, at = 1, match.end()
        while depth:
            depth += {"(": 1, ")": -1}.get(text[at], 0)
            at += 1
    return "".join(kept) + text[at:]


def read_headers(paths):
    first, *others = (pathlib.Path(path).read_text() for path in paths)
    known = set(re.findall(r"\w+", first)) | DECLARED_BY_US
    procedures = {}
    for text in (first, *others):
        for found in PROTOTYPE.findall(" ".join(without_attributes(text).split())):
            procedure = Procedure(*found)
            if "typedef" not in procedure.result and (text is first or known.issuperset(procedure.types)):
                procedures.setdefault(procedure.name, procedure)
    return procedures


def entries_of(table, procedures):
    """One for each row of the table, in its order."""
    entries = []
    for name, group, reason, _ in table:
        procedure = procedures.get(name)
        refused = group == "refused" or (group == "sealed" and procedure is None)
        if procedure is None:  # MPI may have it nevertheless, but what its arguments are is not known
            procedure = Procedure("int", name, "void")
            reason = reason or "this CryptMPI was built with an MPI that does not have it"
        entries.append(Entry(name, group, refused, reason, procedure))
    return entries


def main(table, abi, folder, *headers):
    folder = pathlib.Path(folder)
    procedures = read_headers(headers)
    rows = read_table(pathlib.Path(table))
    unclassified = sorted(set(procedures) - {row.name for row in rows})
    if unclassified:
        sys.exit(f"{table}: no class for {', '.join(unclassified)}, which the header of the {abi} ABI declares")
    waiting = {row.name for row in rows if row.waits}
    facts = {"abi": abi, "procedures": list(procedures.values()), "waiting": [p for p in procedures.values() if p.name in waiting],
             "entries": entries_of(rows, procedures)}
    for name in ("comm/native.hpp", "interpose/resolve.cpp", "interpose/entries.cpp"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(TEMPLATES.get_template(f"{name}.j2").render(facts))


if __name__ == "__main__":
    main(*sys.argv[1:])
