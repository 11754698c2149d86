"""`make conformance`: other people's programs and suites, plain and sealed, on every MPI."""
