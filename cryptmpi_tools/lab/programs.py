"""Programs that are run in a lab, what they read, and what they say of their own results."""

import re
from pathlib import Path

HERE = Path(__file__).resolve().parent
CANARY = HERE / "kinds_of_call.c"  # sends a pattern by many kinds of call, and checks what arrives
HPCC_INPUT = HERE / "hpccinf.txt"
LAMMPS_INPUT = HERE / "in.melt"


def hpcc_checks(folder):
    """(what HPCC checked and found right, what it found wrong) from the folder it ran in."""
    output = Path(folder) / "hpccoutf.txt"
    text = output.read_text(errors="replace") if output.exists() else ""
    right = re.findall(r"^.*(?:\bPASSED\b|\bpassed\b).*$", text, re.M)
    wrong = re.findall(r"^.*(?:\bFAILED\b|\bfailed\b(?!\s*:\s*0)).*$", text, re.M)
    wrong = [line for line in wrong if not re.search(r"^\s*0 tests completed", line)]
    summary = dict(re.findall(r"^(\w+)=(\S+)$", text, re.M))
    if summary.get("Success") == "1":
        right.append("Success=1")
    else:
        wrong.append("no Success=1 in hpccoutf.txt")
    if "End of HPC Challenge tests." not in text:
        wrong.append("HPCC did not reach its end")
    return right, wrong


def lammps_thermodynamics(text):
    """The lines of numbers that LAMMPS prints while it runs."""
    lines = text.splitlines()
    starts = [i for i, line in enumerate(lines) if line.split()[:2] == ["Step", "Temp"]]
    if not starts:
        return []
    thermo = []
    for line in lines[starts[0] + 1:]:
        if line.startswith("Loop time"):
            return thermo
        thermo.append(line.split())
    return []
