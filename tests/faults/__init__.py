"""Everything that breaks, on purpose: scenarios of faults under load, and a checker that knows nothing of the product.

    python -m tests.faults                      every scenario once
    python -m tests.faults --minutes 240        for hours, each round with another seed
    python -m tests.faults --only kills --seed 7

Real senders and `rsmq_worker` processes write what they did to one history (history.py). A scenario is a list of faults
at random times, made from its seed (scenarios.py). The checker (checker.py) reads the history when all is drained.
"""
