from django.db import migrations, models

from rsmq_django.pipeline.fields import UtcField


class Migration(migrations.Migration):
    dependencies = [
        ("rsmq_pipeline", "0005_utc"),
    ]

    operations = [
        migrations.CreateModel(
            name="LakeDay",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("table", models.CharField(max_length=200)),
                ("day", models.DateField(db_index=True)),
                ("rows", models.BigIntegerField()),
                ("files", models.IntegerField()),
                ("size_bytes", models.BigIntegerField()),
            ],
            options={
                "verbose_name": "day of the lake",
                "verbose_name_plural": "lake",
                "ordering": ["-day", "table"],
                "constraints": [models.UniqueConstraint(fields=("table", "day"), name="rsmq_lake_day")],
            },
        ),
        migrations.CreateModel(
            name="LakeState",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("place", models.TextField()),
                ("newest_event_at", UtcField(null=True)),  # type: ignore[misc]
                ("published_at", UtcField()),
            ],
            options={
                "verbose_name": "state of the lake",
                "verbose_name_plural": "state of the lake",
                "default_permissions": (),
            },
        ),
    ]
