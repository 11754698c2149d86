"""Two or more nodes on one machine, what runs on them, and what passes between them on the wire."""
