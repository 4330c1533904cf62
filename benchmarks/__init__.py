"""What we claim, each a command: `make bench`, or `python -m benchmarks NAME …`."""
