"""How fast this project is, beside the limit of the server and other task queues: docs/explanation/benchmarks.md."""
