"""Writes the entry points of one MPI ABI from its preprocessed header and the table.

usage: generate.py procedures.txt ABI FOLDER HEADER.i [HEADER.i...]

HEADER.i is what `cc -E -P` makes of that ABI's mpi.h; what it lacks, since it is older than the MPI library that a
program may use, is taken from the headers after it. Into FOLDER go
  native.hpp   struct Native: a typed pointer to each procedure
  native.cpp   resolve(): fills them from the MPI library that the program uses; clear_before_calls(),
               act_before_waits()
  entries.cpp  the entry of each sealed or refused procedure, and the list that finds them by name
"""
import pathlib
import re
import sys

from table import quoted, read_table

# The handle whose error handler hears of a refusal: the first argument of such a type, passed by value.
HANDLES = {"MPI_Comm": "comm", "MPI_Win": "win", "MPI_File": "file"}

PROTOTYPE = re.compile(r"(?:^|(?<=[;}]))\s*(?:extern\s+)?([\w\s*]+?)\b(MPIX?_\w+)\s*\(([^()]*)\)\s*(?=;)")
PARAMETER = re.compile(r"(?P<type>.*?[\s*])(?P<name>\w+)(?P<array>(?:\s*\[\w*\])*)$")

NATIVE_HPP = """#pragma once

#include <mpi.h>

#include <map>
#include <string_view>

namespace cryptmpi::interpose {

/// The MPI library's own procedures; null: the library that the program uses does not export this one.
struct Native {
%s};

/// Fills `native` from what `lookup` finds under each procedure's PMPI_ name, or else its MPI_ name.
void resolve(Native& native, void* (*lookup)(const char* name));

/// Clears the stack before each of the procedures (clearing.hpp). Returns what now stands for each, by its MPI_ name.
std::map<std::string_view, void*> clear_before_calls(Native& native);

/// Calls act_before_wait() (this_process.hpp) before each of the procedures that may wait for another rank. Returns the same.
std::map<std::string_view, void*> act_before_waits(Native& native);

extern Native resolved;
inline const Native& native() {
    return resolved;
}

}  // namespace cryptmpi::interpose
"""

NATIVE_CPP = """#include "native.hpp"

#include "interpose/clearing.hpp"
#include "interpose/this_process.hpp"

namespace cryptmpi::interpose {
namespace {

template <class Pointer>
void fill(Pointer& pointer, void* (*lookup)(const char*), const char* profiling_name) {
    void* address = lookup(profiling_name);
    if (address == nullptr) address = lookup(profiling_name + 1);
    pointer = reinterpret_cast<Pointer>(address);
}

constinit Native uncleared;
constinit Native unwarned;

/// A function that calls `Before`, and then the procedure of `Below`.
template <const Native& Below, auto Before, auto Member, class Result, class... Arguments>
void* preceded(Result (*Native::*)(Arguments...)) {
    Result (*const function)(Arguments...) = [](Arguments... arguments) {
        Before();
        return (Below.*Member)(arguments...);
    };
    return reinterpret_cast<void*>(function);
}

/// MPI_Pcontrol, whose further arguments cannot be passed on.
template <const Native& Below, auto Before, auto Member, class Result, class Argument>
void* preceded(Result (*Native::*)(Argument, ...)) {
    return nullptr;
}

template <const Native& Below, auto Before, auto Member>
void precede(Native& native, const char* name, std::map<std::string_view, void*>& all) {
    auto& procedure = native.*Member;
    void* const function = procedure == nullptr ? nullptr : preceded<Below, Before, Member>(Member);
    if (function == nullptr) return;
    procedure = reinterpret_cast<std::remove_reference_t<decltype(procedure)>>(function);
    all.emplace(name, function);
}

}  // namespace

constinit Native resolved;

void resolve(Native& native, void* (*lookup)(const char* name)) {
%s}

std::map<std::string_view, void*> clear_before_calls(Native& native) {
    std::map<std::string_view, void*> all;
    uncleared = native;
%s    return all;
}

std::map<std::string_view, void*> act_before_waits(Native& native) {
    std::map<std::string_view, void*> all;
    unwarned = native;
%s    return all;
}

}  // namespace cryptmpi::interpose
"""

ENTRIES_CPP = """#include "interpose/entries.hpp"

#include "comm/calls.hpp"
#include "interpose/refuse.hpp"
#include "interpose/this_process.hpp"
#include "native.hpp"

// A refused call uses its communicator, window or file only.
#pragma GCC diagnostic ignored "-Wunused-parameter"

namespace cryptmpi::interpose {
namespace {

%s
template <class Function>
void* address(Function* function) {
    return reinterpret_cast<void*>(function);
}

// Sorted by name.
const Entry kEntries[] = {
%s};

}  // namespace

std::span<const Entry> entries() {
    return kEntries;
}

}  // namespace cryptmpi::interpose
"""


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
        return ", ".join(p["name"] for p in self.parameters)

    @property
    def handle(self):
        """(kind, argument) of the first handle that has an error handler."""
        for p in self.parameters:
            if p["type"].strip() in HANDLES and not p["array"]:
                return HANDLES[p["type"].strip()], p["name"]
        return "anyone", None

    def function(self, body):
        return f'extern "C" {self.result} cryptmpi_entry_{self.name}({self.declared}) {{\n{body}}}\n'

    def sealed(self):
        """A procedure and its _c form are overloads in comm/."""
        arguments = ", ".join(filter(None, ("layer()", self.arguments)))
        return self.function(f"    return comm::{self.member.removesuffix('_c')}({arguments});\n")

    def refused(self, reason):
        kind, argument = self.handle
        where = ", ".join(filter(None, (quoted(self.name), quoted(reason), argument)))
        # A communicator that such a procedure makes of one on this node may reach processes elsewhere.
        makes_one = re.search(r"MPI_Comm\s*\*", self.declared)
        passes = f"{argument} == MPI_COMM_NULL" + ("" if makes_one else f" || comm::stays_on_node(layer(), {argument})")
        unless = f"    if ({passes}) return native().{self.member}({self.arguments});\n" if kind == "comm" else ""
        return self.function(f"{unless}    return refuse_to_{kind}({where});\n")


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
    known = set(re.findall(r"\w+", first))
    procedures = {}
    for text in (first, *others):
        for found in PROTOTYPE.findall(" ".join(without_attributes(text).split())):
            procedure = Procedure(*found)
            if "typedef" not in procedure.result and (text is first or known.issuperset(procedure.types)):
                procedures.setdefault(procedure.name, procedure)
    return procedures


def entries(table, procedures):
    """The functions, and the rows of the list."""
    functions, rows = [], {}
    for name, group, reason, _ in table:
        procedure = procedures.get(name)
        refused = group == "refused" or (group == "sealed" and procedure is None)
        if procedure is None:  # MPI may have it nevertheless, but what its arguments are is not known
            procedure = Procedure("int", name, "void")
            reason = reason or "this CryptMPI was built with an MPI that does not have it"
        if group != "local":
            functions.append(procedure.refused(reason) if refused else procedure.sealed())
        address = "nullptr" if group == "local" else f"address(cryptmpi_entry_{name})"
        rows[name] = f"    {{{quoted(name)}, {address}, {'true' if refused else 'false'}}},\n"
    return "".join(functions), "".join(rows[name] for name in sorted(rows))


def main(table, abi, folder, *headers):
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    procedures = read_headers(headers)
    rows = read_table(pathlib.Path(table))
    unclassified = sorted(set(procedures) - {row.name for row in rows})
    if unclassified:
        sys.exit(f"{table}: no class for {', '.join(unclassified)}, which the header of the {abi} ABI declares")
    members = "".join(f"    {p.result} (*{p.member})({p.declared}) = nullptr;\n" for p in procedures.values())
    fills = "".join(f'    fill(native.{p.member}, lookup, "P{p.name}");\n' for p in procedures.values())
    clears = "".join(f'    precede<uncleared, clear_stack, &Native::{p.member}>(native, "{p.name}", all);\n' for p in procedures.values())
    waiting = {row.name for row in rows if row.waits}
    waits = "".join(f'    precede<unwarned, act_before_wait, &Native::{p.member}>(native, "{p.name}", all);\n'
                    for p in procedures.values() if p.name in waiting)
    for name, text in (("native.hpp", NATIVE_HPP % members), ("native.cpp", NATIVE_CPP % (fills, clears, waits)),
                       ("entries.cpp", ENTRIES_CPP % entries(rows, procedures))):
        (folder / name).write_text(f"// Generated by src/interpose/generate.py for the {abi} ABI.\n{text}")


if __name__ == "__main__":
    main(*sys.argv[1:])
