"""What measures and draws imports this first: one line where a package is missing, in place of a traceback."""

import sys
from importlib.util import find_spec

if MISSING := [name for name in ("numpy", "scipy", "matplotlib", "rich", "jinja2") if find_spec(name) is None]:
    sys.exit(f"cryptmpi: this needs the Python packages {', '.join(MISSING)}: install them (Debian: "
             f"{' '.join('python3-' + name for name in MISSING)}; elsewhere: pip install {' '.join(MISSING)})")
