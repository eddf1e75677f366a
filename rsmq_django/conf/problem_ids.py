"""The ids of the problems that reading `settings.RSMQ` can find; docs/reference/settings.md explains them."""

MISSING, UNKNOWN_OPTION, WRONG_VALUE, WRONG_NAME = "rsmq.E001", "rsmq.E002", "rsmq.E003", "rsmq.E004"
NO_SERVER, UNKNOWN_CONNECTION, WRONG_DEAD_LETTER = "rsmq.E005", "rsmq.E006", "rsmq.E007"
NOT_INSTALLED = "rsmq.E013"
NO_TIME, UNKNOWN_QUEUE = "rsmq.E030", "rsmq.E031"
