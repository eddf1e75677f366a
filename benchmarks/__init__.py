"""How fast this project is, beside the limit of the server and beside other task queues. See docs/benchmarks.md."""
