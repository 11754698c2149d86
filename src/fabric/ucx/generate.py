"""From functions.txt: the table for C++, the refusing functions, and what the library exports.

usage: generate.py functions.txt FOLDER [SYMBOLS...]   (SYMBOLS: what else is exported)
"""

import sys
from pathlib import Path

CLASSES = ("sealed", "local", "refused")


def read(path):
    rows = []
    for number, line in enumerate(Path(path).read_text().splitlines(), 1):
        if not line or line.startswith("#"):
            continue
        name, kind, *reason = line.split(maxsplit=2)
        if kind not in CLASSES or (kind == "refused") != bool(reason):
            raise SystemExit(f"{path}:{number}: expected NAME sealed, NAME local, or NAME refused REASON")
        rows.append((name, kind, reason[0] if reason else ""))
    names = [name for name, _, _ in rows]
    if len(set(names)) != len(names):
        raise SystemExit(f"{path}: a function is there twice")
    return rows


def main():
    rows = read(sys.argv[1])
    folder = Path(sys.argv[2])
    (folder / "ucp_functions.inc").write_text("".join(f'FUNCTION({name}, "{kind}", "{reason}")\n' for name, kind, reason in rows))
    taken = [name for name, kind, _ in rows if kind != "local"]
    (folder / "ucp_taken.inc").write_text("".join(f"TAKEN({name})\n" for name in taken))
    (folder / "ucp_refused.inc").write_text("".join(f'REFUSED({name}, "{reason}")\n' for name, kind, reason in rows if kind == "refused"))


main()
