"""The one app of the example project: flights, their tasks, and the board that shows them."""
