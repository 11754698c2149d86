"""The parts of CryptMPI that are written in Python: what measures it, what tries it out, and the models of its cost.

docs/architecture.md says what each package is for.
"""
