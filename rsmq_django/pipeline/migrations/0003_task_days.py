from typing import Any

from django.db import migrations, models

from rsmq_django.pipeline.fields import HistogramField


def publish_hours_again(apps: Any, schema_editor: Any) -> None:
    """Let the next publishing write all days, with their sums."""
    days = apps.get_model("rsmq_pipeline", "PublishedDay")
    days.objects.using(schema_editor.connection.alias).filter(table="hourly").update(signature="")


class Migration(migrations.Migration):
    dependencies = [
        ("rsmq_pipeline", "0002_anomaly_names"),
    ]

    operations = [
        migrations.CreateModel(
            name="TaskDay",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("day", models.DateField(db_index=True)),
                ("queue", models.CharField(max_length=160)),
                ("task", models.CharField(max_length=200)),
                ("attempts", models.BigIntegerField()),
                ("first_attempts", models.BigIntegerField()),
                ("succeeded", models.BigIntegerField()),
                ("retried", models.BigIntegerField()),
                ("dead", models.BigIntegerField()),
                ("released", models.BigIntegerField()),
                ("lost", models.BigIntegerField()),
                ("cancelled", models.BigIntegerField()),
                ("busy_us", models.BigIntegerField()),
                ("run_s_squared", models.FloatField()),
                ("body_bytes", models.BigIntegerField()),
                ("workers", models.IntegerField()),
                ("wait_hist", HistogramField()),
                ("run_hist", HistogramField()),
                ("days", models.PositiveSmallIntegerField()),
            ],
            options={
                "verbose_name": "task day",
                "verbose_name_plural": "task days",
                "ordering": ["day", "queue", "task"],
                "indexes": [models.Index(fields=["queue", "task", "days", "day"], name="rsmq_task_day_task")],
                "constraints": [models.UniqueConstraint(fields=("day", "days", "queue", "task"), name="rsmq_task_day")],
            },
        ),
        migrations.AlterField("taskhour", "wait_hist", HistogramField()),
        migrations.AlterField("taskhour", "run_hist", HistogramField()),
        migrations.RunPython(publish_hours_again, migrations.RunPython.noop),
    ]
