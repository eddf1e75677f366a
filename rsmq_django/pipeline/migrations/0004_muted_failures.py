from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("rsmq_pipeline", "0003_task_days"),
    ]

    operations = [
        migrations.CreateModel(
            name="MutedFailure",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("fingerprint", models.CharField(max_length=32, unique=True)),
                ("muted_at", models.DateTimeField(auto_now_add=True)),
                ("muted_by", models.CharField(blank=True, max_length=150)),
            ],
            options={
                "verbose_name": "muted failure",
                "verbose_name_plural": "muted failures",
                "default_permissions": (),
            },
        ),
        migrations.AlterModelOptions(
            name="failuregroup",
            options={
                "ordering": ["-day", "-n"],
                "permissions": [("mute_failuregroup", "Can mute failures")],
                "verbose_name": "failure group",
                "verbose_name_plural": "failures",
            },
        ),
    ]
