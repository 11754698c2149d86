"""What anybody on a node could see of a job's fresh key while the job runs: `spying.py FOLDER` writes FOLDER/NODE.json.

The key itself is written as its complement, so that no file has it.
"""

import json
import os
import socket
import stat
import sys
from pathlib import Path


def seen_in_processes(key):
    """Where the key is in a command line or an environment, of all processes of the machine."""
    forms = [key.encode(), bytes.fromhex(key)]
    places = []
    for process in Path("/proc").glob("[0-9]*"):
        for name in ("cmdline", "environ"):
            try:
                content = (process / name).read_bytes()
            except OSError:
                continue
            places += [f"{process}/{name}" for form in forms if form in content]
    return places


def main(folder):
    file = Path(os.environ["CRYPTMPI_KEY_FILE"])
    key = file.read_text().split()[1]
    found = {"file": str(file), "mode": stat.S_IMODE(file.stat().st_mode), "device": os.stat("/dev/shm").st_dev == file.stat().st_dev,
             "complement": bytes(255 - byte for byte in bytes.fromhex(key)).hex(), "seen": seen_in_processes(key)}
    (Path(folder) / f"{socket.gethostname()}.json").write_text(json.dumps(found))


main(sys.argv[1])
