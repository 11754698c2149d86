"""`make bench-quick`, `make bench`: what sealing costs, by interleaved runs; docs/performance.md explains the
figures."""
