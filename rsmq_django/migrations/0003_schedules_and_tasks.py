from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("rsmq", "0002_topics_and_reliable_queues")]

    operations = [
        migrations.CreateModel(
            name="Schedule",
            fields=[
                (
                    "name",
                    models.CharField(
                        editable=False, max_length=200, primary_key=True, serialize=False, verbose_name="name"
                    ),
                )
            ],
            options={
                "verbose_name": "schedule",
                "verbose_name_plural": "schedules",
                "ordering": ("name",),
                "permissions": (
                    ("run_schedule", "Can run a schedule now"),
                    ("pause_schedule", "Can pause and resume schedules"),
                ),
                "abstract": False,
                "managed": False,
                "default_permissions": ("view",),
                "base_manager_name": "objects",
            },
        ),
        migrations.CreateModel(
            name="RegisteredTask",
            fields=[
                (
                    "path",
                    models.CharField(
                        editable=False, max_length=500, primary_key=True, serialize=False, verbose_name="task"
                    ),
                )
            ],
            options={
                "verbose_name": "task",
                "verbose_name_plural": "tasks",
                "ordering": ("path",),
                "abstract": False,
                "managed": False,
                "default_permissions": ("view",),
                "base_manager_name": "objects",
            },
        ),
    ]
