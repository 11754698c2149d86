"""`cryptmpi canary`: a known pattern is sent between nodes, plain and sealed, and looked for in what leaves them."""
