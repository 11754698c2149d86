"""The papers' studies, measured again on this machine: every table and figure beside ours, on one page."""
