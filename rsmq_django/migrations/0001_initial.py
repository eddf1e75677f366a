from django.db import migrations, models

# These models have no tables: what matters here are their names and permissions. Their fields are in the models only,
# because a change of one needs no migration.


class Migration(migrations.Migration):
    initial = True

    dependencies = []

    operations = [
        migrations.CreateModel(
            name="Message",
            fields=[("key", models.CharField(editable=False, max_length=700, primary_key=True, serialize=False))],
            options={
                "verbose_name": "message",
                "verbose_name_plural": "messages",
                "ordering": ("queue", "visible_at"),
                "permissions": (
                    ("view_body", "Can view bodies, results and errors"),
                    ("move_message", "Can run messages now, delay and move them"),
                    ("redrive_message", "Can redrive dead letters"),
                ),
                "abstract": False,
                "managed": False,
                "default_permissions": ("view", "delete"),
                "base_manager_name": "objects",
            },
        ),
        migrations.CreateModel(
            name="Queue",
            fields=[("key", models.CharField(editable=False, max_length=500, primary_key=True, serialize=False))],
            options={
                "verbose_name": "queue",
                "verbose_name_plural": "queues",
                "ordering": ("name",),
                "permissions": (
                    ("send_message", "Can send messages and enqueue tasks"),
                    ("purge_queue", "Can purge queue"),
                    ("pause_queue", "Can pause and resume queue"),
                ),
                "abstract": False,
                "managed": False,
                "default_permissions": ("view", "change", "delete"),
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
        migrations.CreateModel(
            name="ReliableQueue",
            fields=[("key", models.CharField(editable=False, max_length=500, primary_key=True, serialize=False))],
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
                "abstract": False,
                "managed": False,
                "default_permissions": ("view",),
                "base_manager_name": "objects",
            },
        ),
        migrations.CreateModel(
            name="Result",
            fields=[
                (
                    "task_id",
                    models.CharField(
                        editable=False, max_length=64, primary_key=True, serialize=False, verbose_name="task id"
                    ),
                )
            ],
            options={
                "verbose_name": "task result",
                "verbose_name_plural": "task results",
                "ordering": ("task_id",),
                "abstract": False,
                "managed": False,
                "default_permissions": ("view",),
                "base_manager_name": "objects",
            },
        ),
        migrations.CreateModel(
            name="Run",
            fields=[("key", models.CharField(editable=False, max_length=1500, primary_key=True, serialize=False))],
            options={
                "verbose_name": "run",
                "verbose_name_plural": "runs",
                "ordering": ("-ended_at",),
                "abstract": False,
                "managed": False,
                "default_permissions": ("view",),
                "base_manager_name": "objects",
            },
        ),
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
                "default_permissions": ("view", "add", "change", "delete"),
                "base_manager_name": "objects",
            },
        ),
        migrations.CreateModel(
            name="Topic",
            fields=[("key", models.CharField(editable=False, max_length=500, primary_key=True, serialize=False))],
            options={
                "verbose_name": "topic",
                "verbose_name_plural": "topics",
                "ordering": ("name",),
                "permissions": (("seek_topic", "Can replay topics and set groups"),),
                "abstract": False,
                "managed": False,
                "default_permissions": ("view",),
                "base_manager_name": "objects",
            },
        ),
        migrations.CreateModel(
            name="Worker",
            fields=[("key", models.CharField(editable=False, max_length=700, primary_key=True, serialize=False))],
            options={
                "verbose_name": "worker",
                "verbose_name_plural": "workers",
                "ordering": ("worker_id",),
                "permissions": (("control_worker", "Can control workers"),),
                "abstract": False,
                "managed": False,
                "default_permissions": ("view",),
                "base_manager_name": "objects",
            },
        ),
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
    ]
