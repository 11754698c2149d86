"""`make demo`: programs that know nothing of us, plain and sealed, across two nodes, with the wire watched."""
