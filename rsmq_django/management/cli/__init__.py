"""The operator commands that need Django, and the entrances of `manage.py` to all operator commands.

`tree` joins the commands with those of rsmq_django.cli, `project` describes the settings to both, and `entrance` is the
base class of `manage.py rsmq_doctor` and the others. Commands that need only Redis are in rsmq_django.cli.
"""
