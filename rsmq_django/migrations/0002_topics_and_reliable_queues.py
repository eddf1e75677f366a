from django.db import migrations, models

# No tables, see 0001.


class Migration(migrations.Migration):
    dependencies = [("rsmq", "0001_initial")]

    operations = [
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
                ),
                "abstract": False,
                "managed": False,
                "default_permissions": ("view",),
                "base_manager_name": "objects",
            },
        ),
    ]
