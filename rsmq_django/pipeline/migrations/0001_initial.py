"""The tables of what the pipeline found out."""

from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True

    dependencies = []

    operations = [
        migrations.CreateModel(
            name="PipelineRun",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("run_id", models.CharField(max_length=32, unique=True)),
                ("step", models.CharField(max_length=32)),
                ("started_at", models.DateTimeField(db_index=True)),
                ("seconds", models.FloatField()),
                ("rows_in", models.BigIntegerField()),
                ("rows_out", models.BigIntegerField()),
                ("lost", models.BigIntegerField()),
                ("offsets", models.JSONField(default=dict)),
                ("error", models.TextField(blank=True)),
                ("exit_code", models.PositiveSmallIntegerField()),
            ],
            options={
                "verbose_name": "pipeline run",
                "verbose_name_plural": "pipeline runs",
                "ordering": ["-started_at"],
            },
        ),
        migrations.CreateModel(
            name="Anomaly",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("day", models.DateField(db_index=True)),
                ("hour", models.DateTimeField()),
                ("queue", models.CharField(max_length=160)),
                ("task", models.CharField(max_length=200)),
                ("metric", models.CharField(max_length=32)),
                ("value", models.FloatField()),
                ("median", models.FloatField()),
                ("mad", models.FloatField()),
                ("z", models.FloatField(null=True)),
                ("n", models.BigIntegerField()),
            ],
            options={
                "verbose_name": "hour unlike others",
                "verbose_name_plural": "hours unlike others",
                "ordering": ["-hour", "queue", "task"],
                "constraints": [
                    models.UniqueConstraint(fields=("hour", "queue", "task", "metric"), name="rsmq_anomaly")
                ],
            },
        ),
        migrations.CreateModel(
            name="CapacityAdvice",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("day", models.DateField()),
                ("queue", models.CharField(max_length=160)),
                ("attempts", models.BigIntegerField()),
                ("arrivals_per_s", models.FloatField()),
                ("mean_run_s", models.FloatField()),
                ("run_cv_squared", models.FloatField()),
                ("load", models.FloatField()),
                ("slots_seen", models.IntegerField()),
                ("slots_needed", models.IntegerField(null=True)),
                ("wait_target_s", models.FloatField()),
                ("quantile", models.FloatField()),
                ("silent_because", models.CharField(blank=True, max_length=200, verbose_name="reason")),
            ],
            options={
                "verbose_name": "capacity advice",
                "verbose_name_plural": "capacity advice",
                "ordering": ["-day", "queue"],
                "constraints": [models.UniqueConstraint(fields=("day", "queue"), name="rsmq_capacity_advice")],
            },
        ),
        migrations.CreateModel(
            name="FailureGroup",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("day", models.DateField(db_index=True)),
                ("task", models.CharField(max_length=200)),
                ("fingerprint", models.CharField(db_index=True, max_length=32)),
                ("error_type", models.CharField(max_length=200)),
                ("n", models.BigIntegerField()),
                ("retried", models.BigIntegerField()),
                ("dead", models.BigIntegerField()),
                ("first_at", models.DateTimeField()),
                ("last_at", models.DateTimeField()),
                ("sample", models.TextField(blank=True)),
                ("sample_task_id", models.CharField(blank=True, max_length=64)),
                ("queues", models.JSONField(default=list)),
                ("workers", models.IntegerField()),
            ],
            options={
                "verbose_name": "failure group",
                "verbose_name_plural": "failures",
                "ordering": ["-day", "-n"],
                "constraints": [models.UniqueConstraint(fields=("day", "fingerprint"), name="rsmq_failure_group")],
            },
        ),
        migrations.CreateModel(
            name="PublishedDay",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("table", models.CharField(max_length=32)),
                ("day", models.DateField()),
                ("signature", models.CharField(max_length=64)),
                ("rows", models.BigIntegerField()),
            ],
            options={
                "verbose_name": "published day",
                "verbose_name_plural": "published days",
                "constraints": [models.UniqueConstraint(fields=("table", "day"), name="rsmq_published_day")],
            },
        ),
        migrations.CreateModel(
            name="QueueDepth",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("day", models.DateField(db_index=True)),
                ("taken_at", models.DateTimeField()),
                ("queue", models.CharField(max_length=160)),
                ("waiting", models.BigIntegerField(verbose_name="ready")),
                ("delayed", models.BigIntegerField()),
                ("in_flight", models.BigIntegerField()),
                ("oldest_age_us", models.BigIntegerField(null=True)),
                ("body_bytes", models.BigIntegerField()),
                ("max_receive_count", models.IntegerField()),
            ],
            options={
                "verbose_name": "queue depth",
                "verbose_name_plural": "queue depths",
                "ordering": ["-taken_at", "queue"],
                "constraints": [models.UniqueConstraint(fields=("taken_at", "queue"), name="rsmq_queue_depth")],
            },
        ),
        migrations.CreateModel(
            name="SloBurn",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("day", models.DateField(db_index=True)),
                ("at", models.DateTimeField()),
                ("queue", models.CharField(max_length=160)),
                ("objective", models.CharField(max_length=64)),
                ("window", models.CharField(max_length=8)),
                ("total", models.BigIntegerField()),
                ("bad", models.BigIntegerField()),
                ("target", models.FloatField()),
                ("burn_rate", models.FloatField()),
                ("budget_left", models.FloatField()),
            ],
            options={
                "verbose_name": "burn rate",
                "verbose_name_plural": "objectives and capacity",
                "ordering": ["-at", "queue", "objective", "window"],
                "constraints": [
                    models.UniqueConstraint(fields=("at", "queue", "objective", "window"), name="rsmq_slo_burn")
                ],
            },
        ),
        migrations.CreateModel(
            name="TaskHour",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("day", models.DateField(db_index=True)),
                ("hour", models.DateTimeField()),
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
                ("wait_hist", models.JSONField(default=dict)),
                ("run_hist", models.JSONField(default=dict)),
            ],
            options={
                "verbose_name": "task hour",
                "verbose_name_plural": "task history",
                "ordering": ["hour", "queue", "task"],
                "indexes": [models.Index(fields=["queue", "hour"], name="rsmq_task_hour_queue")],
                "constraints": [models.UniqueConstraint(fields=("hour", "queue", "task"), name="rsmq_task_hour")],
            },
        ),
    ]
