"""The parts of CryptMPI that are written in Python: what measures it, what tries it out, and the models of its cost.

| package | |
|---|---|
| `lab` | nodes made of namespaces, the MPIs that are tried, captures, the command of the build tree; the others start their jobs by it |
| `demo`, `conformance`, `torture` | `make demo`, `make conformance`, `make torture` |
| `bench` | `make bench` and its relatives; docs/performance.md |
| `study` | `cryptmpi study`, `cryptmpi bench`; docs/study.md |
| `model` | `cryptmpi model`; docs/models.md |
| `tune` | `cryptmpi tune`; docs/tuning.md |
"""
