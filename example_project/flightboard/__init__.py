"""The one app of the example project: flights, what has to be done for them, and the board that shows it."""
