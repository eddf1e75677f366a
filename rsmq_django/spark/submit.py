"""Entry point for spark-submit, which runs this file by its path: see `job`."""

import sys

from rsmq_django.spark.job import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
