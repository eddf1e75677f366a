"""How much there is now, and what was counted: one type for the depth of queues, reliable queues and topic groups.

Scripts and calls of one structure are beside that structure, not here.
"""
