"""What the subcommands of `cryptmpi model` share: one line for every mistake, and where results go."""

import argparse
import json
import os
import sys
from pathlib import Path


class ModelError(Exception):
    """One line for the user: what, where, how to mend it."""


class Parser(argparse.ArgumentParser):
    """Ends with status 2 and one line."""

    def error(self, message):
        sys.stderr.write(f"cryptmpi: {self.prog.removeprefix('cryptmpi ')}: {message}; see {self.prog} --help\n")
        sys.exit(2)


def positive(kind):
    """For argparse: a number of this kind above 0."""
    def read(word):
        value = kind(word)
        if not value > 0 or value == float("inf"):
            raise argparse.ArgumentTypeError(f"{word} is not above 0")
        return value
    read.__name__ = f"positive {kind.__name__}"
    return read


def size(word):
    """For argparse: bytes, as 1024, 64K or 4M."""
    units = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
    number = word.upper().removesuffix("B")
    unit = units.get(number[-1:], 1)
    value = int(number[:-1] if unit > 1 else number) * unit
    if value < 1:
        raise argparse.ArgumentTypeError(f"{word} is not a size of 1 byte or more")
    return value


def read_json(path):
    """The JSON object in a file. Raises ModelError."""
    try:
        found = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise ModelError(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise ModelError(f"{path} is not JSON ({error})") from error
    if not isinstance(found, dict):
        raise ModelError(f"{path} holds no JSON object")
    return found


def write(path, text):
    """Whole or not at all. Raises ModelError."""
    new = Path(f"{path}.{os.getpid()}.new")
    try:
        new.write_text(text, encoding="utf-8")
        new.replace(path)
    except OSError as error:
        new.unlink(missing_ok=True)
        raise ModelError(f"cannot write {path}: {error.strerror}") from error


def as_json(value):
    return json.dumps(value, indent=1, allow_nan=False) + "\n"


def show(options, value, lines):
    """Prints the JSON with --json, else the lines of the table."""
    sys.stdout.write(as_json(value) if options.json else "\n".join(lines) + "\n")


def add_json(parser):
    parser.add_argument("--json", action="store_true", help="print JSON instead of the table")
