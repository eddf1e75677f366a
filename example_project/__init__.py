"""A runnable site on real data: the departures of New York's airports in 2013, with every slow step in a queue."""
