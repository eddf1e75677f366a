from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("rsmq", "0005_schedules_are_added")]

    operations = [
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
    ]
