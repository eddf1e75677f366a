from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("rsmq", "0003_schedules_and_tasks")]

    operations = [
        migrations.CreateModel(
            name="Workflow",
            fields=[("key", models.CharField(editable=False, max_length=700, primary_key=True, serialize=False))],
            options={
                "verbose_name": "workflow",
                "verbose_name_plural": "workflows",
                "ordering": ("-created_at",),
                "permissions": (("cancel_workflow", "Can cancel workflows"),),
                "abstract": False,
                "managed": False,
                "default_permissions": ("view",),
                "base_manager_name": "objects",
            },
        ),
        migrations.AlterModelOptions(
            name="reliablequeue",
            options={
                "verbose_name": "reliable queue",
                "verbose_name_plural": "reliable queues",
                "ordering": ("name",),
                "permissions": (
                    ("settle_reliablequeue", "Can acknowledge, release and dead-letter messages in flight"),
                    ("redrive_reliablequeue", "Can redrive dead messages"),
                    ("discard_reliablequeue", "Can discard dead messages"),
                    ("move_reliablequeue", "Can move messages to another reliable queue"),
                ),
                "managed": False,
                "default_permissions": ("view",),
                "base_manager_name": "objects",
            },
        ),
    ]
