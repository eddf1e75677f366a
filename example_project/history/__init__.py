"""A year of departures through the Spark pipeline: `make demo-spark`."""
