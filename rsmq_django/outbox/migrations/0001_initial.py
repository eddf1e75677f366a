"""The tables of outbox and inbox."""

import django.utils.timezone
from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True

    dependencies = []

    operations = [
        migrations.CreateModel(
            name="InboxEntry",
            fields=[
                ("task_id", models.CharField(max_length=63, primary_key=True, serialize=False)),
                ("task", models.CharField(max_length=255)),
                ("value", models.TextField(default="null")),
                ("done_at", models.DateTimeField(db_index=True, default=django.utils.timezone.now)),
            ],
            options={
                "verbose_name": "inbox entry",
                "verbose_name_plural": "inbox entries",
            },
        ),
        migrations.CreateModel(
            name="OutboxMessage",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("queue_name", models.CharField(max_length=160)),
                ("task_id", models.CharField(max_length=63, unique=True)),
                ("task", models.CharField(max_length=255)),
                ("body", models.BinaryField()),
                ("run_after", models.DateTimeField(null=True)),
                ("keeps_result", models.BooleanField(default=True)),
                ("created_at", models.DateTimeField(default=django.utils.timezone.now)),
                ("sent_at", models.DateTimeField(db_index=True, null=True)),
                ("refusal", models.TextField(blank=True, default="")),
            ],
            options={
                "verbose_name": "outbox message",
                "indexes": [
                    models.Index(
                        condition=models.Q(("refusal", ""), ("sent_at", None)),
                        fields=["queue_name", "id"],
                        name="rsmq_outbox_waiting",
                    )
                ],
            },
        ),
    ]
