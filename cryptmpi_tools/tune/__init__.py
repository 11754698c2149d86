"""Plans of large messages for this machine and network: measured, fitted to the papers' models, chosen
(docs/tuning.md).

Times are in seconds, sizes in bytes; names and tables say where it is microseconds.
"""
