"""Performance models of encrypted MPI communication: fits, predictions, and the figures that the papers print.

All of it counts in seconds and bytes. The papers, as they are cited here:

- C20: CryptMPI: A Fast Encrypted MPI Library (2020), section IV and tables I to III.
- N20: Performance Evaluation and Modeling of Cryptographic Libraries for MPI Communications (2020), section 6
  and tables IX to XII.
- N19: An Empirical Study of Cryptographic Libraries for MPI Communications (2019), whose measurements N20 repeats.
- Thakur05: Thakur, Rabenseifner, Gropp, Optimization of Collective Communication Operations in MPICH (2005).
"""
