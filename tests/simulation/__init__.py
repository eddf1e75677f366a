"""The simulation of workers, `make test-simulation`: docs/explanation/reliability.md says what it does."""
