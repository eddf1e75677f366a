from django.db import migrations, models

from rsmq_django.pipeline.fields import UtcField


class Migration(migrations.Migration):
    dependencies = [
        ("rsmq_pipeline", "0006_lake"),
    ]

    operations = [
        migrations.CreateModel(
            name="SloAlarm",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("queue", models.CharField(max_length=160)),
                ("objective", models.CharField(max_length=64)),
                ("severity", models.CharField(max_length=8)),
                ("began_at", UtcField()),
                ("ended_at", UtcField(null=True)),  # type: ignore[misc]
                ("window", models.CharField(max_length=8)),
                ("burn_rate", models.FloatField()),
                ("budget_left", models.FloatField()),
                ("unsent", models.CharField(blank=True, max_length=100)),
                ("error", models.TextField(blank=True)),
            ],
            options={
                "verbose_name": "burn alarm",
                "verbose_name_plural": "burn alarms",
                "default_permissions": (),
                "ordering": ["-began_at", "queue", "objective", "severity"],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("queue", "objective", "severity", "began_at"), name="rsmq_slo_alarm"
                    )
                ],
            },
        ),
    ]
