"""`make bench-quick`: what sealing costs, as ratios of interleaved runs."""
