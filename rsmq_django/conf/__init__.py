"""`settings.RSMQ`: sections, options, queues and schedules, read once into one `Settings` object.

Nothing here connects to Redis. The system checks that report wrong settings are in `rsmq_django.checks`.
"""
