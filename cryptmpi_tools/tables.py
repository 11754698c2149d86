"""Tables as lines of text: on the terminal as in a file, as wide as their cells are, and without colours."""

import io

WIDEST = 1 << 16  # of a line, so that no cell is cut or broken


def aligned(lines):
    """The first line is the heading; columns of numbers are to the right."""
    return _drawn(lines, box=None, pad_edge=False, padding=(0, 2, 0, 0))


def markdown(lines):
    """The same for a page."""
    from rich.box import MARKDOWN

    return _drawn(lines, box=MARKDOWN)


def _drawn(lines, **form):
    # Not above: the commands say their --help without it.
    from rich.console import Console
    from rich.table import Table

    heading, *rows = lines
    table = Table(**form)
    for title, *cells in zip(heading, *rows):
        table.add_column(title, justify="right" if _are_numbers(cells) else "left", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    text = io.StringIO()
    Console(file=text, width=WIDEST, color_system=None, markup=False, emoji=False, highlight=False).print(table)
    return [line.rstrip() for line in text.getvalue().splitlines() if line.strip()]


def _are_numbers(cells):
    return any(cells) and all(cell[0].isdigit() or cell[0] in "+-" for cell in cells if cell)
